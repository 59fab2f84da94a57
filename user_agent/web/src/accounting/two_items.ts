/**
 * Randomized response over two items, at the worst values of all others.
 *
 * common/accounting/two_items.py has the formulas, docs/theory/accounting.md the proofs. If j of the
 * others hold x, δ is a sum over a contour of about twenty terms; intervals of j are bounded, and
 * halved until the largest bound is close to the maximum.
 */

import { binomialWindow, MARGIN, MAX_EPSILON } from "../binomial";
import { type AnonymitySet, binned, NEGLIGIBLE, type Reduction } from "./amplification";

/** Relative excess of δ that intervals may cause, and bounds below which none is halved. */
const TOLERANCE = 4e-3;
const LEAST = 1e-18;
/** Most intervals, and most if the number of dummies is random. */
const MOST = 4096;
const MOST_BINNED = 1024;
/** Bins of random dummies in a standard deviation, and how many are one while intervals are halved. */
const BINS = 16;
const COARSE = 8;
const ROUNDING = 2 ** -52;
/** Minus the log of what a sum leaves out, and a bound on it and on errors of terms near 0. */
const LOG_TAIL = 40;
const LOST = 1e-15;

/** Others who hold x, others who hold x', and dummies. */
type Counts = readonly [number, number, number];

/**
 * Return an upper bound on δ at ε: 1 if ε is above MAX_EPSILON.
 *
 * Cost: milliseconds; up to two seconds for a random number of dummies.
 */
export function twoItemsDelta(reduction: Reduction, set: AnonymitySet, epsilon: number): number {
  if (!(epsilon <= MAX_EPSILON)) return 1;
  const { others, dummies, randomDummies, dummyChance } = set;
  const delta = exactDelta(reduction, epsilon);
  const random = binomialWindow(randomDummies, dummyChance);
  const deviation = Math.sqrt(randomDummies * dummyChance * (1 - dummyChance));
  const average = (bins: number) => {
    const width = bins * Math.max(1, Math.floor(deviation / BINS));
    const masses = binned(random, width);
    return (low: number, high: number) =>
      masses.reduce((sum, mass, at) => {
        const counts: Counts = [low, others - high, dummies + random.first + at * width];
        return sum + (mass < NEGLIGIBLE ? mass : mass * delta(counts));
      }, random.below);
  };
  const [coarse, fine] = [average(deviation > BINS ? COARSE : 1), average(1)];
  const most = 2 * (randomDummies ? MOST_BINNED : MOST);
  const queue: [low: number, high: number][] = [[0, others]];
  const kept: [bound: number, low: number, high: number][] = [];
  let [worst, found] = [0, 0];
  for (const [low, high] of queue) {
    const middle = Math.floor((low + high) / 2);
    found = Math.max(found, coarse(middle, middle));
    const bound = coarse(low, high);
    const isWide = bound > Math.max((1 + TOLERANCE) * found, LEAST);
    if (isWide && low < high && queue.length < most) queue.push([low, middle], [middle + 1, high]);
    else kept.push([bound, low, high]);
  }
  kept.sort(([one], [other]) => other - one);
  for (const [bound, low, high] of kept) {
    if (bound <= worst) break; // finer bins only lower a bound
    worst = Math.max(worst, fine(low, high));
  }
  return Math.min(1, worst * MARGIN);
}

/** Return δ at ε as a function of the counts, rounded up. */
function exactDelta({ signal, blanket }: Reduction, epsilon: number): (counts: Counts) => number {
  const growth = Math.expm1(epsilon);
  const lost = (blanket / 2) * growth;
  const a = signal - lost + 8 * ROUNDING * (signal + lost);
  if (a <= 0) return () => 0;
  const tilt = Math.log1p(growth / a) * (1 - 16 * ROUNDING);
  const rise = Math.expm1(tilt);
  const chances = [signal + blanket / 2, blanket / 2, 1 / 2];
  const logs = chances.map((chance) => Math.log1p(chance * rise));
  const tilted = chances.map((chance) => (chance * (1 + rise)) / (1 + chance * rise));
  const summed = (counts: Counts, terms: readonly number[]) =>
    counts.reduce((sum, count, at) => sum + count * (terms[at] ?? 0), 0);
  const variances = tilted.map((chance) => chance * (1 - chance));
  return (counts) => {
    const total = counts[0] + counts[1] + counts[2];
    const [logMoment, variance] = [summed(counts, logs), summed(counts, variances)];
    const reach = LOG_TAIL / 3 + Math.sqrt((LOG_TAIL / 3) ** 2 + 2 * LOG_TAIL * variance);
    const points = Math.min(Math.ceil(1.5 + reach), total + 2);
    const cut = Math.asin(Math.sqrt(LOG_TAIL / Math.max(2 * variance, LOG_TAIL))) / Math.PI;
    const last = Math.min(Math.floor(points / 2), Math.ceil(cut * points));
    const middle = Math.round(summed(counts, tilted));
    const sums: [number, number, number] = [0, 0, 0];
    let error = LOST;
    for (let step = 1; step <= last; step++) {
      const angle = (2 * Math.PI * step) / points;
      const [log, phase] = characteristic(counts, tilted, angle / 2);
      const size = ((2 * step < points ? 2 : 1) / points) * (1 + rise) * Math.exp(log);
      const halfSquare = Math.sin(angle / 2) ** 2;
      const square = rise ** 2 + 4 * (1 + rise) * halfSquare;
      const real = (size * (2 + rise) * 2 * halfSquare) / square;
      const imaginary = (size * rise * Math.sin(angle)) / square;
      error += ROUNDING * (real + Math.abs(imaginary)) * (64 + 16 * total * angle);
      for (const at of [0, 1, 2] as const) {
        const turned = phase - (middle + at - 1) * angle;
        sums[at] += real * Math.cos(turned) - imaginary * Math.sin(turned);
      }
    }
    const wrapped = a * (tilt > 0 ? rise / Math.expm1(points * tilt) : 1 / points);
    const found = sums.map((h, at) => {
      const mode = (middle + at - 1) * tilt;
      const rounding = 8 * ROUNDING * (1 + logMoment + mode);
      return a * Math.exp(logMoment - mode + rounding) * (Math.max(h, 0) + error) + wrapped;
    });
    return Math.max(...found) * MARGIN;
  };
}

/** Return the log and the phase of E[e^(itW)] at t = 2·half, for a sum W of independent bits. */
function characteristic(counts: Counts, chances: readonly number[], half: number) {
  const [sine, cosine] = [Math.sin(half), Math.cos(half)];
  let [log, phase] = [0, 0];
  chances.forEach((chance, at) => {
    const count = counts[at] ?? 0;
    const lost = 4 * chance * (1 - chance) * sine ** 2;
    const rest = cosine ** 2 + (1 - 2 * chance) ** 2 * sine ** 2;
    if (count) log += (count / 2) * (lost < 1 / 2 ? Math.log1p(-lost) : Math.log(rest));
    phase += count * Math.atan2(2 * chance * sine * cosine, 1 - 2 * chance * sine ** 2);
  });
  return [log, phase] as const;
}
