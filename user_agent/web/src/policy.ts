/** Check a task, even a signed one, and its cost against the device's own limits: policy.py. */

import { type Claim, coalitionOf, hasRelay } from "./account";
import { checkKey, ENVELOPE_KEY, type Identity, RELAY_KEY, TOKEN_KEY } from "./crypto/signing";
import { roundedUp, sumUpper } from "./decimal";
import { BudgetError, loadPart, PolicyError } from "./errors";
import { keepsPromise, mechanismOf } from "./mechanisms/registry";
import type { Task } from "./task/task";

/** A person's pins, and limits on a single task and on the total of all tasks. */
export interface Policy {
  readonly analyzer: Identity;
  readonly shuffler: Identity;
  /** The second of two shufflers; without it this device answers no task that has two. */
  readonly relay?: Identity | null;
  /** Their operators' names; if given, tasks with two shufflers must call them so. */
  readonly shufflerName?: string | null;
  readonly relayName?: string | null;
  /** null if this device has no issuer. */
  readonly issuer: Identity | null;
  /** Whether to answer tasks to which anybody may submit any number of times. */
  readonly allowTasksWithoutTokens: boolean;
  /** Maximum local ε of an answer with one shuffler; infinite to allow reports without noise. */
  readonly localEpsilonCap: number;
  readonly totalLocalEpsilonCap: number;
  /** Maximum ε of one answer against the analyzer with any one shuffler, and of all together. */
  readonly coalitionEpsilonCap: number;
  readonly totalCoalitionEpsilonCap: number;
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
  const { suite, shuffler, relay } = task;
  await checkKey(policy.shuffler, ENVELOPE_KEY, suite, shuffler.key, shuffler.proof);
  if (relay !== null) {
    if (!policy.relay) throw new PolicyError("no_relay", { relay: relay.name });
    await checkKey(policy.relay, RELAY_KEY, suite, relay.key, relay.proof);
    for (const [{ name }, pinned] of [
      [shuffler, policy.shufflerName],
      [relay, policy.relayName],
    ] as const) {
      if (pinned && pinned !== name) throw new PolicyError("other_name", { name, pinned });
    }
  }
  await checkTokens(task, policy);
  if (!(now < task.deadline)) throw new PolicyError("deadline_passed");
  for (const [which, epsilon, cap] of [
    ["local", relay ? 0 : task.localEpsilon, policy.localEpsilonCap],
    ["coalition", task.coalitionEpsilon, policy.coalitionEpsilonCap],
  ] as const) {
    if (!(epsilon <= cap)) throw new PolicyError("epsilon_cap", { which, epsilon, cap });
  }
  const { factors } = await mechanismOf(task);
  if (!keepsPromise(task.mechanism, factors, task.localEpsilon)) {
    throw new PolicyError("false_local_claim", { epsilon: task.localEpsilon });
  }
  const { deltaAtClaim, deltaOfCoalition } = await loadPart(import("./accounting/claims"));
  const [found, alone] = [deltaAtClaim(task), deltaOfCoalition(task)];
  const { protocol, centralEpsilon: epsilon, delta } = task;
  if (found === null || alone === null) {
    const needed = policy.checkingQuorum;
    if (needed < 1 || checkedBy < needed) {
      throw new PolicyError("claim_not_checked", { protocol, checkedBy, needed });
    }
  } else if (!(found <= delta)) {
    throw new PolicyError("false_central_claim", { epsilon, delta, found: roundedUp(found) });
  }
  if (alone !== null && !(alone <= delta)) {
    const figures = { epsilon: task.coalitionEpsilon, delta, found: roundedUp(alone) };
    throw new PolicyError("false_coalition_claim", figures);
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
  const { totalLocalEpsilonCap, totalDeltaCap: delta } = policy;
  if (!hasRelay(claim) && !(localTotal(together) <= totalLocalEpsilonCap)) {
    const before = roundedUp(localTotal(spent));
    const more = roundedUp(claim.localEpsilon);
    throw new BudgetError("local_budget", { cap: totalLocalEpsilonCap, before, tasks, more });
  }
  for (const [which, cap, of] of [
    ["central", policy.totalCentralEpsilonCap, centralOf],
    ["coalition", policy.totalCoalitionEpsilonCap, coalitionOf],
  ] as const) {
    if (composed(together, delta, of) <= cap) continue;
    const before = roundedUp(composed(spent, delta, of));
    const more = roundedUp(of(claim));
    throw new BudgetError("composed_budget", { which, cap, delta, before, tasks, more });
  }
}

/** Return the sum of the local ε, to which answers through two shufflers add nothing. */
export function localTotal(claims: readonly Claim[]): number {
  return sumUpper(claims.map((claim) => (hasRelay(claim) ? 0 : claim.localEpsilon)));
}

const centralOf = (claim: Claim) => claim.centralEpsilon;

/** Return an upper bound on the composed central ε, or coalition ε, of claims at δ. */
export const centralTotal = (claims: readonly Claim[], delta: number) =>
  composed(claims, delta, centralOf);
export const coalitionTotal = (claims: readonly Claim[], delta: number) =>
  composed(claims, delta, coalitionOf);

/**
 * Return an upper bound on the composed ε of claims at δ, at most the sum of all local ε.
 *
 * It is the sum of the ε, if the δ of the amplified claims fit into δ. The Python device takes the
 * lesser of this sum and a composition, so the bound is never below its own.
 */
function composed(claims: readonly Claim[], delta: number, of: (claim: Claim) => number): number {
  const amplified = claims.filter((claim) => of(claim) < claim.localEpsilon);
  const fits = sumUpper(amplified.map((claim) => claim.delta)) <= delta;
  const local = sumUpper(claims.map((claim) => claim.localEpsilon));
  return Math.min(local, fits ? sumUpper(claims.map(of)) : Number.POSITIVE_INFINITY);
}
