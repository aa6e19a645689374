/**
 * The workflow that a PNG carries. Bytes in, text out; nothing here touches the page.
 *
 * Source: PNG (third edition), sections 5.3 (chunk layout) and 11.3.3 (tEXt, zTXt, iTXt).
 */

/** A file that holds no workflow which can be run; its message is for people. */
export class WorkflowFileError extends Error {}

/** Longest text of one chunk after decompression: a workflow with thousands of nodes fits. */
export const MAX_TEXT_BYTES = 16 * 1024 * 1024;

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const TEXT_CHUNKS = new Set(["tEXt", "zTXt", "iTXt"]);

/**
 * @param {Uint8Array} bytes
 * @returns {boolean}
 */
export function isPng(bytes) {
  return SIGNATURE.every((byte, index) => bytes[index] === byte);
}

/**
 * The text of the first chunk with keyword `prompt`.
 *
 * @param {Uint8Array} bytes a whole PNG file
 * @returns {Promise<string>}
 * @throws {WorkflowFileError} cut off, damaged, or no such chunk
 */
export async function promptInPng(bytes) {
  let carriesEditorFormat = false;
  for (const chunk of textChunks(bytes)) {
    const end = chunk.body.indexOf(0);
    const keyword = end < 0 ? "" : latin1(chunk.body.subarray(0, end));
    if (keyword === "prompt") return chunkText(chunk.type, chunk.body.subarray(end + 1));
    carriesEditorFormat ||= keyword === "workflow";
  }
  throw new WorkflowFileError(
    carriesEditorFormat
      ? "This picture carries the workflow in the editor's format only. Open it in the editor and export it with 'Export (API)'."
      : "This picture carries no workflow: it has no text chunk named 'prompt'.",
  );
}

/**
 * @param {Uint8Array} bytes
 * @returns {Generator<{type: string, body: Uint8Array}>}
 */
function* textChunks(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = SIGNATURE.length;
  while (at + 12 <= bytes.length) {
    const length = view.getUint32(at);
    const type = latin1(bytes.subarray(at + 4, at + 8));
    const start = at + 8;
    if (start + length + 4 > bytes.length) break;
    if (TEXT_CHUNKS.has(type)) yield { type, body: bytes.subarray(start, start + length) };
    if (type === "IEND") return;
    at = start + length + 4;
  }
  throw new WorkflowFileError("This PNG is cut off: its end is missing.");
}

/**
 * @param {string} type
 * @param {Uint8Array} rest what follows the keyword and its zero byte
 * @returns {Promise<string>}
 */
async function chunkText(type, rest) {
  if (type === "tEXt") return latin1(within(rest));
  if (type === "zTXt") return latin1(await inflate(rest.subarray(1)));
  const isCompressed = rest[0] === 1;
  const languageEnd = rest.indexOf(0, 2);
  const keywordEnd = languageEnd < 0 ? -1 : rest.indexOf(0, languageEnd + 1);
  if (keywordEnd < 0) throw new WorkflowFileError("The text chunk of this PNG is damaged.");
  const text = rest.subarray(keywordEnd + 1);
  return new TextDecoder().decode(isCompressed ? await inflate(text) : within(text));
}

/**
 * @param {Uint8Array} text
 * @returns {Uint8Array}
 */
function within(text) {
  if (text.length > MAX_TEXT_BYTES) throw tooLong();
  return text;
}

/**
 * zlib decompression that stops at the limit, so that a small file can't fill the memory.
 *
 * @param {Uint8Array} packed
 * @returns {Promise<Uint8Array>}
 */
async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const reader = stream.getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    let step;
    try {
      step = await reader.read();
    } catch (problem) {
      throw new WorkflowFileError("The compressed text of this PNG is damaged.", { cause: problem });
    }
    if (step.done) break;
    length += step.value.length;
    if (length > MAX_TEXT_BYTES) {
      await reader.cancel();
      throw tooLong();
    }
    parts.push(step.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** @returns {WorkflowFileError} */
function tooLong() {
  return new WorkflowFileError(
    `The workflow in this PNG is longer than ${MAX_TEXT_BYTES / 1024 / 1024} MB.`,
  );
}

/**
 * @param {Uint8Array} bytes
 * @returns {string} one character per byte (the decoder named latin1 is windows-1252 on the web)
 */
function latin1(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 8192) {
    parts.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
  }
  return parts.join("");
}
