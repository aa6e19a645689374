/**
 * Where a workflow comes in: dropped anywhere on the page, chosen, or the sample.
 */

import { byId, html } from "./elements.js";
import { WorkflowFileError, noteLine, readWorkflowFile } from "./workflow.js";

/** @typedef {import("./workflow.js").Workflow} Workflow */

/**
 * @typedef {object} DropListener
 * @property {(workflow: Workflow) => void} onWorkflow
 * @property {(problem: unknown, file: string) => void} onProblem with the name of the file, if one was dropped
 * @property {() => void} onSample
 * @property {() => void} onAgain
 * @property {() => void} onReseed
 */

export class DropView {
  /** @param {DropListener} listener */
  constructor(listener) {
    this.listener = listener;
    this.zone = byId("drop");
    this.input = /** @type {HTMLInputElement} */ (byId("file"));
    byId("choose").addEventListener("click", () => this.input.click());
    byId("sample").addEventListener("click", () => listener.onSample());
    byId("again").addEventListener("click", () => listener.onAgain());
    byId("reseed").addEventListener("click", () => listener.onReseed());
    this.input.addEventListener("change", () => this.#choose());
    this.#acceptDrops();
  }

  /** @param {Workflow} workflow what "Run again" would run */
  showOpened(workflow) {
    const count = Object.keys(workflow.prompt).length;
    byId("opened").hidden = false;
    byId("opened-name").textContent = workflow.name;
    byId("opened-size").textContent = count === 1 ? "1 node" : `${count} nodes`;
    const lines = (workflow.notes ?? []).map((note) => html("li", {}, noteLine(note)));
    byId("opened-notes").hidden = lines.length === 0;
    byId("opened-notes-count").textContent = lines.length === 1 ? "1 note" : `${lines.length} notes`;
    byId("opened-notes-list").replaceChildren(...lines);
  }

  #choose() {
    const [file] = this.input.files ?? [];
    if (file !== undefined) this.#read([file]);
    this.input.value = ""; // so that the same file can be chosen again after a change
  }

  /** The whole page takes drops: a file that misses the box must not make the browser leave. */
  #acceptDrops() {
    const mark = (isOver) => this.zone.classList.toggle("over", isOver);
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      mark(true);
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) mark(false);
    });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      mark(false);
      this.#read([...event.dataTransfer.files]);
    });
  }

  /** @param {File[]} files */
  async #read(files) {
    try {
      if (files.length !== 1) {
        throw new WorkflowFileError(
          files.length === 0 ? "What was dropped is not a file." : "Drop one file at a time.",
        );
      }
      this.listener.onWorkflow(await readWorkflowFile(files[0]));
    } catch (problem) {
      this.listener.onProblem(problem, files.length === 1 ? files[0].name : "");
    }
  }
}
