/** What a person may drop: PNG text chunks, JSON texts, and what is said about anything else. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { MAX_TEXT_BYTES, WorkflowFileError, isPng, promptInPng } from "../../web/embedded.js";
import { nodeNames, parsePrompt, readWorkflowFile, withNewSeeds } from "../../web/workflow.js";

const PROMPT = { 9: { class_type: "SaveImage", inputs: { seed: 3, noise_seed: ["1", 0] } } };
const TEXT = JSON.stringify(PROMPT);

/** A PNG of the given chunks; nothing in it has to be a picture. */
function png(...chunks) {
  const parts = [Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])];
  for (const [type, body] of [["IHDR", Buffer.alloc(13)], ...chunks, ["IEND", Buffer.alloc(0)]]) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(body.length);
    parts.push(length, Buffer.from(type, "latin1"), body, Buffer.alloc(4));
  }
  return new Uint8Array(Buffer.concat(parts));
}

const tEXt = (keyword, text) => ["tEXt", Buffer.from(`${keyword}\0${text}`, "latin1")];
const zTXt = (keyword, text) => [
  "zTXt",
  Buffer.concat([Buffer.from(`${keyword}\0\0`, "latin1"), deflateSync(Buffer.from(text, "latin1"))]),
];
const iTXt = (keyword, text, isPacked) => {
  const body = Buffer.from(text, "utf8");
  const head = Buffer.from(`${keyword}\0${isPacked ? "\x01" : "\0"}\0en\0\0`, "latin1");
  return ["iTXt", Buffer.concat([head, isPacked ? deflateSync(body) : body])];
};

test("the prompt is found in every kind of text chunk", async () => {
  for (const chunk of [tEXt, zTXt]) {
    assert.equal(await promptInPng(png(tEXt("workflow", "{}"), chunk("prompt", "é"))), "é");
  }
  for (const isPacked of [false, true]) {
    assert.equal(await promptInPng(png(iTXt("prompt", "日本", isPacked))), "日本");
  }
});

test("a PNG that holds only the editor's format says how to export", async () => {
  await assert.rejects(promptInPng(png(tEXt("workflow", "{}"))), /Export \(API\)/);
  await assert.rejects(promptInPng(png()), /carries no workflow/);
});

test("cut-off and damaged PNGs are refused with a reason", async () => {
  const whole = png(tEXt("prompt", TEXT));
  await assert.rejects(promptInPng(whole.subarray(0, 60)), /cut off/);
  const damaged = png(["zTXt", Buffer.from("prompt\0\0not zlib", "latin1")]);
  await assert.rejects(promptInPng(damaged), /damaged/);
  await assert.rejects(promptInPng(png(["iTXt", Buffer.from("prompt\0\0\0", "latin1")])), /damaged/);
});

test("a small chunk that unpacks to more than the limit is refused", async () => {
  const bomb = png(zTXt("prompt", "a".repeat(MAX_TEXT_BYTES + 1)));
  assert.ok(bomb.length < 100_000);
  await assert.rejects(promptInPng(bomb), /longer than/);
});

test("a chunk length beyond the file does not read beyond it", async () => {
  const bytes = png(tEXt("prompt", TEXT));
  new DataView(bytes.buffer).setUint32(8, 0xffffffff);
  await assert.rejects(promptInPng(bytes), /cut off/);
});

test("files: JSON and PNG are read, others are named", async () => {
  const read = (content, name) => readWorkflowFile(new File([content], name));
  assert.deepEqual(await read(TEXT, "a.json"), { name: "a.json", prompt: PROMPT });
  assert.deepEqual((await read(png(tEXt("prompt", TEXT)), "a.png")).prompt, PROMPT);
  await assert.rejects(read("", "a.json"), /empty/);
  await assert.rejects(read(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]), "a.jpg"), /neither/);
  await assert.rejects(read("{", "a.json"), /not valid JSON/);
});

test("what is JSON but no workflow is told apart", () => {
  const editor = { nodes: [], links: [], last_node_id: 0 };
  assert.throws(() => parsePrompt(JSON.stringify(editor)), /Export \(API\)/);
  assert.throws(() => parsePrompt(JSON.stringify({ prompt: editor })), /Export \(API\)/);
  assert.throws(() => parsePrompt("[1]"), /must be an object/);
  assert.throws(() => parsePrompt("null"), WorkflowFileError);
  assert.throws(() => parsePrompt('{"a": 1}'), /class_type/);
});

test("the body of a POST /prompt is taken for its graph", () => {
  assert.deepEqual(parsePrompt(JSON.stringify({ prompt: PROMPT, client_id: "x" })), PROMPT);
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

test("a signature alone does not pass for a PNG with a workflow", async () => {
  const head = png().subarray(0, 8);
  assert.ok(isPng(head));
  await assert.rejects(promptInPng(head), /cut off/);
});
