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
/** Relative error of a tabulated mass, and the least mass that a table keeps. */
const TABLE_ERROR = 1e-12;
const CUT = 1e-40;
const CERTAIN = { masses: Float64Array.of(1), rest: 0 };
/** Largest number of products of a convolution: half a second. */
const MOST_PRODUCTS = 2 ** 28;
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

/**
 * Return δ of a two-sided geometric number, or of the sum of two; null for too many pairs of values.
 *
 * Sums of positive terms keep their relative error; ratios rise, but for roundings. What the tables
 * leave out makes f and g smaller, and is charged once for each of k1 and k2.
 */
export function geometricDelta(noises: readonly GeometricNoise[], keep: number, epsilon: number) {
  const [one = CERTAIN, other = CERTAIN] = noises.map(table);
  const [rows, columns] = [one.masses, other.masses];
  if (rows.length * columns.length > MOST_PRODUCTS) return null;
  const masses = new Float64Array(rows.length + columns.length - 1);
  rows.forEach((mass, i) => {
    for (let j = 0; j < columns.length; j++) {
      masses[i + j] = (masses[i + j] ?? 0) + mass * (columns[j] ?? 0);
    }
  });
  let before = 0;
  const ratios = masses.map((mass, at) => {
    before = Math.max(before, (masses[at - 1] ?? 0) / mass);
    return 1 - keep + keep * before;
  });
  const roundings = (Math.min(rows.length, columns.length) + EXTRA_ROUNDINGS) * 2 ** -52;
  const certain = keep * (masses.at(-1) ?? 0) + 2 * (one.rest + other.rest) + LOST_TO_UNDERFLOW;
  return excess(ratios, masses, certain * MARGIN, epsilon, 2 * TABLE_ERROR + roundings);
}

/** Tabulate the likely values, which are one stretch, and sum the probability of the rest. */
function table({ leftWeight, rightWeight, peak, most }: GeometricNoise) {
  const [left, right] = [leftWeight / RATIO_SUM, rightWeight / RATIO_SUM];
  const [below, above] = [Math.log(left), Math.log(right)];
  const beyond = (right * Math.expm1((most - peak) * above)) / (1 - right);
  const total = Math.exp(peak * below) - Math.expm1(peak * below) / (1 - left) - beyond;
  const log = (z: number) => (z < peak ? (peak - z) * below : (z - peak) * above);
  const all = Float64Array.from({ length: most + 1 }, (_, z) => Math.exp(log(z)) / total);
  const rest = all.reduce((sum, mass) => sum + (mass > CUT ? 0 : mass), 0);
  return { masses: all.filter((mass) => mass > CUT), rest };
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
  error = 0,
): number {
  const growth = Math.exp(Math.min(epsilon, MAX_EPSILON));
  let [f, g, start] = [0, 0, ratios.length];
  let [first, second] = [0, 0];
  for (let at = ratios.length - 1; at >= 0; at--) {
    const [ratio, mass] = [ratios[at] ?? 0, masses[at] ?? 0];
    const threshold = ratio * growth * (THRESHOLD_FACTOR - 5 * error);
    for (; start > 0 && (ratios[start - 1] ?? 0) > threshold; start--) {
      g += masses[start - 1] ?? 0;
      f += (masses[start - 1] ?? 0) * (ratios[start - 1] ?? 0);
    }
    first += mass * f;
    second += growth * mass * ratio * g;
  }
  // Masses are rounded up, and the terms rise with them; or they have an error, and ratios twice it.
  const rounding = (2 * ratios.length + EXTRA_ROUNDINGS) * 2 ** -52 + 10 * error;
  return Math.min(1, certain + Math.max(0, first - second + rounding * (first + second)) * MARGIN);
}
