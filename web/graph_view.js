/**
 * The lowered graph as SVG: one box per ComfyUI node, in it one cell per DAG node, coloured by state
 * and by the executor that has it. A chosen box lists its nodes below the picture.
 */

import { html, svg } from "./elements.js";
import { cellsOf, layOut } from "./graph_layout.js";
import { foldGraph, groupModel, groupState, groupStatus, groupWork } from "./graph_model.js";

/** @typedef {import("./graph_model.js").Group} Group */

const NARROW_PX = 640;
const LEAST_SCALE = 0.7; // below this the text can't be read: scroll instead
const TITLE_CHARS = 17;
const LINE_CHARS = 24;

export class GraphView {
  /**
   * @param {{canvas: HTMLElement, note: HTMLElement, detail: HTMLElement}} places
   * @param {import("./executors_view.js").ExecutorColours} colours
   */
  constructor(places, colours) {
    this.places = places;
    this.colours = colours;
    this.clear("The nodes of a workflow appear here when it runs.");
    this.isVertical = this.#isNarrow();
    new ResizeObserver(() => this.#turn()).observe(places.canvas);
  }

  /** @param {string} message shown in place of a graph */
  clear(message) {
    this.answer = null;
    /** @type {Group[]} */
    this.groups = [];
    this.names = new Map();
    this.chosen = null;
    this.boxes = new Map();
    this.cells = new Map();
    this.places.canvas.replaceChildren(html("p", { class: "quiet empty" }, message));
    this.places.note.textContent = "";
    this.places.detail.replaceChildren();
  }

  /**
   * @param {import("./graph_model.js").GraphAnswer} answer
   * @param {Map<string, string>} names what people call each ComfyUI node
   */
  show(answer, names) {
    this.answer = answer;
    this.names = names;
    const { groups, links } = foldGraph(answer);
    this.groups = groups;
    this.links = links;
    this.#draw();
    this.#tellSettled();
    this.#showDetail();
  }

  /** The request succeeded, so every node is done, whatever was told and got lost on the way. */
  finish() {
    for (const { node } of [...this.cells.values()]) {
      if (node.state !== "done") this.update(node.id, "done", node.executor);
    }
  }

  /** How many DAG nodes are done, of how many. */
  get done() {
    const nodes = this.answer?.nodes ?? [];
    return { value: nodes.filter((node) => node.state === "done").length, max: nodes.length };
  }

  /**
   * @param {string} nodeId a DAG node
   * @param {import("./graph_model.js").GraphNode["state"]} state
   * @param {string | null} executor
   * @returns {boolean} false if the graph shown has no such node (it has grown)
   */
  update(nodeId, state, executor) {
    const found = this.cells.get(nodeId);
    if (found === undefined) return false;
    found.node.state = state;
    found.node.executor = executor ?? found.node.executor;
    this.#paintCell(found.cell, found.node);
    this.#paintBox(found.group);
    if (this.chosen === found.group.key) this.#showDetail();
    return true;
  }

  #isNarrow() {
    return this.places.canvas.clientWidth > 0 && this.places.canvas.clientWidth < NARROW_PX;
  }

  #turn() {
    if (this.#isNarrow() === this.isVertical) return;
    this.isVertical = !this.isVertical;
    if (this.answer !== null) this.#draw();
  }

  #draw() {
    this.boxes.clear();
    this.cells.clear();
    const focused = document.activeElement?.getAttribute("data-group") ?? null;
    const layout = layOut(this.groups, this.links, this.isVertical);
    const lines = layout.lines.map((line) =>
      svg("path", {
        d: line.path,
        class: line.isDeferred ? "line deferred" : "line",
        "data-source": line.source,
        "data-target": line.target,
      }),
    );
    const boxes = this.groups.map((group) => this.#box(group, layout.boxes.get(group.key)));
    const picture = svg(
      "svg",
      {
        viewBox: `0 0 ${layout.width} ${layout.height}`,
        width: layout.width,
        height: layout.height,
        role: "group",
        "aria-label": "Graph of this request",
      },
      ...lines,
      ...boxes,
    );
    picture.style.minWidth = `${Math.round(layout.width * LEAST_SCALE)}px`;
    this.places.canvas.replaceChildren(picture);
    for (const group of this.groups) this.#paintBox(group);
    if (focused !== null) this.boxes.get(focused)?.box.focus();
  }

  /**
   * @param {Group} group
   * @param {import("./graph_layout.js").Rect} at
   */
  #box(group, at) {
    const name = this.names.get(group.key) ?? group.classType;
    const model = groupModel(group);
    const status = svg("text", { class: "box-status", x: 10, y: 66 });
    const choose = () => this.#choose(group.key);
    const box = svg(
      "g",
      {
        class: "box",
        "data-group": group.key,
        transform: `translate(${at.x} ${at.y})`,
        tabindex: 0,
        role: "button",
        onclick: choose,
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          choose();
        },
      },
      svg("title", {}, `${name} (${group.classType}, node ${group.key})${model && `\n${model}`}`),
      svg("rect", { class: "box-body", width: at.width, height: at.height, rx: 8 }),
      svg("text", { class: "box-title", x: 10, y: 19 }, shorten(name, TITLE_CHARS)),
      svg("text", { class: "box-id", x: at.width - 10, y: 19 }, `#${shorten(group.key, 6)}`),
      svg("text", { class: "box-work", x: 10, y: 36 }, shorten(groupWork(group), LINE_CHARS)),
      svg("text", { class: "box-model", x: 10, y: 51 }, shorten(fileStem(model) || "no weights", LINE_CHARS)),
      status,
    );
    cellsOf(group.nodes.length).forEach((place, index) => {
      const node = group.nodes[index];
      const cell = svg("rect", { class: "cell", rx: 2, ...place, "data-node": node.id });
      cell.append(svg("title"));
      this.cells.set(node.id, { cell, node, group });
      this.#paintCell(cell, node);
      box.append(cell);
    });
    this.boxes.set(group.key, { box, status, name });
    return box;
  }

  /**
   * @param {SVGElement} cell
   * @param {import("./graph_model.js").GraphNode} node
   */
  #paintCell(cell, node) {
    cell.setAttribute("data-state", node.state);
    if (node.executor === null) {
      cell.removeAttribute("data-executor");
      cell.removeAttribute("data-executor-colour");
    } else {
      cell.setAttribute("data-executor", node.executor);
      cell.setAttribute("data-executor-colour", String(this.colours.of(node.executor)));
    }
    const where = node.executor === null ? "" : ` on ${node.executor}`;
    cell.firstChild.textContent = `${node.id}: ${node.op}, ${node.state}${where}`;
  }

  /** @param {Group} group */
  #paintBox(group) {
    const { box, status, name } = this.boxes.get(group.key);
    const state = groupState(group);
    const words = groupStatus(group);
    box.setAttribute("data-state", state);
    box.classList.toggle("chosen", this.chosen === group.key);
    box.setAttribute("aria-expanded", String(this.chosen === group.key));
    status.textContent = shorten(words, LINE_CHARS);
    box.setAttribute("aria-label", `${name}, node ${group.key}: ${groupWork(group)}, ${words}`);
  }

  /** @param {string} key */
  #choose(key) {
    const before = this.chosen;
    this.chosen = before === key ? null : key;
    for (const group of this.groups) {
      if (group.key === before || group.key === key) this.#paintBox(group);
    }
    this.#showDetail();
  }

  /** Nodes that became no work at all: loaders, constants. */
  #tellSettled() {
    const waiting = new Set(this.answer.pending);
    const settled = this.answer.members.filter(
      (member) => member.nodes.length === 0 && !waiting.has(member.node_id),
    );
    const words = settled.map((member) => {
      const name = this.names.get(member.node_id) ?? member.class_type;
      return `${name} #${member.node_id}`;
    });
    this.places.note.textContent = words.length
      ? `Settled while the graph was made, nothing to run: ${words.join(", ")}.`
      : "";
  }

  #showDetail() {
    const group = this.groups.find((candidate) => candidate.key === this.chosen);
    if (group === undefined) {
      this.places.detail.replaceChildren();
      return;
    }
    const head = ["node", "op", "model", "needs", "state", "executor"];
    const rows = group.nodes.map((node) => {
      const needs = node.inputs.map(
        (input) => `${input.name} ← ${input.source}${input.kind === "deferred" ? " (deferred)" : ""}`,
      );
      const fields = [node.id, node.op, node.model ?? "–", needs.join("; ") || "–", node.state];
      return html("tr", {}, ...[...fields, node.executor ?? "–"].map((text) => html("td", {}, text)));
    });
    this.places.detail.replaceChildren(
      html(
        "div",
        { class: "scroll" },
        html(
          "table",
          {},
          html("caption", {}, `${this.names.get(group.key) ?? group.classType} #${group.key}`),
          html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
          html("tbody", {}, ...rows),
        ),
      ),
    );
  }
}

/**
 * @param {string} model a model's label, `family/role:file.safetensors`
 * @returns {string} what tells it apart where there is little room; the op tells its role
 */
function fileStem(model) {
  return model.slice(model.indexOf(":") + 1).replace(/\.safetensors$/, "");
}

/**
 * @param {string} text
 * @param {number} most characters
 * @returns {string}
 */
function shorten(text, most) {
  const characters = [...text];
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}
