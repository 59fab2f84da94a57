import assert from "node:assert/strict";
import { test } from "node:test";
import { knownBase64, knownHex, utf8 } from "../src/bytes";
import { roundedUp } from "../src/decimal";
import { StorageError, TaskError, ValueRangeError } from "../src/errors";
import { parseTask } from "../src/task/task";
import { heldOf, type Value } from "../src/values";
import { vectors } from "./vectors";

const text = (name: string): string => vectors(`transcript-${name}`).task;

test("values are read as numbers, labels, groups and buckets", () => {
  const cases: [string, Value, number | number[]][] = [
    ["grr", "3", 3],
    ["grr", " #4 ", 4],
    ["mixdump", "#2", 2],
    ["breakdown", "FR / #1", 3],
    ["breakdown", "DE/flu", 0],
    ["edges", "1e2", 5],
    ["edges", ".1", 0],
    ["hierarchy", "FR / -1", 8],
    ["tables", "DE / n/a / 1e9", [0, 0, 3]],
    ["tables", ["FR", "#2", 3.5], [1, 2, 1]],
    ["one-table", [" Fu\u0308ße", "0"], [1, 0]],
    ["digits", " 1.8e1 ", [0.5]],
    ["digits", [24], [1]],
    ["vector-digits", "1, 2 ,4.5,5", [-1, -0.5, 0.75, 1]],
    ["vector-digits", [3, 3, 3, 3], [0, 0, 0, 0]],
  ];
  for (const [name, value, held] of cases) {
    assert.deepEqual(heldOf(parseTask(utf8(text(name))), value), held, `${name}`);
  }
});

test("an error never repeats the value that it refuses", () => {
  const cases: [string, Value][] = [
    ["grr", "secret7"],
    ["tables", 7],
    ["tables", "DE / n/a"],
    ["tables", "DE / n/a / 0 / secret"],
    ["tables", "secret / n/a / 0"],
    ["tables", "DE / #4 / 0"],
    ["tables", ["DE", "n/a", Number.NaN]],
    ["grr", 7777],
    ["grr", 0.777],
    ["grr", Number.NaN],
    ["mixdump", "7"],
    ["mixdump", "secret7"],
    ["breakdown", "DE"],
    ["breakdown", "XX / flu 7"],
    ["breakdown", "DE / 7"],
    ["edges", "7e7e7"],
    ["edges", "0x7"],
    ["edges", 777],
    ["edges", Number.POSITIVE_INFINITY],
    ["hierarchy", 7],
    ["grr", [7]],
    ["digits", 24.0077],
    ["digits", "0x7"],
    ["digits", Number.NaN],
    ["digits", [7, 7]],
    ["vector-digits", "1,2,3,7.7"],
    ["vector-digits", [1, 2, 3]],
    ["vector-digits", 3.7],
  ];
  for (const [name, value] of cases) {
    const isRefused = (error: Error) =>
      error instanceof ValueRangeError && !/7|secret/.test(error.message);
    assert.throws(() => heldOf(parseTask(utf8(text(name))), value), isRefused, `${name} ${value}`);
  }
});

test("groups are named, and cannot be mistaken for values", () => {
  const whole = text("breakdown");
  for (const groups of [
    '"",""',
    '"DE","DE"',
    '"DE ","FR"',
    '"D / E","FR"',
    '"DE /","FR"',
    '"DE"',
  ]) {
    const changed = whole.replace('"groups":["DE","FR"]', `"groups":[${groups}]`);
    assert.notEqual(changed, whole);
    assert.throws(() => parseTask(utf8(changed)), TaskError, groups);
  }
  const nameless = whole.replace('"attribute":"country",', "");
  assert.throws(() => parseTask(utf8(nameless)), TaskError);
});

test("damaged bytes of the storage are an error, not empty", () => {
  assert.deepEqual([knownHex("00ff"), knownBase64("")], [Uint8Array.of(0, 255), new Uint8Array()]);
  for (const read of [() => knownHex("0"), () => knownBase64("A")]) {
    assert.throws(read, StorageError);
  }
});

test("privacy figures are shown rounded up", () => {
  const known = { "1.235": 1.2341, "0.1": 0.1, "1000": 999.95, inf: 1 / 0, "0": 0, "20": 20, "1.001e-7": 1.0001e-7 }; // biome-ignore format: a table
  for (const [shown, figure] of Object.entries(known)) assert.equal(roundedUp(figure), shown);
});
