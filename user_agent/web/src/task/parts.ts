/** The tables of a task: mechanism, shuffler with its noise, and token key. */

import { type Bytes, toInteger } from "../bytes";
import { PROOF_BYTES } from "../crypto/signing";
import { TokenKey } from "../crypto/tokens";
import { TaskError } from "../errors";
import type { Json } from "./canonical";
import { checkRange, Fields, MAX_WEIGHT_SUM } from "./fields";
import type { MechanismName } from "./protocols";

/** Denominator of `keep_weight`. */
export const KEEP_SUM = 2 ** 32;
/** Denominator of a geometric distribution's weights. */
export const RATIO_SUM = 2 ** 30;
export const MAX_DOMAIN_SIZE = 2 ** 24;

const MAX_REPORT_BYTES = 65_536;
const MAX_DIGITS = 24;
const MAX_PER_ITEM = 2 ** 24;
const MAX_GEOMETRIC = 2 ** 20;
const MAX_DRAWS = 2 ** 20;
const MAX_NAME = 64;

/** A mechanism for items, with its integer weights: MechanismSpec of common/task/specs.py. */
export interface MechanismSpec {
  readonly name: MechanismName;
  readonly buckets: number;
  readonly digits: number;
  readonly trueWeight: bigint;
  /** 0 if and only if reports have no noise of their own. */
  readonly otherWeight: bigint;
  readonly reportBytes: number;
}

export function mechanismOf(json: Json, allowed: readonly MechanismName[]): MechanismSpec {
  const table = new Fields(json, "mechanism");
  const name = table.choice("name", allowed);
  const buckets = table.whole("buckets", 2, MAX_DOMAIN_SIZE);
  const digits = table.whole("digits", 1, MAX_DIGITS);
  const otherWeight = table.weight("other_weight", 0n, MAX_WEIGHT_SUM);
  const trueWeight = table.weight("true_weight", otherWeight + 1n, MAX_WEIGHT_SUM);
  const reportBytes = table.whole("report_bytes", 1, MAX_REPORT_BYTES);
  table.end();
  if (otherWeight === 0n) checkRange("true_weight", trueWeight, 1n, 1n);
  const total = trueWeight + (BigInt(buckets) - 1n) * otherWeight;
  checkRange("the sum of the weights", total, 1n, MAX_WEIGHT_SUM);
  return { name, buckets, digits, trueWeight, otherWeight, reportBytes };
}

/** The distribution of the number of the shuffler's dummies of one item. */
export type Noise =
  | { readonly distribution: "none" }
  | { readonly distribution: "binomial"; readonly trials: number }
  | {
      readonly distribution: "geometric";
      readonly peak: number;
      readonly leftWeight: number;
      readonly rightWeight: number;
      readonly most: number;
    };

/** A shuffler of a task: its signed key, and what it drops and adds to each view. */
export interface TaskShuffler {
  readonly key: Bytes;
  readonly proof: Bytes;
  readonly keepWeight: number;
  readonly noises: readonly Noise[];
}

export function shufflerOf(json: Json): TaskShuffler {
  const table = new Fields(json, "shufflers");
  const key = table.bytes("key");
  table.printable("name", MAX_NAME, true);
  const proof = table.optional("proof", new Uint8Array(), table.bytes);
  if (proof.length > 0 && proof.length !== PROOF_BYTES) throw new TaskError("proof_length");
  const keepWeight = table.optional("keep_weight", KEEP_SUM, (name) =>
    Number(table.weight(name, 1n, BigInt(KEEP_SUM))),
  );
  const noises = table.list("noise").map(noiseOf);
  table.end();
  if (new Set(noises.map((noise) => JSON.stringify(noise))).size !== 1) {
    throw new TaskError("noise_of_views");
  }
  return { key, proof, keepWeight, noises };
}

function noiseOf(json: Json): Noise {
  const table = new Fields(json, "noise");
  const distribution = table.choice("distribution", ["none", "binomial", "geometric"]);
  const noise = readNoise(table, distribution);
  table.end();
  return noise;
}

function readNoise(table: Fields, distribution: Noise["distribution"]): Noise {
  if (distribution === "none") return { distribution };
  if (distribution === "binomial") {
    return { distribution, trials: table.whole("trials", 1, MAX_PER_ITEM) };
  }
  const peak = table.optional("peak", 0, (name) => table.whole(name, 0, MAX_GEOMETRIC));
  const ratio = (name: string) => Number(table.weight(name, 1n, BigInt(RATIO_SUM - 1)));
  const leftWeight = ratio("left_weight");
  const rightWeight = ratio("right_weight");
  const most = table.whole("most", Math.max(peak, 1), MAX_GEOMETRIC);
  const noise: Noise = { distribution, peak, leftWeight, rightWeight, most };
  if (drawsPerItem(noise) > MAX_DRAWS) throw new TaskError("too_many_draws");
  return noise;
}

/** Approximate number of draws for one item's dummies, as in common/task/shuffler_spec.py. */
export function drawsPerItem(noise: Noise): number {
  if (noise.distribution === "none") return 0;
  if (noise.distribution === "binomial") return noise.trials / 64;
  const side = (weight: number, length: number) => {
    const fits = -Math.expm1(length * Math.log(weight / RATIO_SUM));
    return length === 0 ? 0 : RATIO_SUM / (RATIO_SUM - weight) / fits;
  };
  return side(noise.leftWeight, noise.peak) + side(noise.rightWeight, noise.most - noise.peak + 1);
}

/** Average number of the shuffler's dummies of one item. */
export function meanOfNoise(noise: Noise): number {
  if (noise.distribution === "none") return 0;
  if (noise.distribution === "binomial") return noise.trials / 2;
  let [total, sum] = [0, 0];
  for (let z = 0; z <= noise.most; z++) {
    const weight = z < noise.peak ? noise.leftWeight : noise.rightWeight;
    const mass = (weight / RATIO_SUM) ** Math.abs(z - noise.peak);
    total += mass;
    sum += z * mass;
  }
  return sum / total;
}

/** The issuer whose one-time tokens a task requires, and the task's signed token key. */
export interface TokenSpec {
  readonly issuer: string;
  readonly key: TokenKey;
  readonly proof: Bytes;
}

export function tokensOf(json: Json): TokenSpec {
  const table = new Fields(json, "tokens");
  const issuer = table.text("issuer");
  const key = TokenKey.of(table.bytes("key"));
  const proof = table.bytes("proof");
  table.end();
  if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(issuer)) throw new TaskError("issuer_name");
  if (key === null) throw new TaskError("token_key");
  if (proof.length !== PROOF_BYTES) throw new TaskError("proof_length");
  return { issuer, key, proof };
}

/** Return the last second since 1970 UTC at which a signed key may be used. */
export function endOfValidity(proof: Bytes): bigint {
  return toInteger(proof.subarray(0, 8));
}
