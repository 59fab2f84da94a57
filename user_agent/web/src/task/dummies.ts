/** The distributions of a user's dummies: common/task/uniform_dummies.py and named_dummies.py. */

import { logMass } from "../binomial";
import { ensure } from "../errors";
import type { Mechanism, Report } from "../mechanisms/mechanism";
import type { Uniform } from "../random";
import * as read from "./readers";

export const EXTRA_WEIGHT_SUM = 2 ** 32;

const MAX_DUMMIES = 2 ** 20;
const MAX_TRIALS = 2 ** 24;
const MAX_GEOMETRICS = 2 ** 16;
const MAX_LENGTHS = 256;
/** Least ln of the probability that a draw is accepted. */
const MIN_LOG_ACCEPTANCE = -8 * Math.LN2;

/** The distribution of the dummies of one user, drawn independently of the value. */
export interface Dummies {
  readonly distribution: string;
  /** Numbers of dummies, padding included, that a submission may have; ascending. */
  readonly lengths: readonly number[];
  /** Draw one user's dummies as reports of a mechanism. */
  draw(mechanism: Mechanism, uniform: Uniform): Report[];
}

const extra_weight = read.smallWeight(1, EXTRA_WEIGHT_SUM - 1);
const most = read.whole(1, MAX_DUMMIES);
const fixed = { distribution: read.text, per_user: read.whole(0, MAX_DUMMIES) };
const random = { ...fixed, extra_weight, one_length: read.optional(read.truth, false) };
const FIXED = read.table(fixed);
const FRACTIONAL = read.table(random);
const BINOMIAL = read.table({ ...random, trials: read.whole(2, MAX_TRIALS) });
const NEGATIVE_BINOMIAL = read.table({ ...random, trials: read.whole(1, MAX_GEOMETRICS), most });
const EACH_ITEM = read.table({
  distribution: read.text,
  trials: read.whole(1, MAX_TRIALS),
  extra_weight,
  most,
});

export const dummies = read.union<UniformDummies | ItemDummies>("distribution", {
  fixed: (...json) => new UniformDummies(FIXED(...json), 0),
  fractional: (...json) => new UniformDummies(FRACTIONAL(...json), 1),
  binomial: (...json) => {
    const stated = BINOMIAL(...json);
    return new UniformDummies(stated, stated.trials);
  },
  "negative-binomial": (...json) => {
    const stated = NEGATIVE_BINOMIAL(...json);
    const { trials, most, extraWeight, perUser } = stated;
    const chance = extraWeight / EXTRA_WEIGHT_SUM;
    const log = logMass(most, trials + most - 1, chance) + Math.log1p(-chance);
    checkConditioned((trials * chance) / (1 - chance), perUser, most, log);
    return new UniformDummies(stated, most);
  },
  "each-item": (...json) => new ItemDummies(EACH_ITEM(...json)),
});

/** `perUser` uniform dummies, and a random number more of at most `most`. */
export class UniformDummies implements Dummies {
  readonly distribution: string;
  readonly lengths: readonly number[];
  readonly perUser: number;
  readonly trials: number;
  readonly extraWeight: number;

  constructor(
    stated: ReturnType<typeof FIXED> & Partial<ReturnType<typeof BINOMIAL>>,
    readonly most: number,
  ) {
    const { perUser } = stated;
    this.distribution = stated.distribution;
    this.perUser = perUser;
    this.trials = stated.trials ?? most;
    this.extraWeight = stated.extraWeight ?? 0;
    ensure(perUser + most <= MAX_DUMMIES, "too_many_dummies");
    this.lengths = everyKth(stated.oneLength ? perUser + most : perUser, perUser + most);
  }

  draw(mechanism: Mechanism, uniform: Uniform): Report[] {
    return mechanism.dummies(this.drawNumber(uniform), uniform, 0);
  }

  /** Whether it is a fixed or fractional number, as one of several views needs. */
  get hasAnAverage(): boolean {
    return this.most === 0 || (this.distribution === "fractional" && this.lengths.length === 2);
  }

  drawNumber(uniform: Uniform): number {
    if (this.distribution !== "negative-binomial") {
      return this.perUser + successes(this.extraWeight, this.trials, uniform).length;
    }
    for (;;) {
      let total = 0;
      let running = this.trials;
      while (running > 0) {
        running = successes(this.extraWeight, running, uniform).length;
        total += running;
      }
      if (total <= this.most) return this.perUser + total;
    }
  }
}

/** A dummy that names the item, by chance, for each item; all are drawn again above `most`. */
export class ItemDummies implements Dummies {
  readonly distribution = "each-item";
  readonly lengths: readonly number[];
  readonly trials: number;
  readonly extraWeight: number;
  readonly most: number;

  constructor({ trials, extraWeight, most }: ReturnType<typeof EACH_ITEM>) {
    const chance = extraWeight / EXTRA_WEIGHT_SUM;
    checkConditioned(trials * chance, 0, most, trials > most ? logMass(most, trials, chance) : 0);
    [this.trials, this.extraWeight, this.most] = [trials, extraWeight, most];
    this.lengths = [most];
  }

  draw(mechanism: Mechanism, uniform: Uniform): Report[] {
    for (;;) {
      const items = successes(this.extraWeight, this.trials, uniform);
      if (items.length <= this.most) {
        return items.flatMap((item) => mechanism.randomize(item, uniform));
      }
    }
  }
}

/** For each view of a value, a fixed or fractional number of uniform dummies. */
export class ViewDummies implements Dummies {
  readonly distribution = "views";
  readonly lengths: readonly number[];

  constructor(readonly views: readonly UniformDummies[]) {
    const certain = views.reduce((total, view) => total + view.perUser, 0);
    const random = views.reduce((total, view) => total + view.most, 0);
    this.lengths = everyKth(certain, certain + random);
    ensure(certain + random <= MAX_DUMMIES, "too_many_dummies");
  }

  /** Draw the numbers of all views, and then the items of each view. */
  draw(mechanism: Mechanism, uniform: Uniform): Report[] {
    const numbers = this.views.map((view) => view.drawNumber(uniform));
    return numbers.flatMap((number, view) => mechanism.dummies(number, uniform, view));
  }
}

/** Return all numbers; of more than MAX_LENGTHS every k-th, down from `most`; ascending. */
function everyKth(least: number, most: number): number[] {
  const range = most - least;
  const step = Math.floor(range / MAX_LENGTHS) + 1;
  const count = Math.floor(range / step) + 1;
  return Array.from({ length: count }, (_, at) => least + (range % step) + at * step);
}

/** Return which of `count` trials succeed: each is an integer, and succeeds below the weight. */
function successes(weight: number, count: number, uniform: Uniform): number[] {
  const found: number[] = [];
  for (let trial = 0; trial < count; trial++) {
    if (uniform.below(BigInt(EXTRA_WEIGHT_SUM)) < weight) found.push(trial);
  }
  return found;
}

/** As `check_conditioned` of common/task/dummies.py, for a random number of this mean. */
function checkConditioned(mean: number, certain: number, most: number, logChance: number): void {
  ensure(!(mean > most && logChance < MIN_LOG_ACCEPTANCE), "too_many_redrawn");
  ensure(mean + certain <= MAX_DUMMIES, "too_many_dummies");
}
