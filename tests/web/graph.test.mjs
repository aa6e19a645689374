/** Folding and laying out a graph; binary frames; the order of the queue. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { parsePreview } from "../../web/frames.js";
import { BOX_WIDTH, boxHeight, cellsOf, layOut } from "../../web/graph_layout.js";
import { foldGraph, groupExecutors, groupState, groupStatus, groupWork } from "../../web/graph_model.js";
import { rowOfEntry, rowsOfQueue } from "../../web/queue_view.js";

const input = (source, kind = "eager") => ({ name: "x", source, port: 0, kind });
const node = (id, owner, op, sources, state = "waiting", executor = null) => ({
  id,
  op,
  model: null,
  origin: { node_id: owner, class_type: `Class${owner}`, value: 0, max: 0 },
  inputs: sources.map((source) => input(source)),
  depth: 0,
  state,
  executor,
});
const GRAPH = {
  request_id: "r",
  nodes: [
    node("6", "6", "text_encode", [], "done", "cpu1"),
    node("5", "5", "empty_latent", [], "done", "cpu0"),
    node("3/begin", "3", "sample_begin", ["5"], "done", "cpu0"),
    node("3/eval-0", "3", "denoise", ["3/begin", "6"], "running", "cpu1"),
    node("3/eval-1", "3", "denoise", ["3/eval-0", "6"]),
    node("3/end", "3", "sample_end", ["3/eval-1"]),
    node("8", "8", "vae_decode", ["3/end"]),
  ],
  pending: ["11"],
  members: [{ node_id: "11", class_type: "KSampler", nodes: [], is_output: false }],
};

test("the evaluations of one ComfyUI node fold into one group", () => {
  const { groups, links } = foldGraph(GRAPH);
  assert.deepEqual(groups.map((group) => group.key), ["6", "5", "3", "8", "11"]);
  const sampler = groups[2];
  assert.equal(groupWork(sampler), "2 × denoise + 2");
  assert.equal(groupState(sampler), "running");
  assert.deepEqual(groupExecutors(sampler), ["cpu0", "cpu1"]);
  assert.equal(groupStatus(sampler), "running 1/4 · cpu0 +1");
  assert.equal(groupState(groups[4]), "pending");
  assert.deepEqual(
    links.map((link) => [link.source, link.target]),
    [["5", "3"], ["6", "3"], ["3", "8"]],
  );
});

test("every line leads to a later layer", () => {
  const { groups, links } = foldGraph(GRAPH);
  const layer = new Map(groups.map((group) => [group.key, group.layer]));
  assert.equal(links.length, 3);
  for (const link of links) assert.ok(layer.get(link.source) < layer.get(link.target));
});

test("a group stands just before the first one that needs it", () => {
  const nodes = [
    node("load", "load", "load_image", []),
    node("encode", "encode", "vae_encode", ["load"]),
    node("text", "text", "text_encode", []),
    node("sample", "sample", "denoise", ["encode", "text"]),
  ];
  const { groups } = foldGraph({ ...GRAPH, nodes, pending: [] });
  assert.deepEqual(
    groups.map((group) => [group.key, group.layer]),
    [["load", 0], ["encode", 1], ["text", 1], ["sample", 2]],
  );
});

test("a line is dashed only if all its edges are deferred", () => {
  const graph = { ...GRAPH, nodes: [node("1", "1", "a", []), node("2", "2", "b", [])] };
  graph.nodes[1].inputs = [input("1", "deferred")];
  assert.equal(foldGraph(graph).links[0].isDeferred, true);
  graph.nodes[1].inputs.push(input("1"));
  assert.equal(foldGraph(graph).links[0].isDeferred, false);
});

test("boxes do not overlap and lie inside the picture, either way round", () => {
  const { groups, links } = foldGraph(GRAPH);
  for (const isVertical of [false, true]) {
    const layout = layOut(groups, links, isVertical);
    const boxes = [...layout.boxes.values()];
    for (const [index, box] of boxes.entries()) {
      assert.ok(box.x >= 0 && box.x + box.width <= layout.width);
      assert.ok(box.y >= 0 && box.y + box.height <= layout.height);
      for (const other of boxes.slice(index + 1)) {
        const isApart =
          box.x + box.width <= other.x ||
          other.x + other.width <= box.x ||
          box.y + box.height <= other.y ||
          other.y + other.height <= box.y;
        assert.ok(isApart);
      }
    }
  }
});

test("cells stay inside their box, however many there are", () => {
  for (const count of [1, 2, 14, 22, 33, 302]) {
    const cells = cellsOf(count);
    assert.equal(cells.length, count);
    for (const cell of cells) {
      assert.ok(cell.width >= 5 && cell.x + cell.width <= BOX_WIDTH);
      assert.ok(cell.y + cell.height <= boxHeight(count));
    }
  }
  assert.deepEqual(cellsOf(0), []);
});

test("an empty graph is laid out to nothing", () => {
  const { groups, links } = foldGraph({ request_id: "r", nodes: [], pending: [], members: [] });
  assert.equal(layOut(groups, links, false).boxes.size, 0);
});

test("a preview with metadata is taken apart", async () => {
  const metadata = Buffer.from(
    JSON.stringify({ prompt_id: "p", node_id: "3", display_node_id: "3", image_type: "image/jpeg" }),
  );
  const head = Buffer.alloc(8);
  head.writeUInt32BE(4, 0);
  head.writeUInt32BE(metadata.length, 4);
  const frame = parsePreview(new Uint8Array([...head, ...metadata, 0xff, 0xd8]).buffer);
  assert.equal(frame.promptId, "p");
  assert.equal(frame.image.type, "image/jpeg");
  assert.deepEqual([...new Uint8Array(await frame.image.arrayBuffer())], [0xff, 0xd8]);
});

test("frames of other kinds and malformed ones are nothing to show", () => {
  const frame = (...bytes) => new Uint8Array(bytes).buffer;
  assert.equal(parsePreview(frame(0, 0)), null);
  assert.equal(parsePreview(frame(0, 0, 0, 3, 0, 0, 0, 0)), null);
  assert.equal(parsePreview(frame(0, 0, 0, 4, 0, 0, 0, 9, 123)), null);
  const svg = Buffer.from('{"image_type": "image/svg+xml"}');
  assert.equal(parsePreview(frame(0, 0, 0, 4, 0, 0, 0, svg.length, ...svg)), null);
  assert.equal(parsePreview(frame(0, 0, 0, 1, 0, 0, 0, 2, 7)).image.type, "image/png");
});

test("waiting requests are shown in the order in which they are served", () => {
  const item = (number, id, extra = {}) => [number, id, {}, extra, []];
  const rows = rowsOfQueue(
    {
      queue_running: [item(1, "r", { client_id: "me", nodeloom_title: "mine" })],
      queue_pending: [item(3, "b"), item(-2, "front"), item(3, "a")],
    },
    "me",
  );
  assert.deepEqual(rows.waiting.map((row) => row.id), ["front", "a", "b"]);
  assert.equal(rows.running[0].title, "mine");
  assert.equal(rows.running[0].isOurs, true);
  assert.equal(rows.waiting[0].isOurs, false);
});

test("how a request ended is read from its history entry", () => {
  const entry = (completed, ...names) => ({
    prompt: [0, "id", {}, {}, []],
    status: { completed, messages: names.map((name) => [name, {}]) },
  });
  assert.equal(rowOfEntry(entry(true, "execution_success"), "").state, "done");
  assert.equal(rowOfEntry(entry(false, "execution_error"), "").state, "failed");
  assert.equal(rowOfEntry(entry(false, "execution_interrupted"), "").state, "stopped");
});
