/**
 * Exact draws: uniform integers by rejection, and what the mechanisms make of them.
 *
 * Everything random in a report is drawn as uniform integers, in the order and with the bounds of
 * the Python device, so that both can be held to the same transcripts.
 */

import { type Bytes, fromInteger } from "./bytes";

/** A source of independent uniform integers. */
export interface Uniform {
  /** Draw an integer from 0 to n - 1, for n of at least 1. */
  below(n: bigint): bigint;
}

/** Draws from `crypto.getRandomValues`, rejecting what does not fit. */
export class SecureUniform implements Uniform {
  readonly #pool = new Uint32Array(1024);
  #at = this.#pool.length;

  below(n: bigint): bigint {
    const bits = (n - 1n).toString(2).length;
    const mask = (1n << BigInt(bits)) - 1n;
    for (;;) {
      let drawn = 0n;
      for (let left = bits; left > 0; left -= 32) drawn = (drawn << 32n) | BigInt(this.#word());
      drawn &= mask;
      if (drawn < n) return drawn;
    }
  }

  /** Take 32 random bits from the pool, and forget them there. */
  #word(): number {
    if (this.#at === this.#pool.length) {
      crypto.getRandomValues(this.#pool);
      this.#at = 0;
    }
    const word = this.#pool[this.#at] ?? 0;
    this.#pool[this.#at] = 0;
    this.#at += 1;
    return word;
  }
}

/** Draw `length` random bytes as one integer, big-endian. */
export function drawBytes(uniform: Uniform, length: number): Bytes {
  return fromInteger(uniform.below(1n << BigInt(8 * length)), length);
}

/** Draw `count` integers below n, one after the other. */
export function drawMany(uniform: Uniform, n: bigint, count: number): bigint[] {
  return Array.from({ length: count }, () => uniform.below(n));
}

/** Permute in place by Fisher and Yates from the end, as numpy does: draws below n, .., 2. */
export function shuffle<T>(items: T[], uniform: Uniform): T[] {
  for (let last = items.length - 1; last > 0; last--) {
    const at = Number(uniform.below(BigInt(last + 1)));
    [items[last], items[at]] = [items[at] as T, items[last] as T];
  }
  return items;
}

const COIN_BITS = 16n;

/**
 * Toss `count` coins that show heads with probability exactly weight / total.
 *
 * As common/mechanisms/sampling.py: first 16 bits for every coin; then, for each undecided coin in
 * order, an integer below total.
 */
export function exactCoins(
  uniform: Uniform,
  weight: bigint,
  total: bigint,
  count: number,
): boolean[] {
  const threshold = (weight << COIN_BITS) / total;
  const rest = (weight << COIN_BITS) % total;
  const drawn = drawMany(uniform, 1n << COIN_BITS, count);
  return drawn.map((bits) =>
    bits === threshold && rest > 0n ? uniform.below(total) < rest : bits < threshold,
  );
}
