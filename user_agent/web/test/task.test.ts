import assert from "node:assert/strict";
import { test } from "node:test";
import { concat, utf8 } from "../src/bytes";
import { PolicyError, TaskError } from "../src/errors";
import { mechanismOf } from "../src/mechanisms/registry";
import { writeDouble } from "../src/task/canonical";
import { UniformDummies, ViewDummies } from "../src/task/dummies";
import { parseTask } from "../src/task/task";
import { vectors } from "./vectors";

const { accepted, refused } = vectors("tasks") as {
  accepted: Record<string, { bytes: string }>;
  refused: Record<string, string>;
};

/** Tasks that this device refuses by their protocol's name. */
const UNSUPPORTED = new Set(
  (
    "ldp-olh-strings ldp-sw signed rappor discover laplace duchi piecewise hybrid-mean harmony " +
    "mean-est multi-hm multi-rphm priv-kv lasting"
  ).split(" "),
);

for (const [name, { bytes }] of Object.entries(accepted)) {
  test(`the task ${name} of the vectors is read, or refused by name`, async () => {
    if (UNSUPPORTED.has(name)) {
      assert.throws(() => parseTask(utf8(bytes)), PolicyError);
      return;
    }
    const task = parseTask(utf8(bytes));
    const mechanism = await mechanismOf(task);
    assert.equal(task.mechanism.reportBytes, mechanism.reportBytes);
  });
}

for (const [why, text] of Object.entries(refused)) {
  test(`bytes with ${why} are refused`, () => {
    assert.throws(() => parseTask(utf8(text)), TaskError);
  });
}

test("a byte order mark before a task is refused", () => {
  const task = utf8(accepted["mixdump"]?.bytes ?? "");
  assert.ok(parseTask(task));
  assert.throws(() => parseTask(concat(Uint8Array.of(0xef, 0xbb, 0xbf), task)), TaskError);
});

test("doubles are written as Python writes them", () => {
  const known = {
    "1.0": 1,
    "1e-06": 1e-6,
    "1.5e+16": 1.5e16,
    "1234567890123456.0": 1234567890123456,
    "0.0001": 1e-4,
    "0.1": 0.1,
    "5e-324": 5e-324,
    "-0.0": -0,
    "1e+22": 1e22,
  };
  for (const [text, value] of Object.entries(known)) assert.equal(writeDouble(value), text);
});

test("a submission has at most a mebibyte, with its longest length", () => {
  const { task } = vectors("transcript-puredump");
  const bytes = (perUser: number) => utf8(task.replace('"per_user":4', `"per_user":${perUser}`));
  assert.equal(parseTask(bytes(20_161)).lengths.at(-1), 20_163);
  assert.throws(() => parseTask(bytes(20_162)), TaskError);
});

test("the dummies of many views have at most 256 lengths", () => {
  const view = new UniformDummies({ distribution: "fractional", perUser: 1, extraWeight: 1 }, 1);
  const views = (count: number) => Array.from({ length: count }, () => view);
  const { lengths } = new ViewDummies(views(401));

  assert.deepEqual([201, 402, 404, 802], [lengths.length, ...lengths.slice(0, 2), lengths.at(-1)]);
  assert.equal(new ViewDummies(views(255)).lengths.length, 256);
});

test("what would make the shuffler or a reader stumble is refused", () => {
  const noise = vectors("transcript-geometric-noise").task;
  const labels = vectors("transcript-mixdump").task;
  for (const [whole, old, fresh] of [
    [noise, '"left_weight":"536870912"', '"left_weight":"1073741823"'],
    [noise, '"most":90', '"most":39'],
    [labels, '"car"', '"\\ud800"'],
    [labels, '"car"', '"bus"'],
    [labels, '"car"', `"${"c".repeat(257)}"`],
  ]) {
    assert.ok(whole.includes(old));
    assert.throws(() => parseTask(utf8(whole.replace(old, fresh))), TaskError, fresh);
  }
});

test("neither of two shufflers may drop reports", () => {
  const { task } = vectors("chain-sageo");
  const keys = [...task.matchAll(/"key":/g)].map(({ index }) => index);
  assert.equal(keys.length, 2);
  for (const at of keys) {
    const text = `${task.slice(0, at)}"keep_weight":"5",${task.slice(at)}`;
    assert.throws(
      () => parseTask(utf8(text)),
      (error) => (error as TaskError).key === "shuffler_of_protocol",
    );
  }
});

test("chains that protect nobody, and too few distributions of noise, are refused by name", () => {
  const { task } = vectors("transcript-hierarchy");
  const { shufflers } = JSON.parse(task);
  const [only] = shufflers;
  const noise = [only.noise[0], { distribution: "binomial", trials: 8 }, only.noise[0]];
  const named = (name: string, key = only.key) => ({
    ...{ key, name },
    noise: only.noise,
    proof: only.proof,
  });
  for (const [changed, key] of [
    [[named("a"), named("b", "00")], "chain_of_protocol"],
    [[named("a"), named("a", "00")], "shufflers_alike"],
    [[only, named("b", "00")], "shufflers_alike"],
    [[only, only], "shufflers_alike"],
    [[only, only, only], "shuffler_count"],
    [[], "shuffler_count"],
    [[{ ...only, noise: noise.slice(0, only.noise.length) }], "shuffler_of_protocol"],
    [[{ ...only, noise: noise.slice(0, 1) }], "noise_of_views"],
  ]) {
    const text = task.replace(JSON.stringify(shufflers), JSON.stringify(changed));
    assert.notEqual(text, task);
    assert.throws(
      () => parseTask(utf8(text)),
      (error) => (error as TaskError).key === key,
    );
  }
});
