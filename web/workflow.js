/**
 * Workflows as files: what a person may drop, and what is sent to the server.
 */

import { convert } from "./api.js";

/** A file that holds no workflow which can be run; its message is for people. */
export class WorkflowFileError extends Error {}

/**
 * A graph in ComfyUI's API format.
 * @typedef {Record<string, {class_type: string, inputs: Record<string, unknown>, _meta?: {title?: string}}>} Prompt
 */

/**
 * What the server made of a part of the file.
 * @typedef {{kind: string, text: string, node?: string, class_type?: string, subgraph?: string[], pack?: string}} Note
 */

/**
 * @typedef {object} Workflow
 * @property {string} name what to call it: mostly the file's name
 * @property {Prompt} prompt
 * @property {object | null} [graph] as the editor has it, for pictures to carry
 * @property {Note[]} [notes]
 */

/** Largest file that is sent at all, in bytes. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

/**
 * The workflow in a file: JSON in either of ComfyUI's formats, or a picture that carries one. The
 * server reads it.
 *
 * @param {File} file
 * @returns {Promise<Workflow>}
 * @throws {WorkflowFileError} it is empty or too large
 */
export async function readWorkflowFile(file) {
  if (file.size > MAX_FILE_BYTES) {
    throw new WorkflowFileError(
      `This file is too large: ${Math.ceil(file.size / 1024 / 1024)} MB, at most ${MAX_FILE_BYTES / 1024 / 1024} MB are read.`,
    );
  }
  if (file.size === 0) throw new WorkflowFileError("This file is empty.");
  const { prompt, workflow, notes } = await convert(file);
  return { name: file.name, prompt, graph: workflow, notes };
}

/**
 * A note as one line.
 *
 * @param {Note} note
 * @returns {string}
 */
export function noteLine(note) {
  const where = note.node ? `${note.class_type} #${note.node}` : "";
  const inside = note.subgraph?.length ? ` in ${note.subgraph.join(" > ")}` : "";
  const pack = note.pack ? ` (pack ${note.pack})` : "";
  return where ? `${where}${inside}: ${note.text}${pack}` : note.text;
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
