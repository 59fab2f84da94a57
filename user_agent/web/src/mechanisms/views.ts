/** Several histograms of one value, without noise: common/mechanisms/views.py. */

import { drawMany, type Uniform } from "../random";
import { type Item, type Mechanism, plainReport, type Report } from "./mechanism";

/** True items of each view; a report is the number of a cell, view by view. */
export abstract class Views implements Mechanism {
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

  /** Return the item of a value in every view. */
  protected abstract encode(item: Item): readonly number[];

  randomize(item: Item, _uniform: Uniform): Report[] {
    return this.encode(item).map((own, view) => plainReport((this.#firsts[view] ?? 0) + own));
  }

  dummies(count: number, uniform: Uniform, view: number): Report[] {
    const [first, size] = [this.#firsts[view] ?? 0, this.sizes[view] ?? 1];
    return drawMany(uniform, BigInt(size), count).map((item) => plainReport(first + Number(item)));
  }
}
