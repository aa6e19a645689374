/**
 * Where the boxes and lines of a folded graph go: layers side by side, or one below the other on a
 * narrow page. Pure arithmetic in pixels.
 *
 * Source of the order inside layers: Sugiyama, Tagawa, Toda 1981 (the barycenter sweep).
 */

export const BOX_WIDTH = 174;
const GAP_ALONG = 32; // between layers
const GAP_ACROSS = 14; // between boxes of one layer
const MARGIN = 6;
const MOST_BESIDE = 2; // boxes beside each other on a narrow page

const HEAD_HEIGHT = 76; // the four lines of text
const STRIP_PADDING = 10;
const STRIP_WIDTH = BOX_WIDTH - 2 * STRIP_PADDING;
const CELL_GAP = 2;
const CELL_HEIGHT = 11;
const LEAST_CELL = 5;
const MOST_CELL = 24;

/**
 * @typedef {object} Rect
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 */

/**
 * @typedef {object} Layout
 * @property {number} width
 * @property {number} height
 * @property {Map<string, Rect>} boxes by group key
 * @property {{source: string, target: string, isDeferred: boolean, path: string}[]} lines
 */

/**
 * The cells of a group's strip, relative to its box: as wide as fits one row, wrapped when small.
 *
 * @param {number} count
 * @returns {Rect[]}
 */
export function cellsOf(count) {
  if (count === 0) return [];
  const oneRow = (STRIP_WIDTH - (count - 1) * CELL_GAP) / count;
  const width = count === 1 ? STRIP_WIDTH : Math.min(MOST_CELL, Math.max(LEAST_CELL, oneRow));
  const perRow = Math.max(1, Math.floor((STRIP_WIDTH + CELL_GAP) / (width + CELL_GAP) + 1e-9));
  return Array.from({ length: count }, (_, index) => ({
    x: STRIP_PADDING + (index % perRow) * (width + CELL_GAP),
    y: HEAD_HEIGHT + Math.floor(index / perRow) * (CELL_HEIGHT + CELL_GAP),
    width,
    height: CELL_HEIGHT,
  }));
}

/**
 * @param {number} numNodes
 * @returns {number}
 */
export function boxHeight(numNodes) {
  const cells = cellsOf(numNodes);
  const last = cells[cells.length - 1];
  return (last === undefined ? HEAD_HEIGHT : last.y + last.height) + STRIP_PADDING;
}

/**
 * @param {import("./graph_model.js").Group[]} groups
 * @param {import("./graph_model.js").Link[]} links
 * @param {boolean} isVertical layers from top to bottom
 * @returns {Layout}
 */
export function layOut(groups, links, isVertical) {
  const layers = orderLayers(groups, links).flatMap((keys) => (isVertical ? rowsOf(keys) : [keys]));
  const sizes = new Map(groups.map((group) => [group.key, sizeOf(group)]));
  const along = isVertical ? "height" : "width";
  const across = isVertical ? "width" : "height";
  const spans = layers.map((keys) => spanOf(keys.map((key) => sizes.get(key)[across])));
  const widest = Math.max(0, ...spans);
  const boxes = new Map();
  let at = MARGIN;
  layers.forEach((keys, index) => {
    let beside = MARGIN + (widest - spans[index]) / 2;
    for (const key of keys) {
      const size = sizes.get(key);
      const [x, y] = isVertical ? [beside, at] : [at, beside];
      boxes.set(key, { x, y, ...size });
      beside += size[across] + GAP_ACROSS;
    }
    at += Math.max(...keys.map((key) => sizes.get(key)[along])) + GAP_ALONG;
  });
  const length = Math.max(0, at - GAP_ALONG) + MARGIN;
  const breadth = widest + 2 * MARGIN;
  const lines = links.map((link) => ({ ...link, path: pathOf(boxes, link, isVertical) }));
  return isVertical
    ? { width: breadth, height: length, boxes, lines }
    : { width: length, height: breadth, boxes, lines };
}

/**
 * @param {string[]} keys of one layer
 * @returns {string[][]} as rows that fit a narrow page
 */
function rowsOf(keys) {
  const count = Math.ceil(keys.length / MOST_BESIDE);
  return Array.from({ length: count }, (_, row) =>
    keys.slice(row * MOST_BESIDE, (row + 1) * MOST_BESIDE),
  );
}

/**
 * @param {import("./graph_model.js").Group} group
 * @returns {{width: number, height: number}}
 */
function sizeOf(group) {
  return { width: BOX_WIDTH, height: boxHeight(group.nodes.length) };
}

/**
 * @param {number[]} sizes
 * @returns {number}
 */
function spanOf(sizes) {
  return sizes.reduce((sum, size) => sum + size + GAP_ACROSS, -GAP_ACROSS);
}

/**
 * Keys by layer; inside a layer sorted by the mean place of what feeds each group.
 *
 * @param {import("./graph_model.js").Group[]} groups
 * @param {import("./graph_model.js").Link[]} links
 * @returns {string[][]}
 */
function orderLayers(groups, links) {
  /** @type {string[][]} */
  const layers = [];
  for (const group of groups) (layers[group.layer] ??= []).push(group.key);
  const feeders = new Map(groups.map((group) => [group.key, []]));
  for (const link of links) feeders.get(link.target).push(link.source);
  const place = new Map();
  const filled = Array.from(layers, (keys) => keys ?? []).filter((keys) => keys.length > 0);
  for (const keys of filled) {
    const centre = new Map(
      keys.map((key, index) => {
        const places = feeders.get(key).map((source) => place.get(source) ?? 0.5);
        const sum = places.reduce((total, value) => total + value, 0);
        return [key, places.length ? sum / places.length : (index + 0.5) / keys.length];
      }),
    );
    keys.sort((a, b) => centre.get(a) - centre.get(b));
    keys.forEach((key, index) => place.set(key, (index + 0.5) / keys.length));
  }
  return filled;
}

/**
 * @param {Map<string, Rect>} boxes
 * @param {import("./graph_model.js").Link} link
 * @param {boolean} isVertical
 * @returns {string} an SVG path from the end of one box to the start of the other
 */
function pathOf(boxes, link, isVertical) {
  const from = boxes.get(link.source);
  const to = boxes.get(link.target);
  const round = (value) => Math.round(value * 10) / 10;
  if (isVertical) {
    const [x1, y1] = [round(from.x + from.width / 2), round(from.y + from.height)];
    const [x2, y2] = [round(to.x + to.width / 2), round(to.y)];
    const middle = round((y1 + y2) / 2);
    return `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
  }
  const [x1, y1] = [round(from.x + from.width), round(from.y + from.height / 2)];
  const [x2, y2] = [round(to.x), round(to.y + to.height / 2)];
  const middle = round((x1 + x2) / 2);
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}
