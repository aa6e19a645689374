/**
 * Why the server refused a workflow: every node and field that it names, or one plain sentence.
 */

import { ApiError } from "./api.js";
import { html } from "./elements.js";

export class ProblemsView {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
  }

  clear() {
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  /**
   * @param {unknown} problem anything that was thrown
   * @param {Map<string, string>} names what people call each node
   * @param {string} file the file that could not be opened, if it is about one
   */
  show(problem, names, file = "") {
    const message = problem instanceof Error ? problem.message : String(problem);
    const summary = file === "" ? message : `${file}: ${message}`;
    const parts = [html("p", { class: "problem-summary" }, summary)];
    const body = problem instanceof ApiError ? /** @type {any} */ (problem.body) : null;
    const nodes = Object.entries(body?.node_errors ?? {});
    if (nodes.length > 0) parts.push(list(nodes, names));
    else if (body?.error?.details && body.error.details !== message) {
      parts.push(html("p", {}, String(body.error.details)));
    }
    this.#fill(parts);
  }

  /**
   * A workflow that was accepted although some of its outputs were not.
   *
   * @param {Record<string, any>} nodeErrors
   * @param {Map<string, string>} names
   */
  showPartly(nodeErrors, names) {
    const summary = "Some outputs were refused; the others run.";
    this.#fill([
      html("p", { class: "problem-summary" }, summary),
      list(Object.entries(nodeErrors), names),
    ]);
  }

  /** @param {HTMLElement[]} parts */
  #fill(parts) {
    this.place.replaceChildren(...parts);
    this.place.hidden = false;
    this.place.scrollIntoView({ block: "nearest" });
  }
}

/**
 * @param {[string, any][]} nodes
 * @param {Map<string, string>} names
 * @returns {HTMLElement}
 */
function list(nodes, names) {
  const items = nodes.map(([id, node]) => {
    const classType = String(node.class_type ?? "");
    const name = names.get(id) ?? classType;
    const known = name === classType ? name : `${name} (${classType})`;
    return html(
      "li",
      { "data-problem-node": id },
      html("strong", {}, `${known} #${id}`),
      html("ul", {}, ...(node.errors ?? []).map(errorItem)),
    );
  });
  return html("ul", { class: "problem-list" }, ...items);
}

/**
 * @param {any} error one of ComfyUI's error entries
 * @returns {HTMLElement}
 */
function errorItem(error) {
  const field = error.extra_info?.input_name;
  // The field is shown before the reason; ComfyUI repeats it in some details.
  const details = String(error.details ?? "").replace(`${field}: `, "");
  const reason = details && details !== field ? `${error.message}: ${details}` : String(error.message);
  if (field === undefined) return html("li", {}, reason);
  return html("li", { "data-problem-field": field }, html("code", {}, String(field)), " ", reason);
}
