/**
 * Binary websocket frames: previews and texts. All integers are big-endian, 32 bit.
 *
 * Source: ComfyUI 0.8.0's protocol: event 1 is a preview, 3 a text, 4 a preview with metadata.
 */

/**
 * @typedef {object} PreviewFrame
 * @property {string | null} promptId whose preview it is; null in frames without metadata
 * @property {string | null} nodeId
 * @property {Blob} image
 */

const PLAIN_PREVIEW = 1;
const PREVIEW_WITH_METADATA = 4;
const IMAGE_TYPES = new Set(["image/jpeg", "image/png"]);

/**
 * @param {ArrayBuffer} buffer
 * @returns {PreviewFrame | null} null for a frame of another kind, or a malformed one
 */
export function parsePreview(buffer) {
  if (buffer.byteLength < 8) return null;
  const view = new DataView(buffer);
  const event = view.getUint32(0);
  const word = view.getUint32(4);
  if (event === PLAIN_PREVIEW) {
    const type = word === 2 ? "image/png" : "image/jpeg";
    return { promptId: null, nodeId: null, image: new Blob([buffer.slice(8)], { type }) };
  }
  if (event !== PREVIEW_WITH_METADATA || 8 + word > buffer.byteLength) return null;
  let metadata;
  try {
    metadata = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, word)));
  } catch {
    return null;
  }
  if (!IMAGE_TYPES.has(metadata?.image_type)) return null;
  return {
    promptId: metadata.prompt_id ?? null,
    nodeId: metadata.display_node_id ?? metadata.node_id ?? null,
    image: new Blob([buffer.slice(8 + word)], { type: metadata.image_type }),
  };
}
