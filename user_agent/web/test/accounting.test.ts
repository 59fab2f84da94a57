import assert from "node:assert/strict";
import { test } from "node:test";
import { blanketSizes, deltaUpper } from "../src/accounting/amplification";
import { binomialDelta, geometricDelta } from "../src/accounting/item_noise";
import { twoItemsDelta } from "../src/accounting/two_items";
import { logMass } from "../src/binomial";
import { RATIO_SUM } from "../src/task/parts";
import { isTested, vectors } from "./vectors";

/** Vectors beyond the ε of any claim, or without any: nothing to hold the device to. */
const isClaim = ({ eps_upper: upper }: { eps_upper?: number | string }) => upper !== "inf";

for (const each of vectors("accounting").vectors.filter(isClaim).filter(isTested)) {
  const { kind, n, k, eps_l, M, colluders = 0, eps } = each.inputs;
  const local = eps_l === "inf" ? Number.POSITIVE_INFINITY : eps_l;
  const odds = Math.exp(-local);
  const total = 1 + (k - 1) * odds;
  const reduction = {
    answers: k,
    blanket: (k * odds) / total,
    signal: -Math.expm1(-local) / total,
    isHashed: kind === "olh",
  };
  const set = { others: n - 1 - colluders, dummies: M, randomDummies: 0, dummyChance: 0 };
  test(`formula 1 is met from above: ${JSON.stringify(each.inputs)}`, () => {
    const exact = each.delta_exact_blanket;
    if (eps !== undefined) {
      const found = deltaUpper(reduction, set, eps);
      assert.ok(found >= exact * (1 - 1e-12), `${found} is below ${exact}`);
      assert.ok(found <= exact * 1.001 + 1e-18, `${found} is far above ${exact}`);
      return;
    }
    const { delta } = each.inputs;
    const { eps_upper: upper, eps_lower: lower } = each;
    if (lower !== undefined) {
      const found = deltaUpper(reduction, set, lower);
      assert.ok(found >= delta, `${found} is refuted by an attack of ${delta}`);
    }
    const found = deltaUpper(reduction, set, upper);
    assert.ok(found <= delta * 1.001, `${found} is far above ${delta}`);
  });
}

/** Randomized response over two items with this local ε. */
function twoItems(local: number) {
  const odds = Math.exp(-local);
  const signal = -Math.expm1(-local) / (1 + odds);
  return { answers: 2, blanket: (2 * odds) / (1 + odds), signal, isHashed: false };
}

for (const { n, eps_l, M, M_binom = [0, 0], eps, delta, some } of vectors(
  "two_items",
).vectors.filter(isTested)) {
  const [randomDummies, dummyChance] = M_binom;
  const name = `${n} users, ${M} and ${M_binom} dummies, local ε ${eps_l}, ε ${eps}`;
  test(`two items are met from above: ${name}`, () => {
    const set = { others: n - 1, dummies: M, randomDummies, dummyChance };
    const found = twoItemsDelta(twoItems(eps_l), set, eps);
    assert.ok(found >= delta * (1 - 1e-9), `${found} is below ${delta}`);
    assert.ok(found <= delta * (some ? 1.02 : 1.005), `${found} is far above ${delta}`);
  });
}

test("two items among many users and a random number of dummies take a second", () => {
  const random = { randomDummies: 10 ** 7, dummyChance: 0.3 };
  const start = process.cpuUsage();
  const found = twoItemsDelta(twoItems(2), { others: 10 ** 7, dummies: 0, ...random }, 0.00144425);
  assert.ok(found < 1.002e-6 && found > 0.995e-6, `${found}`);
  assert.ok(process.cpuUsage(start).user < 2e6);
});

test("the probability of fewer users in the blanket than any bin holds is charged", () => {
  const set = { others: 10 ** 5, dummies: 7, randomDummies: 10 ** 4, dummyChance: 0.3 };
  const bins = (changes: object) => blanketSizes(0.01, { ...set, ...changes });
  for (const [{ sizes, missed }, trials, chance] of [
    [bins({ randomDummies: 0 }), set.others, 0.01],
    [bins({ others: 0 }), set.randomDummies, set.dummyChance],
  ] as const) {
    const largest = (sizes[0] ?? 0) - 1 - set.dummies - 1;
    assert.ok(largest > 0 && missed >= Math.exp(logMass(largest, trials, chance)));
  }
});

test("noise on each item's count is met from above, by its definition", () => {
  const binomial = Array.from({ length: 9 }, (_, k) => Math.exp(logMass(k, 8, 0.4)));
  const noise = { peak: 3, most: 7, leftWeight: RATIO_SUM / 2, rightWeight: RATIO_SUM / 4 };
  const geometric = [1 / 8, 1 / 4, 1 / 2, 1, 1 / 4, 1 / 16, 1 / 64, 1 / 256];
  const total = geometric.reduce((sum, mass) => sum + mass, 0);
  const first = geometric.map((mass) => mass / total);
  const other = { peak: 1, most: 2, leftWeight: RATIO_SUM / 4, rightWeight: RATIO_SUM / 2 };
  const sums = new Array<number>(10).fill(0);
  first.forEach((one, i) => {
    for (const [j, more] of [1 / 7, 4 / 7, 2 / 7].entries()) sums[i + j] = (sums[i + j] ?? 0) + one * more; // biome-ignore format: one step
  });
  for (const [epsilon, keep] of [
    [0.1, 1],
    [0.7, 0.5],
    [3, 0.9],
  ] as const) {
    for (const [masses, found] of [
      [binomial, binomialDelta(8, 0.4, keep, epsilon)],
      [first, geometricDelta([noise] as never, keep, epsilon) ?? 0],
      [sums, geometricDelta([noise, other] as never, keep, epsilon) ?? 0],
    ] as const) {
      const g = (k: number) => masses[k] ?? 0;
      const f = (k: number) => (1 - keep) * g(k) + keep * g(k - 1);
      let exact = 0;
      for (let one = 0; one <= masses.length; one++)
        for (let other = 0; other <= masses.length; other++)
          exact += Math.max(0, f(one) * g(other) - Math.exp(epsilon) * g(one) * f(other));
      assert.ok(found >= exact * (1 - 1e-12), `${found} is below ${exact}`);
      assert.ok(found <= exact * 1.001, `${found} is far above ${exact}`);
    }
  }
});

test("a large ε of many users takes no longer", () => {
  const reduction = { answers: 5, blanket: 5e-4, signal: 1 - 5e-4, isHashed: false };
  const set = { others: 10 ** 7, dummies: 0, randomDummies: 0, dummyChance: 0 };
  const start = process.cpuUsage();
  assert.ok(deltaUpper(reduction, set, 8) < 1e-6);
  assert.ok(process.cpuUsage(start).user < 3e6);
});
