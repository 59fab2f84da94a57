/**
 * Binomial probabilities on a window, all rounded up: common/accounting/count_distributions.py.
 *
 * Masses follow from the mode outward by their exact ratios, and are divided by their sum, which
 * can only enlarge them. Each step errs by a few roundings; `MARGIN` covers all of a window.
 */

/** Relative margin on every sum of this folder: far above the error of a million roundings. */
export const MARGIN = 1 + 1e-8;
/** Largest central ε whose δ is computed: common/accounting/epsilon_search.py. */
export const MAX_EPSILON = 100;
/** Share of the mode's mass at which a window ends. */
const END = 1e-26;

/** P(X = first + k) for X ~ Binomial(trials, chance), and bounds on the mass beyond both ends. */
export interface Window {
  readonly first: number;
  readonly masses: Float64Array;
  readonly below: number;
  readonly above: number;
}

export function binomialWindow(trials: number, chance: number): Window {
  if (trials === 0 || chance === 0) return certain(0);
  if (chance >= 1) return certain(trials);
  const mode = Math.min(trials, Math.floor((trials + 1) * chance));
  const odds = chance / (1 - chance);
  const up = steps((k) => ((trials - k) / (k + 1)) * odds, mode, trials, 1);
  const down = steps((k) => k / (trials - k + 1) / odds, mode, 0, -1);
  const masses = new Float64Array(down.length + 1 + up.length);
  masses.set(down.toReversed());
  masses[down.length] = 1;
  masses.set(up, down.length + 1);
  const total = masses.reduce((sum, mass) => sum + mass, 0);
  for (let at = 0; at < masses.length; at++) masses[at] = ((masses[at] ?? 0) / total) * MARGIN;
  const first = mode - down.length;
  const last = mode + up.length;
  return {
    first,
    masses,
    below: beyond(masses[0] ?? 0, first === 0 ? 0 : first / (trials - first + 1) / odds),
    above: beyond(masses.at(-1) ?? 0, ((trials - last) / (last + 1)) * odds),
  };
}

function certain(value: number): Window {
  return { first: value, masses: Float64Array.of(1), below: 0, above: 0 };
}

/** Return the masses after the mode, in units of its mass, until they hardly matter. */
function steps(ratio: (k: number) => number, mode: number, end: number, by: number): Float64Array {
  const found: number[] = [];
  let mass = 1;
  for (let k = mode; k !== end && mass > END; k += by) {
    mass *= ratio(k);
    found.push(mass);
  }
  return Float64Array.from(found);
}

/** Bound the sum of a tail whose terms fall at least as fast as the first ratio. */
function beyond(last: number, ratio: number): number {
  return ratio >= 1 ? 1 : ((last * ratio) / (1 - ratio)) * MARGIN;
}

/** Return P(X ≥ first + k), rounded up, for each k of a window. */
export function upperTails({ masses, above }: Window): Float64Array {
  const tails = new Float64Array(masses.length + 1);
  tails[masses.length] = above;
  for (let at = masses.length - 1; at >= 0; at--) {
    tails[at] = (tails[at + 1] ?? 0) + (masses[at] ?? 0);
  }
  return tails;
}

/** ln of P(X = k) for X ~ Binomial(trials, chance), to about 1e-10 [Loa00]. */
export function logMass(k: number, trials: number, chance: number): number {
  if (k < 0 || k > trials) return Number.NEGATIVE_INFINITY;
  const rest = stirling(trials) - stirling(k) - stirling(trials - k);
  return rest - deviance(k, trials * chance) - deviance(trials - k, trials * (1 - chance));
}

/** ln k! - k·ln k + k [DLMF, 5.11.1]. */
function stirling(k: number): number {
  if (k >= 12) {
    const inverse = 1 / (k * k);
    const series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))) / k;
    return 0.5 * Math.log(2 * Math.PI * k) + series;
  }
  let log = 0;
  for (let factor = 2; factor <= k; factor++) log += Math.log(factor);
  return log - (k > 0 ? k * Math.log(k) : 0) + k;
}

/** k·ln(k/mean) - k + mean, without cancellation near the mean. */
function deviance(k: number, mean: number): number {
  if (k === 0) return mean;
  if (mean === 0) return Number.POSITIVE_INFINITY;
  const excess = (k - mean) / mean;
  return mean * ((1 + excess) * Math.log1p(excess) - excess);
}
