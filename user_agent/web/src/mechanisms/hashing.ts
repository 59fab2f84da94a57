/**
 * Local hashing over a finite field: common/mechanisms/hashing/.
 *
 * An item is placed at a point v of F_q^t by a public permutation that the task's nonce keys. A
 * seed is a uniform vector a, 0 included; the hash is ⟨a, v⟩ mod q.
 */

import { type Bytes, concat, utf8 } from "../bytes";
import { sha256 } from "../crypto/hashes";
import { ensure } from "../errors";
import { drawMany, type Uniform } from "../random";
import type { MechanismSpec } from "../task/parts";
import { type Mechanism, type Report, respond } from "./mechanism";

const MIN_DIGITS = 2;
const MAX_SEEDS = 2n ** 24n;
const ROUNDS = 4;
const WORD = (1n << 64n) - 1n;

/** The finalizer of MurmurHash3, of 64 bits. */
function mix(word: bigint): bigint {
  const first = ((word ^ (word >> 33n)) * 0xff51afd7ed558ccdn) & WORD;
  const second = ((first ^ (first >> 33n)) * 0xc4ceb9fe1a85ec53n) & WORD;
  return second ^ (second >> 33n);
}

/** A public permutation of 0 .. size - 1: a Feistel network with cycle walking. */
export class Placement {
  private constructor(
    private readonly size: bigint,
    private readonly keys: readonly bigint[],
  ) {}

  static async of(size: bigint, nonce: Bytes): Promise<Placement> {
    const hash = await sha256(concat(utf8("shuffledp v1 placement"), nonce));
    const words = new DataView(hash.buffer);
    const keys = Array.from({ length: ROUNDS }, (_, at) => words.getBigUint64(8 * at, true));
    return new Placement(size, keys);
  }

  point(item: bigint): bigint {
    const bits = this.size > 1n ? (this.size - 1n).toString(2).length : 0;
    const half = BigInt(Math.max(1, (bits + 1) >> 1));
    const mask = (1n << half) - 1n;
    let point = item;
    do {
      let [left, right] = [point >> half, point & mask];
      for (const key of this.keys) [left, right] = [right, left ^ (mix(right ^ key) & mask)];
      point = (left << half) | right;
    } while (point >= this.size);
    return point;
  }
}

/** Local hashing with the family of q^t hash functions. */
export class LocalHashing implements Mechanism {
  readonly reportBytes = 12;
  readonly factors = 1;

  private constructor(
    private readonly spec: MechanismSpec,
    private readonly placement: Placement,
    private readonly seeds: bigint,
  ) {}

  /** Build a task's mechanism; raise TaskError unless the family exists. */
  static async of(size: number, spec: MechanismSpec, nonce: Bytes): Promise<LocalHashing> {
    const [q, t] = [BigInt(spec.buckets), BigInt(spec.digits)];
    const [seeds, row] = [q ** t, q ** (t - 1n)];
    const slices = (BigInt(size) + row - 1n) / row;
    const fits = spec.digits >= MIN_DIGITS && seeds <= MAX_SEEDS && slices <= q;
    ensure(fits && isPrime(spec.buckets), "hash_family");
    return new LocalHashing(spec, await Placement.of(slices * row, nonce), seeds);
  }

  randomize(item: number, uniform: Uniform): Report[] {
    const seed = uniform.below(this.seeds);
    const truth = this.hash(seed, this.placement.point(BigInt(item)));
    return [hashedReport(seed, respond(truth, this.spec.buckets, this.spec, uniform))];
  }

  /** Draw uniform reports: first all buckets, then all seeds. */
  dummies(count: number, uniform: Uniform): Report[] {
    const buckets = drawMany(uniform, BigInt(this.spec.buckets), count);
    const seeds = drawMany(uniform, this.seeds, count);
    return seeds.map((seed, at) => hashedReport(seed, buckets[at] ?? 0n));
  }

  /** Return ⟨seed, point⟩ mod q, both written in base q. */
  hash(seed: bigint, point: bigint): bigint {
    const q = BigInt(this.spec.buckets);
    let total = 0n;
    for (let [a, v] = [seed, point]; a > 0n && v > 0n; a /= q, v /= q) total += (a % q) * (v % q);
    return total % q;
  }
}

/** A seed of 64 bits and a bucket of 32, little-endian. */
function hashedReport(seed: bigint, bucket: bigint): Report {
  const report = new Uint8Array(12);
  const view = new DataView(report.buffer);
  view.setBigUint64(0, seed, true);
  view.setUint32(8, Number(bucket), true);
  return report;
}

function isPrime(number: number): boolean {
  for (let divisor = 2; divisor * divisor <= number; divisor++) {
    if (number % divisor === 0) return false;
  }
  return number > 1;
}
