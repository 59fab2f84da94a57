/** A tree of histograms over ordered buckets, without noise: common/mechanisms/hierarchy.py. */

import { Views } from "./views";

/** True nodes of each level, the coarsest first. */
export class Hierarchy extends Views {
  constructor(
    sizes: readonly number[],
    private readonly fanOut: number,
    private readonly groups: number,
  ) {
    super(sizes);
  }

  protected encode(item: number): readonly number[] {
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
