/** Check a task, even a signed one, and its cost against the device's own limits: policy.py. */

import type { Claim } from "./account";
import { deltaAtClaim } from "./accounting/claims";
import { checkKey, ENVELOPE_KEY, type Identity, TOKEN_KEY } from "./crypto/signing";
import { roundedUp, sumUpper } from "./decimal";
import { BudgetError, PolicyError } from "./errors";
import { keepsPromise, mechanismOf } from "./mechanisms/registry";
import type { Task } from "./task/task";

/** A person's pins, and limits on a single task and on the total of all tasks. */
export interface Policy {
  readonly analyzer: Identity;
  readonly shuffler: Identity;
  /** null if this device has no issuer. */
  readonly issuer: Identity | null;
  /** Whether to answer tasks to which anybody may submit any number of times. */
  readonly allowTasksWithoutTokens: boolean;
  /** Maximum local ε of one answer; infinite to allow reports without noise. */
  readonly localEpsilonCap: number;
  readonly totalLocalEpsilonCap: number;
  /** Maximum central ε of all answers together, at totalDeltaCap. */
  readonly totalCentralEpsilonCap: number;
  readonly totalDeltaCap: number;
  /** Checking witnesses that must have cosigned a task whose claim this device cannot check. */
  readonly checkingQuorum: number;
}

/**
 * Check that this device may answer a verified task.
 *
 * No claim is trusted: the weights are compared with the local ε in exact arithmetic, and δ is
 * recomputed at the central ε. Where this device has no formula, `checkedBy` checking witnesses must
 * have cosigned, as many as the policy asks for; if it asks for none, such a task is refused.
 * Returns whether this device has the formula.
 */
export async function checkTask(
  task: Task,
  policy: Policy,
  now: number,
  checkedBy: number,
): Promise<boolean> {
  const { key, proof } = task.shuffler;
  await checkKey(policy.shuffler, ENVELOPE_KEY, task.suite, key, proof);
  await checkTokens(task, policy);
  if (!(now < task.deadline)) throw new PolicyError("deadline_passed");
  if (!(task.localEpsilon <= policy.localEpsilonCap)) {
    const epsilon = String(task.localEpsilon);
    throw new PolicyError("local_cap", { epsilon, cap: policy.localEpsilonCap });
  }
  const { factors } = await mechanismOf(task);
  if (!keepsPromise(task.mechanism, factors, task.localEpsilon)) {
    throw new PolicyError("false_local_claim", { epsilon: task.localEpsilon });
  }
  const found = deltaAtClaim(task);
  const { protocol, centralEpsilon: epsilon, delta } = task;
  if (found === null) {
    const needed = policy.checkingQuorum;
    if (needed < 1 || checkedBy < needed) {
      throw new PolicyError("claim_not_checked", { protocol, checkedBy, needed });
    }
  } else if (!(found <= delta)) {
    throw new PolicyError("false_central_claim", { epsilon, delta, found: roundedUp(found) });
  }
  return found !== null;
}

async function checkTokens({ tokens }: Task, policy: Policy): Promise<void> {
  if (tokens === null) {
    if (!policy.allowTasksWithoutTokens) throw new PolicyError("no_tokens");
  } else if (policy.issuer === null) {
    throw new PolicyError("no_issuer", { issuer: tokens.issuer });
  } else {
    await checkKey(policy.issuer, TOKEN_KEY, tokens.issuer, tokens.key.der, tokens.proof);
  }
}

/** Raise BudgetError if one more answer would exceed the person's totals. */
export function checkTotals(policy: Policy, spent: readonly Claim[], claim: Claim): void {
  const together = [...spent, claim];
  const tasks = spent.length;
  const { totalLocalEpsilonCap, totalCentralEpsilonCap: cap, totalDeltaCap: delta } = policy;
  if (!(localTotal(together) <= totalLocalEpsilonCap)) {
    const before = roundedUp(localTotal(spent));
    const more = roundedUp(claim.localEpsilon);
    throw new BudgetError("local_budget", { cap: totalLocalEpsilonCap, before, tasks, more });
  }
  if (!(centralTotal(together, delta) <= cap)) {
    const before = roundedUp(centralTotal(spent, delta));
    const more = roundedUp(claim.centralEpsilon);
    throw new BudgetError("central_budget", { cap, delta, before, tasks, more });
  }
}

export function localTotal(claims: readonly Claim[]): number {
  return sumUpper(claims.map((claim) => claim.localEpsilon));
}

/**
 * Return an upper bound on the composed central ε of claims at δ, at most their local total.
 *
 * It is the sum of the ε, if the δ of the amplified claims fit into δ. The Python device takes the
 * lesser of this sum and a composition, so the bound is never below its own.
 */
export function centralTotal(claims: readonly Claim[], delta: number): number {
  const amplified = claims.filter((claim) => claim.centralEpsilon < claim.localEpsilon);
  const fits = sumUpper(amplified.map((claim) => claim.delta)) <= delta;
  const sum = sumUpper(claims.map((claim) => claim.centralEpsilon));
  return Math.min(localTotal(claims), fits ? sum : Number.POSITIVE_INFINITY);
}
