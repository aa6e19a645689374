/** What a person may drop, before the server reads it, and what is made of prompts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  MAX_FILE_BYTES,
  WorkflowFileError,
  nodeNames,
  noteLine,
  readWorkflowFile,
  withNewSeeds,
} from "../../web/workflow.js";

const PROMPT = { 9: { class_type: "SaveImage", inputs: { seed: 3, noise_seed: ["1", 0] } } };

test("empty and huge files are refused before they are sent", async () => {
  await assert.rejects(readWorkflowFile(new File([], "a.json")), WorkflowFileError);
  const huge = /** @type {File} */ ({ name: "a.png", size: MAX_FILE_BYTES + 1 });
  await assert.rejects(readWorkflowFile(huge), /too large: 65 MB, at most 64 MB/);
});

test("a note names node, subgraphs and pack", () => {
  const note = { kind: "unknown", text: "not known", node: "1:6", class_type: "Odd" };
  assert.equal(noteLine(note), "Odd #1:6: not known");
  const inside = { ...note, subgraph: ["A", "B"], pack: "p 1" };
  assert.equal(noteLine(inside), "Odd #1:6 in A > B: not known (pack p 1)");
  assert.equal(noteLine({ kind: "dropped", text: "a circle" }), "a circle");
});

test("new seeds replace literal seeds and leave links and the original alone", () => {
  const changed = withNewSeeds(PROMPT, () => 0.5);
  assert.equal(changed[9].inputs.seed, Math.floor(Number.MAX_SAFE_INTEGER / 2));
  assert.deepEqual(changed[9].inputs.noise_seed, ["1", 0]);
  assert.equal(PROMPT[9].inputs.seed, 3);
});

test("nodes are called by their title, else by their class", () => {
  const names = nodeNames({ 1: { class_type: "A", _meta: { title: "T" } }, 2: { class_type: "B" } });
  assert.deepEqual([...names], [["1", "T"], ["2", "B"]]);
  assert.equal(nodeNames(null).size, 0);
});
