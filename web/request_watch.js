/**
 * The request that is looked at: joins what the websocket tells with what the server answers, and
 * keeps the graph and the progress up to date until the request has ended.
 */

import * as api from "./api.js";
import { secondsOf } from "./queue_view.js";
import { nodeNames } from "./workflow.js";

/** @typedef {import("./queue_view.js").RequestRow} RequestRow */

const KEPT_GRAPHS = 20;
const ORDER = ["waiting", "ready", "running", "done"];

export class RequestWatch {
  /**
   * @param {import("./graph_view.js").GraphView} graphView
   * @param {import("./progress_view.js").ProgressView} progressView
   */
  constructor(graphView, progressView) {
    this.graphView = graphView;
    this.progressView = progressView;
    /** @type {string | null} */
    this.id = null;
    this.isOver = true;
    this.names = new Map();
    /** Graphs by request: the server drops a request's graph when it ends. */
    this.kept = new Map();
    /** Changes told while the graph is being read, or null when nothing is being read. */
    this.missed = null;
  }

  /**
   * Look at another request.
   * @param {RequestRow} row
   */
  async look(row) {
    this.id = row.id;
    this.isOver = false;
    this.names = nodeNames(row.prompt);
    this.progressView.begin(row.title, row.state === "waiting" ? "waiting in the queue" : "");
    const kept = this.kept.get(row.id);
    if (kept === undefined) this.graphView.clear("Reading the graph …");
    else this.graphView.show(kept, this.names);
    await this.reread();
  }

  /** Ask the server how the request stands; after a reconnect, or when nobody tells us. */
  async reread() {
    const id = this.id;
    if (id === null || this.isOver) return;
    let entry = await api.historyEntry(id);
    if (entry === null && id === this.id) {
      // A request that ends between the two answers has no graph any more, but a history entry.
      if (!(await this.#readGraph(id))) entry = await api.historyEntry(id);
    }
    if (entry !== null && id === this.id && !this.isOver) this.#end(entry);
  }

  /**
   * @param {string} id
   * @returns {Promise<boolean>} whether the server has a graph of it
   */
  async #readGraph(id) {
    this.missed ??= [];
    const answer = await api.graph(id);
    if (id !== this.id) return true; // another request is looked at by now
    if (answer !== null) {
      this.#keep(id, answer);
      this.graphView.show(answer, this.names);
      for (const change of this.missed ?? []) this.#applyMissed(answer, change);
      this.progressView.setDone(this.graphView.done);
    }
    this.missed = null;
    return answer !== null;
  }

  /**
   * A change told while the answer was under way may be older than the answer: only forward ones count.
   *
   * @param {import("./graph_model.js").GraphAnswer} answer
   * @param {{node: string, state: string, executor: string | null}} change
   */
  #applyMissed(answer, change) {
    const known = answer.nodes.find((node) => node.id === change.node);
    if (known === undefined || ORDER.indexOf(change.state) <= ORDER.indexOf(known.state)) return;
    this.graphView.update(change.node, change.state, change.executor);
  }

  /**
   * @param {string} id
   * @param {import("./graph_model.js").GraphAnswer} answer
   */
  #keep(id, answer) {
    this.kept.delete(id);
    this.kept.set(id, answer);
    if (this.kept.size > KEPT_GRAPHS) this.kept.delete(this.kept.keys().next().value);
  }

  /**
   * @param {string} type
   * @param {any} data a websocket message's
   */
  async hear(type, data) {
    if (data.prompt_id !== this.id || this.isOver) return;
    switch (type) {
      case "nodeloom_node":
        await this.#nodeChanged(data);
        break;
      case "executing":
        if (data.node === null) await this.reread();
        else this.progressView.say(this.#nameOf(data.display_node ?? data.node));
        break;
      case "progress":
        this.progressView.say(`${this.#nameOf(data.node)}: step ${data.value} of ${data.max}`);
        break;
      case "executed":
        this.progressView.addPictures(pictures({ [data.node]: data.output }));
        break;
    }
  }

  /** @param {import("./frames.js").PreviewFrame} frame */
  hearPreview(frame) {
    if (frame.promptId === this.id && !this.isOver) this.progressView.showPreview(frame.image);
  }

  /** @param {{node: string, state: any, executor: string | null}} change */
  async #nodeChanged(change) {
    if (this.missed !== null) {
      this.missed.push(change);
      return;
    }
    if (this.graphView.update(change.node, change.state, change.executor)) {
      this.progressView.setDone(this.graphView.done);
    } else {
      await this.#readGraph(this.id); // the graph has grown
    }
  }

  /** The request has left the queue: it ended, or it was taken out while it waited. */
  async settle() {
    const id = this.id;
    if (id === null || this.isOver) return;
    const entry = await api.historyEntry(id);
    if (id !== this.id || this.isOver) return;
    if (entry !== null) this.#end(entry);
    else this.#stop("Taken out of the queue.");
  }

  /** @param {string} line */
  #stop(line) {
    this.isOver = true;
    this.progressView.stop(line);
  }

  /** @param {any} entry of the history */
  #end(entry) {
    this.isOver = true;
    if (!this.kept.has(this.id)) {
      this.graphView.clear("The server keeps a graph only while its request is in the queue.");
    }
    const told = new Map(entry.status?.messages ?? []);
    this.progressView.addPictures(pictures(entry.outputs ?? {}));
    if (entry.status?.completed) {
      this.graphView.finish();
      const seconds = secondsOf(entry);
      this.progressView.succeed(seconds === null ? "Done." : `Done in ${seconds.toFixed(1)} s.`);
    } else if (told.has("execution_interrupted")) {
      this.#stop("Cancelled.");
    } else {
      this.progressView.fail(told.get("execution_error") ?? {}, this.names);
    }
  }

  /**
   * @param {string} id
   * @returns {string}
   */
  #nameOf(id) {
    return `${this.names.get(id) ?? "node"} #${id}`;
  }
}

/**
 * @param {Record<string, any>} outputs ui of each node
 * @returns {api.PictureFile[]}
 */
function pictures(outputs) {
  return Object.values(outputs)
    .flatMap((ui) => (Array.isArray(ui?.images) ? ui.images : []))
    .filter((image) => typeof image?.filename === "string");
}
