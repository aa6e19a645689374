/**
 * The lowered graph, folded so that people can read it: all DAG nodes that came from one ComfyUI node
 * form one group. Pure data, no DOM.
 */

/**
 * @typedef {object} GraphInput
 * @property {string} name
 * @property {string} source
 * @property {number} port
 * @property {"eager" | "deferred"} kind
 */

/**
 * @typedef {object} GraphNode
 * @property {string} id
 * @property {string} op
 * @property {string | null} model
 * @property {{node_id: string, class_type: string, value: number, max: number}} origin
 * @property {GraphInput[]} inputs
 * @property {number} depth
 * @property {"waiting" | "ready" | "running" | "done"} state
 * @property {string | null} executor
 */

/**
 * @typedef {object} GraphAnswer
 * @property {string} request_id
 * @property {GraphNode[]} nodes
 * @property {string[]} pending ids of ComfyUI nodes that wait for a value before they become DAG nodes
 * @property {{node_id: string, class_type: string, nodes: string[], is_output: boolean}[]} members
 */

/**
 * @typedef {object} Group
 * @property {string} key the ComfyUI node's id
 * @property {string} classType
 * @property {GraphNode[]} nodes in the server's (topological) order; empty while pending
 * @property {boolean} isPending
 * @property {number} layer
 */

/**
 * @typedef {object} Link
 * @property {string} source a group's key
 * @property {string} target
 * @property {boolean} isDeferred
 */

/**
 * @param {GraphAnswer} answer
 * @returns {{groups: Group[], links: Link[]}} groups with layers: every link leads to a later layer
 */
export function foldGraph(answer) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  const groupOf = new Map();
  for (const node of answer.nodes) {
    const key = node.origin.node_id;
    if (!groups.has(key)) groups.set(key, newGroup(key, node.origin.class_type, false));
    groups.get(key).nodes.push(node);
    groupOf.set(node.id, key);
  }
  for (const id of answer.pending) {
    const member = answer.members.find((candidate) => candidate.node_id === id);
    if (!groups.has(id)) groups.set(id, newGroup(id, member?.class_type ?? "", true));
  }
  const links = foldLinks(answer, groupOf);
  setLayers(groups, links);
  return { groups: [...groups.values()], links };
}

/**
 * @param {string} key
 * @param {string} classType
 * @param {boolean} isPending
 * @returns {Group}
 */
function newGroup(key, classType, isPending) {
  return { key, classType, nodes: [], isPending, layer: 0 };
}

/**
 * @param {GraphAnswer} answer
 * @param {Map<string, string>} groupOf DAG node id to group key
 * @returns {Link[]}
 */
function foldLinks(answer, groupOf) {
  /** @type {Map<string, Link>} */
  const links = new Map();
  const add = (sourceNode, target, isDeferred) => {
    const source = groupOf.get(sourceNode);
    if (source === undefined || source === target) return;
    const name = JSON.stringify([source, target]);
    const known = links.get(name);
    if (known === undefined) links.set(name, { source, target, isDeferred });
    else known.isDeferred &&= isDeferred;
  };
  for (const node of answer.nodes) {
    for (const input of node.inputs) {
      add(input.source, node.origin.node_id, input.kind === "deferred");
    }
  }
  return [...links.values()];
}

/**
 * Count layers backwards from the last consumers, so that every group stands just before the first
 * one that needs it and lines stay short. A folded graph of a valid workflow has no cycle; the bound
 * on the rounds only keeps a wrong answer from hanging the page.
 *
 * @param {Map<string, Group>} groups
 * @param {Link[]} links
 */
function setLayers(groups, links) {
  /** @type {Map<string, number>} */
  const fromEnd = new Map([...groups.keys()].map((key) => [key, 0]));
  for (let round = 0; round < groups.size; round += 1) {
    let hasMoved = false;
    for (const { source, target } of links) {
      if (fromEnd.get(source) > fromEnd.get(target)) continue;
      fromEnd.set(source, fromEnd.get(target) + 1);
      hasMoved = true;
    }
    if (!hasMoved) break;
  }
  const longest = Math.max(0, ...fromEnd.values());
  for (const group of groups.values()) group.layer = longest - fromEnd.get(group.key);
}

/**
 * @param {Group} group
 * @returns {"pending" | "waiting" | "ready" | "running" | "done"}
 */
export function groupState(group) {
  if (group.isPending) return "pending";
  const states = new Set(group.nodes.map((node) => node.state));
  if (states.has("running")) return "running";
  if (states.size === 1 && states.has("done")) return "done";
  if (states.has("done") || states.has("ready")) return states.has("done") ? "running" : "ready";
  return "waiting";
}

/**
 * @param {Group} group
 * @returns {string} `text_encode`, or `12 × denoise + 2`
 */
export function groupWork(group) {
  if (group.isPending) return "waits for a value";
  const counts = new Map();
  for (const node of group.nodes) counts.set(node.op, (counts.get(node.op) ?? 0) + 1);
  const [op, count] = [...counts].reduce((most, next) => (next[1] > most[1] ? next : most));
  if (count === 1 && counts.size === 1) return op;
  const others = group.nodes.length - count;
  return `${count} × ${op}${others ? ` + ${others}` : ""}`;
}

/**
 * @param {Group} group
 * @returns {string} `running 11/32 · cpu0 +1`: state, progress, and who works on it
 */
export function groupStatus(group) {
  const numDone = group.nodes.filter((node) => node.state === "done").length;
  const count = group.nodes.length > 1 ? ` ${numDone}/${group.nodes.length}` : "";
  const [first, ...others] = groupExecutors(group);
  const where = first === undefined ? "" : ` · ${first}`;
  return `${groupState(group)}${count}${where}${others.length ? ` +${others.length}` : ""}`;
}

/**
 * @param {Group} group
 * @returns {string[]} the executors that ran or run its nodes, sorted
 */
export function groupExecutors(group) {
  const names = group.nodes.map((node) => node.executor).filter((name) => name !== null);
  return [...new Set(names)].sort();
}

/**
 * The model of a group, by its label; the evaluations of one sampler share one.
 *
 * @param {Group} group
 * @returns {string}
 */
export function groupModel(group) {
  return group.nodes.find((node) => node.model !== null)?.model ?? "";
}
