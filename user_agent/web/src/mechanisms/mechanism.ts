/**
 * The mechanisms: from an item or numbers, or nothing, to reports; common/mechanisms/.
 *
 * The draws have the order and the bounds of the Python device.
 */

import type { Bytes } from "../bytes";
import { drawMany, type Uniform } from "../random";
import type { MechanismSpec } from "../task/parts";

/** A report of the mechanism's fixed length: the plaintext of a sealed report. */
export type Report = Bytes;

/** A valid value: an item, from 0 to domainSize - 1; numbers in -1 .. 1; or of each attribute. */
export type Held = number | readonly number[];

/** A randomizer of items, of numbers, or of attributes. */
export interface Mechanism {
  readonly reportBytes: number;
  /** How often the largest ratio of two values' probabilities has the factor of the weights. */
  readonly factors: number;
  /** Randomize a valid value: one report, or one for each view. */
  randomize(value: Held, uniform: Uniform): Report[];
  /** Draw `count` reports without an input, of one of several views. */
  dummies(count: number, uniform: Uniform, view: number): Report[];
}

/**
 * Apply exact randomized response to a true answer: common/mechanisms/weights.py.
 *
 * One integer below the sum of the weights; below `trueWeight` it selects the truth. Without noise
 * nothing is drawn.
 */
export function respond(
  truth: bigint,
  answers: number,
  { trueWeight, otherWeight }: MechanismSpec,
  uniform: Uniform,
): bigint {
  if (otherWeight === 0n) return truth;
  const drawn = uniform.below(trueWeight + (BigInt(answers) - 1n) * otherWeight);
  if (drawn < trueWeight) return truth;
  const other = (drawn - trueWeight) / otherWeight;
  return other >= truth ? other + 1n : other;
}

/** Encode an item, or a node, as a plain report: 32 bits, little-endian. */
export function plainReport(item: number | bigint): Report {
  const report = new Uint8Array(4);
  new DataView(report.buffer).setUint32(0, Number(item), true);
  return report;
}

/** Generalized randomized response [KBR16]: the item, or another one. */
export class Grr implements Mechanism {
  readonly reportBytes = 4;
  readonly factors = 1;

  constructor(
    private readonly domainSize: number,
    private readonly spec: MechanismSpec,
  ) {}

  randomize(item: number, uniform: Uniform): Report[] {
    return [plainReport(respond(BigInt(item), this.domainSize, this.spec, uniform))];
  }

  dummies(count: number, uniform: Uniform): Report[] {
    return drawMany(uniform, BigInt(this.domainSize), count).map(plainReport);
  }
}
