/**
 * Formula 1: amplification by shuffling among honest users and uniform dummies.
 *
 *     δ(ε | M) = l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε - 1)·q/(p-q))_+],   δ(ε) = E_M[δ(ε | M)]
 *
 * docs/theory/accounting.md defines the terms, and shows that δ(ε | M) falls with M: the blanket
 * size M is binned, and each bin counts at its lower edge. Unlike common/accounting/conditional.py,
 * which replaces the average over H_x' by chords, every count is summed here. Sums are rounded up by
 * `MARGIN`, and what lies beyond a window is charged in full.
 */

import { binomialWindow, logMass, MARGIN, MAX_EPSILON, upperTails, type Window } from "../binomial";

/** A mechanism for items by its integer weights, with uniform dummies: reduction.py. */
export interface Reduction {
  /** Number of answers l. */
  readonly answers: number;
  /** γ: probability that a report is drawn independently of its input. */
  readonly blanket: number;
  /** p - q. */
  readonly signal: number;
  /** Whether two values collide with probability 1/l; otherwise never. */
  readonly isHashed: boolean;
}

/** The honest users besides the victim, and all honest dummies. */
export interface AnonymitySet {
  readonly others: number;
  readonly dummies: number;
  readonly randomDummies: number;
  readonly dummyChance: number;
}

/** Relative width of the bins of M; it raises δ by about ln(1/δ) times half of it. */
const BIN_SHARE = 6e-5;
/** Bins of less mass are charged in full. */
export const NEGLIGIBLE = 1e-24;

/**
 * Return an upper bound on δ at ε: 1 if ε is above MAX_EPSILON.
 *
 * Cost: at most half a second, for 10^9 users too.
 */
export function deltaUpper(
  reduction: Reduction,
  anonymitySet: AnonymitySet,
  epsilon: number,
): number {
  if (!(epsilon <= MAX_EPSILON)) return 1;
  const [own, set, share] = onTwoItems(reduction, anonymitySet);
  const { masses, sizes, missed } = blanketSizes(share, set);
  let total = missed;
  sizes.forEach((size, at) => {
    const mass = masses[at] ?? 0;
    total += mass < NEGLIGIBLE ? mass : mass * conditionalDelta(own, size, epsilon);
  });
  return Math.min(1, total * MARGIN);
}

/**
 * Return an equal reduction and set, and the share of its users in the blanket.
 *
 * Where reports without noise name an item, only dummies that name x or x' matter, each with
 * probability 2/l: formula 1 at l and M is formula 1 at l = 2 and the thinned number of dummies
 * (docs/theory/accounting.md).
 */
function onTwoItems(reduction: Reduction, set: AnonymitySet): [Reduction, AnonymitySet, number] {
  if (reduction.isHashed || reduction.blanket > 0) return [reduction, set, reduction.blanket];
  const share = Math.min(1, 2 / reduction.answers);
  const thinned = { ...set, others: set.dummies, dummies: 0, dummyChance: set.dummyChance * share };
  return [{ ...reduction, answers: 2 }, thinned, share];
}

interface Sizes {
  readonly sizes: readonly number[];
  readonly masses: readonly number[];
  /** Mass below the first bin. */
  readonly missed: number;
}

/** Return the bins of M = 1 + dummies + Bin(others, blanket) + Bin(random, chance). */
export function blanketSizes(blanket: number, set: AnonymitySet): Sizes {
  const users = binomialWindow(set.others, Math.min(blanket, 1));
  const random = binomialWindow(set.randomDummies, set.dummyChance);
  const least = 1 + set.dummies + users.first + random.first;
  const width = Math.max(1, Math.floor(least * BIN_SHARE));
  const [first, second] = [binned(users, width), binned(random, width)];
  const masses = new Array<number>(first.length + second.length - 1).fill(0);
  first.forEach((one, i) => {
    second.forEach((other, j) => {
      masses[i + j] = (masses[i + j] ?? 0) + one * other;
    });
  });
  const sizes = masses.map((_, at) => least + at * width);
  return { sizes, masses, missed: users.below + random.below };
}

/** Sum a window's masses over bins; the mass above the window counts in the last bin. */
export function binned({ masses, above }: Window, width: number): number[] {
  const bins = new Array<number>(Math.ceil(masses.length / width)).fill(0);
  masses.forEach((mass, at) => {
    bins[Math.floor(at / width)] = (bins[Math.floor(at / width)] ?? 0) + mass;
  });
  bins[bins.length - 1] = (bins.at(-1) ?? 0) + above;
  return bins;
}

function conditionalDelta(reduction: Reduction, size: number, epsilon: number): number {
  const { answers, blanket, signal, isHashed } = reduction;
  const shift = (size * Math.expm1(epsilon) * (blanket / answers)) / signal;
  const expected = isHashed
    ? independentExcess(binomialWindow(size, 1 / answers), size / answers, epsilon, shift)
    : exclusiveExcess(binomialWindow(size, 2 / answers), epsilon, shift);
  return Math.min(1, ((answers * signal) / size) * expected * MARGIN);
}

/** E[(H - e^ε·H' - shift)_+] for independent H and H' of this window. */
function independentExcess(window: Window, mean: number, epsilon: number, shift: number): number {
  const { first, masses, below } = window;
  const tails = upperTails(window);
  const loss = new Float64Array(masses.length + 1);
  loss[masses.length] = stopLossBeyond(window);
  for (let at = masses.length - 1; at >= 0; at--) {
    loss[at] = (loss[at + 1] ?? 0) + (tails[at + 1] ?? 0);
  }
  const excess = (threshold: number): number => {
    const place = threshold - first;
    if (place <= 0) return (loss[0] ?? 0) - place * MARGIN;
    if (place >= masses.length) return loss[masses.length] ?? 0;
    const at = Math.floor(place);
    const share = place - at;
    return (1 - share) * (loss[at] ?? 0) + share * (loss[at + 1] ?? 0);
  };
  const growth = Math.exp(epsilon);
  let total = below * (mean + 1);
  masses.forEach((mass, at) => {
    total += mass * excess(growth * (first + at) + shift);
  });
  return total + window.above * excess(growth * (first + masses.length) + shift);
}

/** Bound E[(X - last - 1)_+] beyond a window, whose terms fall at least geometrically. */
function stopLossBeyond({ masses, above }: Window): number {
  const last = masses.at(-1) ?? 0;
  return above === 0 ? 0 : (above * (above + last)) / last;
}

/**
 * E[(H - e^ε·H' - shift)_+] for the counts H and H' of two items among all reports.
 *
 * Given their sum t, of this window, H ~ Bin(t, 1/2), and the excess is (1 + e^ε)·E[(H - κ)_+] with
 * κ = (e^ε·t + shift) / (1 + e^ε): from the largest t down, κ falls by less than 1 a step. With
 * k = ⌊κ⌋, E[(H - κ)_+] = (k + 1 - κ)·P(H > k) + E[(H - k - 1)_+].
 */
function exclusiveExcess(sums: Window, epsilon: number, shift: number): number {
  const growth = Math.exp(epsilon);
  const last = sums.first + sums.masses.length - 1;
  let total = sums.below * sums.first + 2 * sums.above * (last + 1);
  let tail: UpperTail | undefined;
  for (let sum = last; sum >= sums.first; sum--) {
    if (shift >= sum) break;
    // From e^ε = 2^53 on, the quotient is rounded to the sum itself.
    const k = Math.min(sum - 1, Math.floor((growth * sum + shift) / (1 + growth)));
    tail = tail?.movedTo(sum, k) ?? UpperTail.of(sum, k);
    const rest = (k + 1 - sum) * growth + k + 1 - shift;
    const excess = rest * tail.mass + (1 + growth) * tail.loss;
    total += (sums.masses[sum - sums.first] ?? 0) * Math.max(0, excess) * MARGIN;
  }
  return total;
}

/** Masses below it lose digits. */
const TINY = 1e-280;

/** Of X ~ Bin(trials, 1/2), for k of at least its mode: P(X > k), and E[(X - k - 1)_+]. */
class UpperTail {
  private constructor(
    private readonly k: number,
    /** P(X = k). */
    private readonly at: number,
    readonly mass: number,
    readonly loss: number,
  ) {}

  static of(trials: number, k: number): UpperTail {
    const at = Math.exp(logMass(k, trials, 1 / 2));
    if (at < TINY) return new UpperTail(k, 0, 0, TINY * trials ** 2);
    let [mass, loss] = [0, 0];
    let term = at;
    for (let j = k; term > 1e-20 * mass; j++) {
      term *= (trials - j) / (j + 1);
      mass += term;
      loss += term * (j - k);
    }
    return new UpperTail(k, at, mass, loss);
  }

  /** Move to one trial less, and to k or k - 1; null if that loses digits. */
  movedTo(trials: number, k: number): UpperTail | null {
    const before = (2 * this.at) / (trials + 1);
    const now = before * (trials + 1 - this.k); // P(X = this.k) with one trial less
    const less = this.mass - now / 2; // P(X > this.k)
    const isLower = k < this.k;
    const loss = this.loss + (isLower ? less : -less) / 2;
    if (this.at < TINY || less < this.mass / 4 || loss < this.loss / 4) return null;
    if (isLower) return new UpperTail(k, before * this.k, less + now, loss);
    return new UpperTail(k, now, less, loss);
  }
}
