import assert from "node:assert/strict";
import { test } from "node:test";
import { deltaAtClaim, deltaOfCoalition } from "../src/accounting/claims";
import { utf8 } from "../src/bytes";
import { shareOf, sumUpper } from "../src/decimal";
import { BudgetError } from "../src/errors";
import { centralTotal, checkTotals, coalitionTotal, localTotal, type Policy } from "../src/policy";
import { parseTask } from "../src/task/task";
import { isTested, vectors } from "./vectors";

for (const row of vectors("transcript_claims").filter(isTested)) {
  const { task: text, delta_at_claim: expected, delta_of_coalition: coalition } = row;
  const task = parseTask(utf8(text));
  const isTrue = expected !== null && expected <= task.delta;
  const named = `${task.protocol} of ${task.centralEpsilon} for ${task.nMin} users`;
  test(`the claim of ${named} is ${isTrue ? "confirmed" : "refused"}`, () => {
    const start = process.cpuUsage();
    const found = deltaAtClaim(task) ?? Number.NaN;
    assert.ok(process.cpuUsage(start).user < 2e6);
    assert.equal(found <= task.delta, isTrue, `${found} at ${task.delta}`);
    // Both are upper bounds; accounting.test.ts compares with exact values.
    const bound = expected ?? 1;
    assert.ok(found >= bound * 0.99 && found <= bound * 1.002, `${found} is not ${bound}`);
  });
  if (coalition === undefined) continue;
  const holds = coalition <= task.delta;
  test(`the coalition's ${task.coalitionEpsilon} of ${named} is ${holds ? "confirmed" : "refused"}`, () => {
    const alone = deltaOfCoalition(task) ?? Number.NaN;
    assert.equal(alone <= task.delta, holds, `${alone} at ${task.delta}`);
    assert.ok(alone >= coalition * 0.99 && alone <= coalition * 1.002, `${alone} is not ${coalition}`); // biome-ignore format: one bound
  });
}

test("totals are never below those of the Python device", () => {
  for (const { claims, delta, local, central } of vectors("transcript_budgets")) {
    const numbers = (each: (string | number)[]) => each.map((one) => Number(String(one).replace("inf", "Infinity"))); // biome-ignore format: one step
    const spent = claims.map(numbers).map(([localEpsilon = 0, centralEpsilon = 0, delta = 0]: number[]) => ({ localEpsilon, centralEpsilon, delta })); // biome-ignore format: one step
    assert.equal(localTotal(spent), Number(local.replace("inf", "Infinity")));
    assert.ok(centralTotal(spent, delta) >= Number(central.replace("inf", "Infinity")));
    const refuses = (totalLocalEpsilonCap: number, totalCentralEpsilonCap: number) => {
      const policy = {
        totalLocalEpsilonCap,
        totalCentralEpsilonCap,
        totalDeltaCap: delta,
      } as Policy;
      const last = spent.at(-1);
      assert.throws(() => checkTotals(policy, spent.slice(0, -1), last), BudgetError);
    };
    refuses(localTotal(spent), 0.999 * Number(central));
    if (local !== "inf") refuses(0.999 * Number(local), centralTotal(spent, delta));
  }
});

test("an answer with two shufflers adds to the central and the coalition's total alone", () => {
  const chained = { localEpsilon: Infinity, centralEpsilon: 0.5, coalitionEpsilon: 2, delta: 1e-6 };
  const plain = { localEpsilon: 3, centralEpsilon: 0.25, delta: 1e-6 }; // of an earlier version
  const both = [{ ...chained, isChained: true }, plain, chained];
  assert.equal(localTotal([{ ...chained, isChained: false }]), Infinity);
  assert.equal(localTotal(both), 3);
  assert.deepEqual([centralTotal(both, 1e-4), coalitionTotal(both, 1e-4)], [1.25, 7]);
  assert.deepEqual([coalitionTotal(both, 2e-6), coalitionTotal(both, 1e-6)], [7, Infinity]);
  assert.equal(centralTotal([chained], 1e-4), 0.5);
  const policy = {
    ...{ totalLocalEpsilonCap: 3, totalCoalitionEpsilonCap: 7 },
    ...{ totalCentralEpsilonCap: 1.25, totalDeltaCap: 1e-4 },
  } as Policy;
  checkTotals(policy, both.slice(0, 2), chained);
  checkTotals({ ...policy, totalLocalEpsilonCap: 2 }, both.slice(0, 2), chained);
  for (const [changes, claim, which] of [
    [{ totalCoalitionEpsilonCap: 6.9 }, chained, /coalition epsilon is 6\.9 at delta 0\.0001; 5 /],
    [{ totalCentralEpsilonCap: 1.2 }, chained, /central epsilon is 1\.2 at delta 0\.0001; 0\.75 /],
    [{}, plain, /local epsilon is 3; 3 /],
  ] as const) {
    const spent = both.slice(0, 2);
    assert.throws(() => checkTotals({ ...policy, ...changes }, spent, claim), which);
  }
});

test("the noise of two shufflers is checked together, and of each alone, within a second", () => {
  const weight = 2 ** 30 - 2 ** 21;
  const noise = { distribution: "geometric", peak: 8000, most: 16_000, leftWeight: weight, rightWeight: weight }; // biome-ignore format: one step
  const task = parseTask(utf8(vectors("chain-sageo").task));
  const [centralEpsilon, coalitionEpsilon] = [0.003, 0.003];
  const changed = { ...task, centralEpsilon, coalitionEpsilon, noises: [[noise, noise]] as never };
  const start = process.cpuUsage();
  for (const [found, bound] of [
    [deltaAtClaim(changed), 6.437221495335353e-7], // the bounds of the Python device
    [deltaOfCoalition(changed), 2.278590554482656e-4],
  ] as const) {
    assert.ok(found !== null && found >= bound && found < bound * 1.000001, `${found}`);
  }
  assert.ok(process.cpuUsage(start).user < 1e6);
  const dear = { ...changed, noises: [[noise, { ...noise, most: 24_000 }]] as never };
  assert.equal(deltaAtClaim(dear), null);
});

test("the claims of several tables are left to checking witnesses", () => {
  for (const name of ["tables", "geo-tables", "one-table"]) {
    const task = parseTask(utf8(vectors(`transcript-${name}`).task));
    assert.equal(deltaAtClaim(task) !== null, task.views.length === 1, name);
  }
  const two = parseTask(utf8(vectors("tasks").accepted["two-geo-tables"].bytes));
  assert.deepEqual([deltaAtClaim(two), deltaOfCoalition(two)], [null, null]);
});

test("decimals are summed exactly, and rounded up", () => {
  assert.equal(sumUpper(Array.from({ length: 10 }, () => 0.1)), 1);
  assert.equal(sumUpper([0.1, 0.2]), 0.3);
  assert.equal(sumUpper([1e-20, 1]), 1.0000000000000002);
  assert.equal(sumUpper([]), 0);
  assert.equal(shareOf(10, 0.9), 9);
  assert.equal(shareOf(1000, 1), 1000);
});
