import assert from "node:assert/strict";
import { test } from "node:test";
import { deltaAtClaim } from "../src/accounting/claims";
import { utf8 } from "../src/bytes";
import { shareOf, sumUpper } from "../src/decimal";
import { BudgetError } from "../src/errors";
import { centralTotal, checkTotals, localTotal, type Policy } from "../src/policy";
import { parseTask } from "../src/task/task";
import { vectors } from "./vectors";

for (const { task: text, delta_at_claim: expected } of vectors("transcript_claims")) {
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

test("decimals are summed exactly, and rounded up", () => {
  assert.equal(sumUpper(Array.from({ length: 10 }, () => 0.1)), 1);
  assert.equal(sumUpper([0.1, 0.2]), 0.3);
  assert.equal(sumUpper([1e-20, 1]), 1.0000000000000002);
  assert.equal(sumUpper([]), 0);
  assert.equal(shareOf(10, 0.9), 9);
  assert.equal(shareOf(1000, 1), 1000);
});
