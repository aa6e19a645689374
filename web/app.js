/**
 * The page: joins the views, the socket and the server's routes. Nothing is drawn in this file.
 */

import * as api from "./api.js";
import { DropView } from "./drop_view.js";
import { byId, html } from "./elements.js";
import { ExecutorColours, ExecutorsView } from "./executors_view.js";
import { GraphView } from "./graph_view.js";
import { ProblemsView } from "./problems_view.js";
import { ProgressView } from "./progress_view.js";
import { QueueView, rowOfEntry, rowsOfQueue } from "./queue_view.js";
import { RequestWatch } from "./request_watch.js";
import { Socket, takeClientId } from "./socket.js";
import { nodeNames, withNewSeeds } from "./workflow.js";

/** @typedef {import("./workflow.js").Workflow} Workflow */
/** @typedef {import("./queue_view.js").RequestRow} RequestRow */

const ENDED_SHOWN = 6;
const LOOK_EVERY_MS = 2000;
const CONNECTION_WORDS = {
  connecting: "connecting",
  open: "connected",
  lost: "connection lost, trying again",
};

class App {
  constructor() {
    const colours = new ExecutorColours();
    this.clientId = takeClientId();
    this.executorsView = new ExecutorsView(byId("executors"), colours);
    this.problemsView = new ProblemsView(byId("problems"));
    this.progressView = new ProgressView(() => this.#cancelWatched());
    this.graphView = new GraphView(
      { canvas: byId("graph"), note: byId("graph-note"), detail: byId("graph-detail") },
      colours,
    );
    this.watch = new RequestWatch(this.graphView, this.progressView);
    this.queueView = new QueueView(byId("queue"), {
      onSelect: (row) => this.#attempt(() => this.#look(row)),
      onCancel: (row) => this.#attempt(() => this.#cancel(row)),
    });
    this.dropView = new DropView({
      onWorkflow: (workflow) => this.#run(workflow),
      onProblem: (problem, file) => this.problemsView.show(problem, new Map(), file),
      onSample: () => this.#runSample(),
      onAgain: () => this.#run(this.workflow),
      onReseed: () => this.#run({ ...this.workflow, prompt: withNewSeeds(this.workflow.prompt) }),
    });
    this.socket = new Socket(this.clientId, {
      onMessage: (type, data) => this.#hear(type, data),
      onPreview: (frame) => this.watch.hearPreview(frame),
      onState: (state) => this.#connectionChanged(state),
    });
    /** @type {Workflow | null} */
    this.workflow = null;
    this.connection = "connecting";
    /** @type {{running: RequestRow[], waiting: RequestRow[], ended: RequestRow[]}} */
    this.rows = { running: [], waiting: [], ended: [] };
    this.reading = false;
    this.mustReadAgain = false;
  }

  /** Connect, and look at the executors again and again while somebody looks at the page. */
  start() {
    drawLegend();
    this.socket.connect();
    setInterval(() => document.hidden || this.#tick(), LOOK_EVERY_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.#tick());
  }

  /** @param {"connecting" | "open" | "lost"} state */
  #connectionChanged(state) {
    this.connection = state;
    byId("connection").dataset.state = state;
    byId("connection").textContent = CONNECTION_WORDS[state];
    if (state !== "open") return;
    this.#attempt(() => this.#tick());
    this.#attempt(() => this.watch.reread());
    this.#readQueue();
  }

  async #tick() {
    if (this.connection !== "open") return;
    try {
      this.executorsView.show(await api.executors());
      // Another client's request reports to its own socket, not to ours.
      if (!this.watch.isOver && !this.isWatchedOurs) await this.watch.reread();
    } catch (problem) {
      if (!(problem instanceof api.ApiError)) throw problem;
      console.info(`not read: ${problem.message}`); // the next tick asks again
    }
  }

  /**
   * @param {string} type
   * @param {any} data
   */
  #hear(type, data) {
    if (type === "status") {
      this.#readQueue();
      this.#tick();
    } else {
      this.#attempt(() => this.watch.hear(type, data));
    }
  }

  async #runSample() {
    await this.#attempt(async () => {
      await this.#run({ name: "Sample workflow", prompt: await api.sample() });
    });
  }

  /** @param {Workflow} workflow */
  async #run(workflow) {
    this.workflow = workflow;
    this.problemsView.clear();
    this.dropView.showOpened(workflow);
    const names = nodeNames(workflow.prompt);
    try {
      const answer = await api.submit(workflow, this.clientId);
      if (Object.keys(answer.node_errors ?? {}).length > 0) {
        this.problemsView.showPartly(answer.node_errors, names);
      }
      const row = { id: answer.prompt_id, title: workflow.name, prompt: workflow.prompt };
      await this.#look({ ...row, isOurs: true, state: "waiting" });
    } catch (problem) {
      this.problemsView.show(problem, names);
    }
    this.#readQueue();
  }

  /** @param {RequestRow} row */
  async #look(row) {
    this.isWatchedOurs = row.isOurs;
    this.queueView.show(this.rows, row.id);
    await this.watch.look(row);
  }

  async #cancelWatched() {
    const live = [...this.rows.running, ...this.rows.waiting];
    const row = live.find((candidate) => candidate.id === this.watch.id);
    if (row !== undefined) await this.#attempt(() => this.#cancel(row));
  }

  /**
   * A waiting request may have started a moment ago, so that one is interrupted too; the server
   * ignores whichever of the two does not apply.
   *
   * @param {RequestRow} row
   */
  async #cancel(row) {
    if (row.state === "waiting") await api.removeWaiting(row.id);
    await api.interrupt(row.id);
    this.#readQueue();
  }

  /** Read the queue; a call while one is under way makes it read once more afterwards. */
  async #readQueue() {
    this.mustReadAgain = true;
    if (this.reading) return;
    this.reading = true;
    try {
      while (this.mustReadAgain) {
        this.mustReadAgain = false;
        await this.#attempt(() => this.#readQueueOnce());
      }
    } finally {
      this.reading = false;
    }
  }

  async #readQueueOnce() {
    const watched = this.watch.id;
    // In this order a request that ends between the two answers is in both, never in neither.
    const { running, waiting } = rowsOfQueue(await api.queue(), this.clientId);
    const entries = Object.values(await api.history(ENDED_SHOWN));
    const ended = entries.map((entry) => rowOfEntry(entry, this.clientId)).reverse();
    this.rows = { running, waiting, ended };
    this.queueView.show(this.rows, this.watch.id);
    if (this.watch.id === null && running.length > 0) {
      await this.#look(running[0]);
      return;
    }
    const isLive = [...running, ...waiting].some((row) => row.id === watched);
    // A request that is looked at only since then may be younger than the answer.
    if (!isLive && this.watch.id === watched) await this.watch.settle();
  }

  /**
   * Do something that asks the server; a failure is told where workflows are opened.
   * @param {() => Promise<void>} work
   */
  async #attempt(work) {
    try {
      await work();
    } catch (problem) {
      if (problem instanceof api.ApiError && problem.status === 0 && this.connection !== "open") {
        return; // the header says already that the connection is lost
      }
      this.problemsView.show(problem, new Map());
      if (!(problem instanceof api.ApiError)) throw problem;
    }
  }
}

/** The colours of states; those of executors are in their strip. */
function drawLegend() {
  const states = ["waiting", "ready", "running", "done"];
  byId("legend").replaceChildren(
    ...states.map((state) =>
      html("li", {}, html("span", { class: "swatch", "data-state": state }), state),
    ),
  );
}

new App().start();
