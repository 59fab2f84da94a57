import assert from "node:assert/strict";
import { test } from "node:test";
import { deltaAtClaim } from "../src/accounting/claims";
import { utf8 } from "../src/bytes";
import { shareOf, sumUpper } from "../src/decimal";
import { centralTotal, localTotal } from "../src/policy";
import { parseTask } from "../src/task/task";
import { vectors } from "./vectors";

for (const { task: text, delta_at_claim: expected } of vectors("transcript_claims")) {
  const task = parseTask(utf8(text));
  test(`the claim of ${task.protocol} for ${task.nMin} users is confirmed`, () => {
    const start = process.cpuUsage();
    const found = deltaAtClaim(task) ?? 1;
    assert.ok(process.cpuUsage(start).user < 2e6);
    assert.ok(found <= task.delta, `${found} exceeds ${task.delta}`);
    assert.ok(found >= expected * 0.99 && found <= expected * 1.002, `${found} is not ${expected}`);
  });
}

test("totals are never below those of the Python device", () => {
  for (const { claims, delta, local, central } of vectors("transcript_budgets")) {
    const numbers = (each: (string | number)[]) => each.map((one) => Number(String(one).replace("inf", "Infinity"))); // biome-ignore format: one step
    const spent = claims.map(numbers).map(([localEpsilon = 0, centralEpsilon = 0, delta = 0]: number[]) => ({ localEpsilon, centralEpsilon, delta })); // biome-ignore format: one step
    assert.equal(localTotal(spent), Number(local.replace("inf", "Infinity")));
    assert.ok(centralTotal(spent, delta) >= Number(central.replace("inf", "Infinity")));
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
