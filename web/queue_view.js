/**
 * All requests of the server: running, waiting in their order, and the latest that ended.
 */

import { html } from "./elements.js";

/**
 * @typedef {object} RequestRow
 * @property {string} id
 * @property {string} title
 * @property {any} prompt
 * @property {boolean} isOurs whether its messages come to this page's socket
 * @property {"running" | "waiting" | "done" | "failed" | "stopped"} state
 * @property {number | null} [seconds] how long it ran, once it has ended
 */

/**
 * @param {any[]} item ComfyUI's queue item: number, id, prompt, extra_data, outputs
 * @param {RequestRow["state"]} state
 * @param {string} clientId this page's
 * @returns {RequestRow}
 */
export function rowOf(item, state, clientId) {
  const [, id, prompt, extra] = item;
  const title = extra?.nodeloom_title ?? `Request ${String(id).slice(0, 8)}`;
  const isOurs = extra?.client_id === clientId;
  return { id: String(id), title: String(title), prompt, isOurs, state };
}

/**
 * @param {any} entry of the history
 * @param {string} clientId this page's
 * @returns {RequestRow}
 */
export function rowOfEntry(entry, clientId) {
  const names = (entry.status?.messages ?? []).map((message) => message[0]);
  const wasStopped = names.includes("execution_interrupted");
  const state = entry.status?.completed ? "done" : wasStopped ? "stopped" : "failed";
  return { ...rowOf(entry.prompt, state, clientId), seconds: secondsOf(entry) };
}

/**
 * @param {any} entry of the history
 * @returns {number | null} from its start to its end; null if it never started
 */
export function secondsOf(entry) {
  const times = (entry.status?.messages ?? []).map((message) => message[1]?.timestamp);
  const known = times.filter((time) => typeof time === "number");
  return known.length < 2 ? null : (known[known.length - 1] - known[0]) / 1000;
}

/**
 * @param {{queue_running: any[][], queue_pending: any[][]}} queue the waiting ones come as a heap
 * @param {string} clientId this page's
 * @returns {{running: RequestRow[], waiting: RequestRow[]}} in the order in which they are served
 */
export function rowsOfQueue(queue, clientId) {
  const byOrder = (a, b) => a[0] - b[0] || (String(a[1]) < String(b[1]) ? -1 : 1);
  const rows = (items, state) => [...items].sort(byOrder).map((item) => rowOf(item, state, clientId));
  return {
    running: rows(queue.queue_running, "running"),
    waiting: rows(queue.queue_pending, "waiting"),
  };
}

export class QueueView {
  /**
   * @param {HTMLElement} place
   * @param {{onSelect: (row: RequestRow) => void, onCancel: (row: RequestRow) => void}} listener
   */
  constructor(place, listener) {
    this.place = place;
    this.listener = listener;
  }

  /**
   * @param {{running: RequestRow[], waiting: RequestRow[], ended: RequestRow[]}} rows
   * @param {string | null} selected the request looked at
   */
  show(rows, selected) {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.focusKey;
    const parts = [
      this.#part("Running", rows.running, selected),
      this.#part("Waiting", rows.waiting, selected),
      this.#part("Ended", rows.ended, selected),
    ].flat();
    this.place.replaceChildren(
      ...(parts.length ? parts : [html("p", { class: "quiet" }, "No request yet.")]),
    );
    if (focused === undefined) return;
    const again = [...this.place.querySelectorAll("button")];
    again.find((button) => button.dataset.focusKey === focused)?.focus();
  }

  /**
   * @param {string} heading
   * @param {RequestRow[]} rows
   * @param {string | null} selected
   * @returns {HTMLElement[]}
   */
  #part(heading, rows, selected) {
    if (rows.length === 0) return [];
    return [
      html("h3", {}, `${heading} (${rows.length})`),
      html("ul", { class: "queue" }, ...rows.map((row) => this.#row(row, row.id === selected))),
    ];
  }

  /**
   * @param {RequestRow} row
   * @param {boolean} isSelected
   */
  #row(row, isSelected) {
    const select = html(
      "button",
      {
        type: "button",
        class: "request",
        title: row.id,
        "aria-pressed": String(isSelected),
        "data-focus-key": `select ${row.id}`,
        onclick: () => this.listener.onSelect(row),
      },
      html("span", { class: "name" }, row.title),
      html("span", { class: "badge", "data-state": row.state }, badge(row)),
    );
    const item = html("li", { "data-request": row.id, "data-state": row.state }, select);
    if (row.state === "running" || row.state === "waiting") {
      item.append(
        html(
          "button",
          {
            type: "button",
            class: "danger small",
            "aria-label": `Cancel ${row.title}`,
            "data-focus-key": `cancel ${row.id}`,
            onclick: () => this.listener.onCancel(row),
          },
          "Cancel",
        ),
      );
    }
    return item;
  }
}

/**
 * @param {RequestRow} row
 * @returns {string}
 */
function badge(row) {
  return typeof row.seconds === "number" ? `${row.state} · ${row.seconds.toFixed(1)} s` : row.state;
}
