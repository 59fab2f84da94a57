/** Draws that other programs can repeat. */

import { createHash } from "node:crypto";
import type { Uniform } from "../src/random";

export function hashOf(...parts: (string | Uint8Array)[]): Buffer {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
}

/** Draws from SHA-256 of a seed and a counter. */
export class HashedDraws implements Uniform {
  #count = 0;

  constructor(private readonly seed: string) {}

  below(n: bigint): bigint {
    this.#count += 1;
    const drawn = hashOf(`${this.seed} ${this.#count}`).subarray(0, 24).toString("hex");
    return BigInt(`0x${drawn}`) % n;
  }
}
