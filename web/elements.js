/**
 * Making DOM elements. Text only ever goes in as text nodes, so nothing a user or a workflow says
 * can become markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Record<string, string | number | boolean | null | ((event: any) => void)>} Properties
 */

/**
 * @param {string} tag
 * @param {Properties} [properties] attributes; `onclick` and the like are listeners; null is left out
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function html(tag, properties = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), properties, children));
}

/**
 * @param {string} tag
 * @param {Properties} [properties]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, properties = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, tag), properties, children));
}

/**
 * @param {Element} element
 * @param {Properties} properties
 * @param {(Node | string)[]} children
 * @returns {Element}
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/**
 * @template {HTMLElement} T
 * @param {string} id of an element of index.html
 * @returns {T}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no element #${id}`);
  return /** @type {T} */ (found);
}
