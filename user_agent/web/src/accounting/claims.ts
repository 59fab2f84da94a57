/** Check a task's claim of central ε: common/accounting/claims.py and guarantees.py. */

import { MARGIN } from "../binomial";
import { shareOf } from "../decimal";
import { EXTRA_WEIGHT_SUM, ItemDummies, UniformDummies } from "../task/dummies";
import type { Noise } from "../task/parts";
import type { Task } from "../task/task";
import { deltaUpper } from "./amplification";
import { binomialDelta, eachItemDelta, geometricDelta } from "./item_noise";
import { twoItemsDelta } from "./two_items";

/** Largest number of users, and of dummies, for which the bounds have been checked. */
const MAX_COUNT = 10 ** 9;

/**
 * Return an upper bound on the δ of a task's claimed central ε for its n_min users.
 *
 * The claim is true if the bound is at most the task's δ. null if this device has no formula: for
 * several views, negative binomial dummies, noise by both the devices and the shuffler.
 * Cost: at most about a second.
 */
export function deltaAtClaim(task: Task): number | null {
  const { localEpsilon: local, centralEpsilon: epsilon, mechanism, dummies, noises } = task;
  if (epsilon >= local) return 0;
  if (!task.row.isAmplified) {
    return (-Math.expm1(epsilon - local) / (1 + Math.exp(-local))) * MARGIN; // [KOV15]
  }
  const users = Math.max(1, shareOf(task.nMin, task.assumedHonestFraction));
  const [noise = [], ...others] = noises;
  const isNoiseless = mechanism.otherWeight === 0n;
  if (others.length) return null;
  if (task.row.noise !== "none") return isNoiseless ? noiseDelta(noise, task.keep, epsilon) : null;
  if (dummies instanceof ItemDummies) {
    return eachItemDelta(dummies, dummies.extraWeight / EXTRA_WEIGHT_SUM, users, epsilon);
  }
  const hasFormula = dummies instanceof UniformDummies;
  if (!hasFormula || dummies.distribution === "negative-binomial") return null;
  const { buckets: answers, trueWeight, otherWeight } = mechanism;
  const total = Number(trueWeight + (BigInt(answers) - 1n) * otherWeight);
  const reduction = {
    answers,
    blanket: (answers * Number(otherWeight)) / total,
    signal: Number(trueWeight - otherWeight) / total,
    isHashed: mechanism.name === "local-hashing",
  };
  const adding = Math.min(users, Math.floor(MAX_COUNT / Math.max(1, dummies.trials)));
  const anonymitySet = {
    others: users - 1,
    dummies: Math.min(users * dummies.perUser, MAX_COUNT),
    randomDummies: adding * dummies.trials,
    dummyChance: dummies.extraWeight / EXTRA_WEIGHT_SUM,
  };
  const isTwoItems = answers === 2 && !reduction.isHashed && !isNoiseless;
  return (isTwoItems ? twoItemsDelta : deltaUpper)(reduction, anonymitySet, epsilon);
}

/** Return an upper bound on δ at the coalition's ε: of the weaker of two noises; null as above. */
export function deltaOfCoalition({ relay, noises, keep, coalitionEpsilon }: Task): number | null {
  const [noise = [], ...others] = noises;
  if (relay === null) return 0;
  if (others.length) return null;
  return Math.max(...noise.map((alone) => noiseDelta([alone], keep, coalitionEpsilon) ?? 1));
}

/** Return δ of the noise of one shuffler or of two; coins add up. */
function noiseDelta(noises: readonly Noise[], keep: number, epsilon: number): number | null {
  const geometric = noises.filter((noise) => noise.distribution === "geometric");
  if (geometric.length) return geometricDelta(geometric, keep, epsilon);
  const trials = noises.reduce((sum, noise) => sum + ("trials" in noise ? noise.trials : 0), 0);
  return binomialDelta(trials, 1 / 2, keep, epsilon);
}
