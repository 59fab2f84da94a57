import assert from "node:assert/strict";
import { test } from "node:test";
import { exactCoins, SecureUniform, shuffle } from "../src/random";

const DRAWS = 60_000;
/** Fails by chance with probability below 1e-9: the chi-squared of k cells exceeds this rarely. */
const most = (cells: number) => cells - 1 + 9 * Math.sqrt(2 * (cells - 1)) + 45;

function chiSquared(counts: readonly number[], total: number): number {
  const expected = total / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

for (const n of [2n, 3n, 5n, 13n, 64n, 2n ** 32n, 2n ** 32n + 1n, 3n * 2n ** 61n, 2n ** 128n]) {
  test(`integers below ${n} are uniform`, () => {
    const uniform = new SecureUniform();
    const cells = Number(n < 16n ? n : 16n);
    const [high, low] = [0, 1].map(() => new Array<number>(cells).fill(0)) as [number[], number[]];
    for (let draw = 0; draw < DRAWS; draw++) {
      const drawn = uniform.below(n);
      assert.ok(drawn >= 0n && drawn < n);
      const cell = Number((drawn * BigInt(cells)) / n);
      high[cell] = (high[cell] ?? 0) + 1;
      const rest = Number(drawn % BigInt(cells));
      low[rest] = (low[rest] ?? 0) + 1;
    }
    for (const counts of [high, low]) {
      const found = chiSquared(counts, DRAWS);
      assert.ok(found < most(cells), `${found}`);
    }
  });
}

test("every bit of a long draw is random", () => {
  const uniform = new SecureUniform();
  const counts = new Array<number>(2048).fill(0);
  for (let draw = 0; draw < 400; draw++) {
    const bits = uniform
      .below(1n << 2048n)
      .toString(2)
      .padStart(2048, "0");
    counts.forEach((count, at) => {
      counts[at] = count + Number(bits[at]);
    });
  }
  // Fails by chance with probability below 1e-20.
  assert.ok(counts.every((count) => count > 100 && count < 300));
});

test("every order of four is as likely", () => {
  const uniform = new SecureUniform();
  const counts = new Map<string, number>();
  for (let draw = 0; draw < DRAWS; draw++) {
    const order = shuffle([0, 1, 2, 3], uniform).join("");
    counts.set(order, (counts.get(order) ?? 0) + 1);
  }
  assert.equal(counts.size, 24);
  assert.ok(chiSquared([...counts.values()], DRAWS) < most(24));
});

test("coins have exactly their chance, whatever decides them", () => {
  const total = 3n;
  const heads = [0n, 1n, 2n].flatMap((rest) => {
    let isFirst = true;
    const below = (n: bigint) => {
      if (!isFirst) return rest;
      isFirst = false;
      return n / total; // the undecided 16 bits
    };
    return exactCoins({ below }, 1n, total, 1);
  });
  assert.deepEqual(heads, [true, false, false]);
});
