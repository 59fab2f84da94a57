/** Whatever arrives gives a value, or an error of the family. Seeds are fixed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { utf8 } from "../src/bytes";
import { ShuffleDpError } from "../src/errors";
import { SignedCheckpoint } from "../src/log/checkpoint";
import { parseTask } from "../src/task/task";
import { inclusionProof, logProof } from "../src/transport/services";
import { vectors } from "./vectors";

const ROUNDS = Number(process.env["SHUFFLEDP_FUZZ_ROUNDS"] ?? 500);

/** Return integers below n by a linear congruential generator. */
function seeded(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

function parses(read: () => unknown): void {
  try {
    read();
  } catch (error) {
    if (!(error instanceof ShuffleDpError)) throw error;
  }
}

const ODD = [null, true, -1, 0.5, 1e300, "", "-1", "AA==", "A", "é", [], {}, "9".repeat(40), NaN];

/** Replace one field, anywhere in a message, by something else. */
function changed(message: object, below: (n: number) => number): unknown {
  const copy = structuredClone(message) as Record<string, unknown>;
  const tables = [copy];
  for (const table of tables) {
    for (const value of Object.values(table)) {
      if (value && typeof value === "object") tables.push(value as Record<string, unknown>);
    }
  }
  const table = tables[below(tables.length)] ?? copy;
  const names = Object.keys(table);
  const name = names[below(names.length)] ?? "task";
  table[name] = below(4) ? ODD[below(ODD.length)] : undefined;
  return copy;
}

const { fetch, inclusion, task, last_checkpoint: note } = vectors("transcript-mixdump");

test("any message of the shuffler is read, or refused", () => {
  const below = seeded(1);
  for (let round = 0; round < ROUNDS; round++) {
    parses(() => logProof(changed(fetch, below) as Parameters<typeof logProof>[0]));
    parses(() => inclusionProof(changed(inclusion, below) as typeof inclusion));
  }
});

for (const [name, bytes, read] of [
  ["task", utf8(task), parseTask],
  ["note", utf8(note), SignedCheckpoint.parse],
] as const) {
  test(`any bytes are a ${name}, or refused`, () => {
    const below = seeded(2);
    for (let round = 0; round < ROUNDS; round++) {
      const start = below(bytes.length);
      const end = below(3) ? bytes.length : start + below(20);
      const some = Uint8Array.from(bytes.slice(below(4) ? 0 : start, end));
      for (let flips = below(3); flips > 0; flips--) some[below(some.length)] = below(256);
      parses(() => read(some));
    }
    assert.ok(read(bytes));
  });
}
