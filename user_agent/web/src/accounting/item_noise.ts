/**
 * Noise on each item's count, from dummies that name every item: common/accounting/item_noise.py.
 *
 * z dummies with distribution g name an item; a report is kept with probability β. With r = f/g for
 * f = (1-β)·g + β·g(· - 1),
 *
 *     δ(ε) = Σ g(k1)·g(k2)·(r(k1) - e^ε·r(k2))_+.
 *
 * Masses and sums are rounded up, and outcomes outside a window are charged in full.
 */

import { binomialWindow, MARGIN, MAX_EPSILON, upperTails } from "../binomial";
import { type GeometricNoise, RATIO_SUM } from "../task/parts";

/** Largest probability, charged to δ, that more users are excluded than assumed. */
const EXCLUDED_TAIL = 1e-20;
/** More than a mass that is too small for a float can hold. */
const LOST_TO_UNDERFLOW = 1e-290;
/** Below 1 by more than a ratio's rounding: a pair too many adds next to nothing, one too few errs. */
const THRESHOLD_FACTOR = 1 - 1e-14;
/** Roundings that do not grow with the number of ratios, amply. */
const EXTRA_ROUNDINGS = 64;

export function binomialDelta(
  trials: number,
  chance: number,
  keep: number,
  epsilon: number,
): number {
  const { first, masses, below, above } = binomialWindow(trials, chance);
  const ratios = masses.map((_, at) => {
    const k = first + at;
    const before = k === 0 ? 0 : (k * (1 - chance)) / ((trials - k + 1) * chance);
    return 1 - keep + keep * before;
  });
  const last = keep * (masses.at(-1) ?? 0) + above;
  return excess(ratios, masses, last + 2 * below + above, epsilon);
}

/** Return δ of noise that is two-sided geometric: three ratios, at 0, up to the peak, beyond it. */
export function geometricDelta(noise: GeometricNoise, keep: number, epsilon: number): number {
  const [left, right] = [noise.leftWeight / RATIO_SUM, noise.rightWeight / RATIO_SUM];
  const fallen = noise.peak * Math.log(left);
  const span = (noise.most - noise.peak) * Math.log(right);
  const weights = [
    Math.exp(fallen),
    -Math.expm1(fallen) / (1 - left),
    (-right * Math.expm1(span)) / (1 - right),
  ];
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const masses = Float64Array.from(weights, (weight) => (weight / total) * MARGIN);
  const ratios = Float64Array.of(0, left, 1 / right).map((before) => 1 - keep + keep * before);
  const certain = ((keep * Math.exp(span)) / total) * MARGIN + LOST_TO_UNDERFLOW;
  return excess(ratios, masses, certain, epsilon);
}

/**
 * Return δ where each user adds a dummy of each item by chance, redrawn above `most` [BC20].
 *
 * Users whose dummies of other items exceed most - 2 are excluded (docs/theory/accounting.md).
 */
export function eachItemDelta(
  spec: { trials: number; most: number },
  chance: number,
  users: number,
  epsilon: number,
): number {
  const share = Math.min(1, beyond(Math.max(0, spec.trials - 2), chance, spec.most - 2));
  let excluded = Math.min(users, Math.floor(users * share));
  while (excluded < users && beyond(users, share, excluded) > EXCLUDED_TAIL) excluded += 1;
  const missing = beyond(users, share, excluded);
  return Math.min(1, missing + binomialDelta(users - excluded, chance, 1, epsilon));
}

/** Return P(X > k) for X ~ Binomial(trials, chance), rounded up. */
function beyond(trials: number, chance: number, k: number): number {
  if (k >= trials) return 0;
  const window = binomialWindow(trials, chance);
  const at = k + 1 - window.first;
  return at <= 0 ? 1 : Math.min(1, upperTails(window)[Math.min(at, window.masses.length)] ?? 0);
}

/** Sum over the pairs of ascending ratios of which the first exceeds e^ε times the second. */
function excess(
  ratios: Float64Array,
  masses: Float64Array,
  certain: number,
  epsilon: number,
): number {
  const growth = Math.exp(Math.min(epsilon, MAX_EPSILON));
  let [f, g, start] = [0, 0, ratios.length];
  let [first, second] = [0, 0];
  for (let at = ratios.length - 1; at >= 0; at--) {
    const [ratio, mass] = [ratios[at] ?? 0, masses[at] ?? 0];
    const threshold = ratio * growth * THRESHOLD_FACTOR;
    for (; start > 0 && (ratios[start - 1] ?? 0) > threshold; start--) {
      g += masses[start - 1] ?? 0;
      f += (masses[start - 1] ?? 0) * (ratios[start - 1] ?? 0);
    }
    first += mass * f;
    second += growth * mass * ratio * g;
  }
  // The masses are rounded up, and the terms rise with them; only the sums' own roundings are left.
  const rounding = (2 * ratios.length + EXTRA_ROUNDINGS) * 2 ** -52 * (first + second);
  return Math.min(1, certain + Math.max(0, first - second + rounding));
}
