/** A tree of histograms over ordered buckets, without noise: common/mechanisms/hierarchy.py. */

import { drawMany, type Uniform } from "../random";
import { type Mechanism, plainReport, type Report } from "./mechanism";

/** True nodes of each level; a report is the number of a node, the coarsest level first. */
export class Hierarchy implements Mechanism {
  readonly reportBytes = 4;
  readonly factors = 1;
  readonly #firsts: readonly number[];

  constructor(
    private readonly sizes: readonly number[],
    private readonly fanOut: number,
    private readonly groups: number,
  ) {
    let first = 0;
    this.#firsts = sizes.map((size) => {
      first += size;
      return first - size;
    });
  }

  randomize(item: number, _uniform: Uniform): Report[] {
    const ofGroup = (this.sizes.at(-1) ?? 0) / this.groups;
    const group = Math.floor(item / ofGroup);
    let node = item % ofGroup;
    const nodes = this.sizes.toReversed().map((size) => {
      const own = group * (size / this.groups) + node;
      node = Math.floor(node / this.fanOut);
      return own;
    });
    return nodes.reverse().map((own, level) => plainReport((this.#firsts[level] ?? 0) + own));
  }

  dummies(count: number, uniform: Uniform, level: number): Report[] {
    const [first, size] = [this.#firsts[level] ?? 0, this.sizes[level] ?? 1];
    return drawMany(uniform, BigInt(size), count).map((node) => plainReport(first + Number(node)));
  }
}
