/**
 * The server's HTTP routes, as functions. Addresses are relative, so the page works below any path.
 */

/** An answer that is no success, or no answer at all (status 0). */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {unknown} body parsed JSON, or text
   */
  constructor(message, status, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/**
 * @typedef {object} PictureFile
 * @property {string} filename
 * @property {string} subfolder
 * @property {string} type output, temp or input
 */

/**
 * @param {string} path
 * @param {unknown} [body] sent as JSON with POST; without one it is a GET
 * @returns {Promise<any>} the parsed answer; null if it has no body
 * @throws {ApiError}
 */
async function ask(path, body) {
  const options =
    body === undefined
      ? { cache: /** @type {RequestCache} */ ("no-store") }
      : posted("application/json", JSON.stringify(body));
  return send(path, options);
}

/**
 * @param {string} type
 * @param {BodyInit} body
 * @returns {RequestInit}
 */
function posted(type, body) {
  return { method: "POST", headers: { "Content-Type": type }, body };
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @returns {Promise<any>} the parsed answer; null if it has no body
 * @throws {ApiError}
 */
async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (problem) {
    throw new ApiError("The server can't be reached.", 0, String(problem));
  }
  const text = await response.text();
  let answer = null;
  if (text) {
    try {
      answer = JSON.parse(text);
    } catch {
      answer = text;
    }
  }
  if (!response.ok) throw new ApiError(messageOf(answer, response), response.status, answer);
  return answer;
}

/**
 * @param {any} answer
 * @param {Response} response
 * @returns {string}
 */
function messageOf(answer, response) {
  if (typeof answer?.error?.message === "string") return answer.error.message;
  if (typeof answer?.error === "string") return answer.error;
  if (typeof answer === "string" && answer.length < 300) return answer;
  return `The server answered ${response.status} ${response.statusText}.`;
}

/**
 * @param {import("./workflow.js").Workflow} workflow its name is shown in queues
 * @param {string} clientId
 * @returns {Promise<{prompt_id: string, number: number, node_errors: Record<string, any>}>}
 */
export function submit(workflow, clientId) {
  const extra = {
    nodeloom_title: workflow.name,
    preview_method: "auto",
    ...(workflow.graph ? { extra_pnginfo: { workflow: workflow.graph } } : {}),
  };
  return ask("prompt", { prompt: workflow.prompt, client_id: clientId, extra_data: extra });
}

/**
 * @param {File} file JSON in either format, or a picture that carries a workflow
 * @returns {Promise<{prompt: import("./workflow.js").Prompt, workflow: object | null, notes: import("./workflow.js").Note[]}>}
 */
export function convert(file) {
  return send("nodeloom/convert", posted("application/octet-stream", file));
}

/** @returns {Promise<{queue_running: any[][], queue_pending: any[][]}>} */
export function queue() {
  return ask("queue");
}

/**
 * @param {number} maxItems
 * @returns {Promise<Record<string, any>>} the latest entries, oldest first
 */
export function history(maxItems) {
  return ask(`history?max_items=${maxItems}`);
}

/**
 * @param {string} promptId
 * @returns {Promise<any | null>} null while the request is not finished, or unknown
 */
export async function historyEntry(promptId) {
  const found = await ask(`history/${encodeURIComponent(promptId)}`);
  return found[promptId] ?? null;
}

/**
 * @param {string} promptId
 * @returns {Promise<import("./graph_model.js").GraphAnswer | null>} null if the server keeps none
 */
export async function graph(promptId) {
  try {
    return await ask(`nodeloom/requests/${encodeURIComponent(promptId)}/graph`);
  } catch (problem) {
    if (problem instanceof ApiError && problem.status === 404) return null;
    throw problem;
  }
}

/** @returns {Promise<any[]>} */
export async function executors() {
  return await ask("nodeloom/executors");
}

/** @returns {Promise<import("./workflow.js").Prompt>} */
export function sample() {
  return ask("sample.json");
}

/**
 * Stop a running request.
 * @param {string} promptId
 */
export function interrupt(promptId) {
  return ask("interrupt", { prompt_id: promptId });
}

/**
 * Take a waiting request out of the queue.
 * @param {string} promptId
 */
export function removeWaiting(promptId) {
  return ask("queue", { delete: [promptId] });
}

/**
 * @param {PictureFile} picture
 * @returns {string}
 */
export function pictureAddress(picture) {
  const query = new URLSearchParams({
    filename: picture.filename,
    subfolder: picture.subfolder ?? "",
    type: picture.type ?? "output",
  });
  return `view?${query}`;
}
