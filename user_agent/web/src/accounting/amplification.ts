/**
 * Formula 1: amplification by shuffling among honest users and uniform dummies.
 *
 *     δ(ε | M) = l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε - 1)·q/(p-q))_+],   δ(ε) = E_M[δ(ε | M)]
 *
 * docs/theory/accounting.md defines the terms, and shows that δ(ε | M) falls with M: the blanket
 * size M is binned, and each bin counts at its lower edge. Unlike common/accounting/conditional.py,
 * which replaces the average over H_x' by chords, every count h of H_x' is summed here: walking
 * from the largest h down, the tail of H_x only grows, so each step adds positive numbers. Sums are
 * rounded up by `MARGIN`, and what lies beyond a window is charged in full.
 */

import { binomialWindow, logMass, MARGIN, upperTails, type Window } from "./binomial";

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
const NEGLIGIBLE = 1e-24;
/** Most steps of one evaluation; a second of a slow machine. */
const MAX_STEPS = 2e8;

/** Return an upper bound on δ at ε; null if this device would take too long. */
export function deltaUpper(
  reduction: Reduction,
  anonymitySet: AnonymitySet,
  epsilon: number,
): number | null {
  const [own, set, share] = onTwoItems(reduction, anonymitySet);
  const { masses, sizes, missed } = blanketSizes(share, set);
  const growth = Math.exp(epsilon);
  const jump = Math.min(growth, MAX_JUMP) + 2;
  const widest = 25 * Math.sqrt((sizes.at(-1) ?? 1) / own.answers) + 100;
  if (sizes.length * widest * jump > MAX_STEPS) return null;
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
function blanketSizes(blanket: number, set: AnonymitySet): Sizes {
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
function binned({ masses, above }: Window, width: number): number[] {
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
  const matches = binomialWindow(size, 1 / answers);
  const expected = isHashed
    ? independentExcess(matches, size / answers, epsilon, shift)
    : exclusiveExcess(matches, size, 1 / (answers - 1), epsilon, shift);
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

const MAX_JUMP = 256;

/**
 * E[(H - e^ε·h - shift)_+], averaged over h of this window, for H ~ Bin(size - h, chance).
 *
 * From the largest h down: the threshold k falls and the trials n grow, one at a time. With
 * L = E[(X - k)_+], T = P(X > k) and P = P(X = k), a trial more adds c·P(X ≥ k) to L and c·P to T;
 * a smaller k adds P(X ≥ k) to L and P to T. If the threshold falls far at once, they are computed
 * again.
 */
function exclusiveExcess(
  window: Window,
  size: number,
  chance: number,
  epsilon: number,
  shift: number,
): number {
  const growth = Math.exp(epsilon);
  const { first, masses } = window;
  let total = window.below * size * chance;
  let tail = new UpperTail(0, Number.POSITIVE_INFINITY, chance);
  for (let at = masses.length - 1; at >= 0; at--) {
    const h = first + at;
    const threshold = growth * h + shift;
    const k = Math.floor(threshold);
    if (k >= size - h) continue;
    let excess = size - h - threshold; // for a chance of 1
    if (chance < 1) {
      const isFar = tail.k - k > MAX_JUMP || tail.trials + 1 !== size - h || tail.isTiny;
      if (isFar) tail = new UpperTail(size - h, k, chance);
      else tail.moveTo(size - h, k);
      excess = Math.max(0, tail.loss * MARGIN ** 3 - (threshold - k) * tail.mass);
    }
    const above = at === masses.length - 1 ? window.above : 0;
    total += ((masses[at] ?? 0) + above) * excess;
  }
  return total;
}

/** P(X > k) and E[(X - k)_+] of X ~ Binomial(trials, chance), rounded up. */
class UpperTail {
  /** P(X > k). */
  mass = 0;
  /** E[(X - k)_+]. */
  loss = 0;
  #at = 0;

  constructor(
    public trials: number,
    public k: number,
    private readonly chance: number,
  ) {
    if (k >= trials) return;
    this.#at = Math.exp(logMass(k, trials, chance));
    const odds = chance / (1 - chance);
    let term = Math.exp(logMass(k + 1, trials, chance)) * MARGIN;
    for (let j = k + 1; term > 0; j++) {
      this.mass += term;
      this.loss += term * (j - k);
      const ratio = ((trials - j) / (j + 1)) * odds;
      term *= ratio;
      if (ratio < 0.999 && (term * (j + 1 - k)) / (1 - ratio) ** 2 < 1e-16 * this.loss) break;
    }
    this.mass *= MARGIN;
    this.loss *= MARGIN;
  }

  /** Whether masses are so small that products of them are lost. */
  get isTiny(): boolean {
    return this.#at < 1e-280;
  }

  /** Move to one trial more, and to a smaller or equal k. */
  moveTo(trials: number, k: number): void {
    const { chance } = this;
    this.loss += chance * (this.mass + this.#at);
    this.mass += chance * this.#at;
    this.#at *= (trials * (1 - chance)) / (trials - this.k);
    this.trials = trials;
    const odds = chance / (1 - chance);
    while (this.k > k) {
      this.mass += this.#at;
      this.loss += this.mass;
      this.#at *= this.k / (trials - this.k + 1) / odds;
      this.k -= 1;
    }
  }
}
