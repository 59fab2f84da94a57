/** Unary encodings, one noisy bit an item [WBLJ17]: common/mechanisms/unary.py. */

import { ensure } from "../errors";
import { exactCoins, type Uniform } from "../random";
import type { MechanismSpec } from "../task/parts";
import type { Mechanism, Report } from "./mechanism";

/** Largest number of items: a report has one spare bit. */
const MAX_BITS = 8 * 65_536 - 1;

export class UnaryEncoding implements Mechanism {
  readonly reportBytes: number;
  readonly factors: number;
  readonly #total: bigint;
  private readonly ownOdds: readonly [bigint, bigint];

  constructor(
    private readonly domainSize: number,
    private readonly spec: MechanismSpec,
  ) {
    const isUnary = domainSize <= MAX_BITS && spec.buckets === 2 && spec.digits === 1;
    ensure(isUnary, "unary_size", { most: MAX_BITS });
    const isSymmetric = spec.name === "symmetric-unary";
    this.reportBytes = Math.floor(domainSize / 8) + 1;
    this.factors = isSymmetric ? 2 : 1;
    this.#total = spec.trueWeight + spec.otherWeight;
    this.ownOdds = isSymmetric ? [spec.trueWeight, this.#total] : [1n, 2n];
  }

  /** Toss coins for all bits, and then again the coin of the item's own bit. */
  randomize(item: number, uniform: Uniform): Report[] {
    const bits = this.#noise(uniform);
    bits[item] = exactCoins(uniform, ...this.ownOdds, 1)[0] ?? false;
    return [this.#pack(bits)];
  }

  dummies(count: number, uniform: Uniform): Report[] {
    return Array.from({ length: count }, () => this.#pack(this.#noise(uniform)));
  }

  #noise(uniform: Uniform): boolean[] {
    return exactCoins(uniform, this.spec.otherWeight, this.#total, this.domainSize);
  }

  /** Pack bits, least significant first. */
  #pack(bits: readonly boolean[]): Report {
    const report = new Uint8Array(this.reportBytes);
    bits.forEach((isSet, at) => {
      report[at >> 3] = (report[at >> 3] ?? 0) | (Number(isSet) << (at & 7));
    });
    return report;
  }
}
