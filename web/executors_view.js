/**
 * The strip of executors, and the colour that each has everywhere on the page.
 */

import { html } from "./elements.js";

const NUM_COLOURS = 8; // --executor-0 ... in style.css

/** Which executor has which colour: in order of first appearance, for the life of the page. */
export class ExecutorColours {
  constructor() {
    /** @type {Map<string, number>} */
    this.numbers = new Map();
  }

  /**
   * @param {string} id
   * @returns {number} an index into style.css's executor colours
   */
  of(id) {
    if (!this.numbers.has(id)) this.numbers.set(id, this.numbers.size % NUM_COLOURS);
    return this.numbers.get(id);
  }
}

export class ExecutorsView {
  /**
   * @param {HTMLElement} list
   * @param {ExecutorColours} colours
   */
  constructor(list, colours) {
    this.list = list;
    this.colours = colours;
  }

  /** @param {any[]} executors as GET /nodeloom/executors tells them */
  show(executors) {
    const known = [...executors].sort((a, b) => String(a.id).localeCompare(String(b.id)));
    this.list.replaceChildren(...known.map((executor) => this.#item(executor)));
  }

  /** @param {any} executor */
  #item(executor) {
    const id = String(executor.id);
    const resident = executor.resident ?? [];
    const hint = [
      `${id}: process ${executor.pid} on ${executor.device}, ${executor.threads} thread(s)`,
      `${megabytes(executor.rss_bytes)} MB of memory, ${megabytes(executor.held_bytes)} MB of results`,
      `${executor.num_loads} load(s); resident: ${resident.join(", ") || "no model"}`,
    ].join("\n");
    return html(
      "li",
      { class: "executor", "data-state": String(executor.state), title: hint },
      html("span", { class: "swatch", "data-executor-colour": this.colours.of(id) }),
      html("span", { class: "executor-id" }, id),
      html("span", { class: "quiet" }, this.#work(executor, resident)),
    );
  }

  /**
   * @param {any} executor
   * @param {string[]} resident
   * @returns {string}
   */
  #work(executor, resident) {
    const running = executor.running;
    const op = typeof running === "string" ? running : running?.op;
    if (op) return op;
    const models = resident.length === 1 ? "1 model" : `${resident.length} models`;
    return `${executor.state}, ${models}`;
  }
}

/**
 * @param {number} bytes
 * @returns {string}
 */
function megabytes(bytes) {
  return (Number(bytes ?? 0) / 1e6).toFixed(0);
}
