/** Several histograms of one value, without noise: common/mechanisms/views.py. */

import { drawMany, type Uniform } from "../random";
import { roundHalfToEven } from "../task/domain";
import type { MechanismSpec } from "../task/parts";
import { type Held, type Mechanism, plainReport, type Report } from "./mechanism";

/** A true report to each view; its number is that of an item of all views, view by view. */
export abstract class ViewMechanism implements Mechanism {
  readonly reportBytes = 4;
  readonly factors = 1;
  readonly #firsts: readonly number[];

  constructor(protected readonly sizes: readonly number[]) {
    let first = 0;
    this.#firsts = sizes.map((size) => {
      first += size;
      return first - size;
    });
  }

  /** Return the item of a valid value in every view. */
  protected abstract encode(value: Held, uniform: Uniform): readonly number[];

  randomize(value: Held, uniform: Uniform): Report[] {
    const items = this.encode(value, uniform);
    return items.map((item, view) => plainReport((this.#firsts[view] ?? 0) + item));
  }

  dummies(count: number, uniform: Uniform, view: number): Report[] {
    const [first, size] = [this.#firsts[view] ?? 0, this.sizes[view] ?? 1];
    return drawMany(uniform, BigInt(size), count).map((item) => plainReport(first + Number(item)));
  }
}

/** The nodes of a tree over ordered buckets, the coarsest first: common/mechanisms/hierarchy.py. */
export class Hierarchy extends ViewMechanism {
  constructor(
    sizes: readonly number[],
    private readonly fanOut: number,
    private readonly groups: number,
  ) {
    super(sizes);
  }

  protected encode(item: number): number[] {
    const ofGroup = (this.sizes.at(-1) ?? 0) / this.groups;
    const group = Math.floor(item / ofGroup);
    let node = item % ofGroup;
    const nodes = this.sizes.toReversed().map((size) => {
      const own = group * (size / this.groups) + node;
      node = Math.floor(node / this.fanOut);
      return own;
    });
    return nodes.reverse();
  }
}

const FRACTION = 2 ** 32;

/** The digits of numbers in -1 .. 1, rounded at random: common/mechanisms/numeric/digits.py. */
export class Digits extends ViewMechanism {
  constructor(
    sizes: readonly number[],
    private readonly spec: MechanismSpec,
  ) {
    super(sizes);
  }

  protected encode(numbers: readonly number[], uniform: Uniform): number[] {
    const { radices } = this.spec;
    const steps = radices.reduce((product, radix) => product * radix) - 1;
    return numbers.flatMap((number) => {
      const place = (number + 1) * (steps / 2);
      const down = Math.min(Math.floor(place), steps - 1);
      const threshold = roundHalfToEven((place - down) * FRACTION);
      let point = down + Number(Number(uniform.below(BigInt(FRACTION))) < threshold);
      const digits = radices.toReversed().map((radix) => {
        const digit = point % radix;
        point = Math.floor(point / radix);
        return digit;
      });
      return digits.reverse();
    });
  }
}
