/**
 * Workflows as files: what a person may drop, and what is sent to the server.
 */

import { WorkflowFileError, isPng, promptInPng } from "./embedded.js";

/**
 * A graph in ComfyUI's API format.
 * @typedef {Record<string, {class_type: string, inputs: Record<string, unknown>, _meta?: {title?: string}}>} Prompt
 */

/**
 * @typedef {object} Workflow
 * @property {string} name what to call it: mostly the file's name
 * @property {Prompt} prompt
 */

/** Largest file that is read at all, in bytes. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

const EDITOR_FORMAT =
  "This is the editor's format; export it with 'Export (API)' and drop that file.";

/**
 * @param {File} file
 * @returns {Promise<Workflow>}
 * @throws {WorkflowFileError}
 */
export async function readWorkflowFile(file) {
  if (file.size > MAX_FILE_BYTES) {
    throw new WorkflowFileError(
      `This file is too large: ${Math.ceil(file.size / 1024 / 1024)} MB, at most ${MAX_FILE_BYTES / 1024 / 1024} MB are read.`,
    );
  }
  if (file.size === 0) throw new WorkflowFileError("This file is empty.");
  const bytes = new Uint8Array(await file.arrayBuffer());
  const text = isPng(bytes) ? await promptInPng(bytes) : textOf(bytes);
  return { name: file.name, prompt: parsePrompt(text) };
}

/**
 * @param {Uint8Array} bytes
 * @returns {string}
 */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new WorkflowFileError(
      "This file is neither a PNG nor text. Drop an API-format JSON file or a PNG that carries one.",
    );
  }
}

/**
 * The prompt graph in a JSON text: bare, or the body of a POST /prompt.
 *
 * @param {string} text
 * @returns {Prompt}
 * @throws {WorkflowFileError} not JSON, the editor's format, or no graph at all
 */
export function parsePrompt(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (problem) {
    throw new WorkflowFileError(`This is not valid JSON: ${problem.message}`);
  }
  if (!isObject(value)) {
    throw new WorkflowFileError("This JSON is no workflow: it must be an object of nodes.");
  }
  if (isEditorFormat(value)) throw new WorkflowFileError(EDITOR_FORMAT);
  const graph = isObject(value.prompt) && !("class_type" in value.prompt) ? value.prompt : value;
  if (isEditorFormat(graph)) throw new WorkflowFileError(EDITOR_FORMAT);
  if (!Object.values(graph).some((node) => isObject(node) && "class_type" in node)) {
    throw new WorkflowFileError(
      "This JSON is no workflow: none of its entries is a node with a class_type.",
    );
  }
  return /** @type {Prompt} */ (graph);
}

/**
 * @param {Record<string, unknown>} value
 * @returns {boolean}
 */
function isEditorFormat(value) {
  return Array.isArray(value.nodes) && ("links" in value || "last_node_id" in value);
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * A copy of the prompt in which every literal seed is a new one.
 *
 * @param {Prompt} prompt
 * @param {() => number} random a number from 0 up to 1
 * @returns {Prompt}
 */
export function withNewSeeds(prompt, random = Math.random) {
  const copy = structuredClone(prompt);
  for (const node of Object.values(copy)) {
    if (!isObject(node) || !isObject(node.inputs)) continue;
    for (const name of ["seed", "noise_seed"]) {
      if (typeof node.inputs[name] === "number") {
        node.inputs[name] = Math.floor(random() * Number.MAX_SAFE_INTEGER);
      }
    }
  }
  return copy;
}

/**
 * What people call each node: its title if it has one, else its class.
 *
 * @param {unknown} prompt as the server stored it
 * @returns {Map<string, string>} node id to name
 */
export function nodeNames(prompt) {
  const names = new Map();
  if (!isObject(prompt)) return names;
  for (const [id, node] of Object.entries(prompt)) {
    if (!isObject(node)) continue;
    const title = isObject(node._meta) ? node._meta.title : undefined;
    names.set(id, String(title || node.class_type || id));
  }
  return names;
}
