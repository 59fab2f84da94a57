/** The log's proofs against the recursive definitions of RFC 9162, Sections 2.1.1, 2.1.3 and 2.1.4. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Bytes, utf8 } from "../src/bytes";
import { sha256 } from "../src/crypto/hashes";
import { ProofError } from "../src/errors";
import { isConsistent, leafHash, verifyInclusion } from "../src/log/merkle";

const MOST = 17;

/** The largest power of two below n. */
const cut = (n: number): number => 2 ** Math.floor(Math.log2(n - 1));

async function root(leaves: readonly Bytes[]): Promise<Bytes> {
  const [only, ...others] = leaves;
  if (only === undefined) return sha256();
  if (others.length === 0) return only;
  const k = cut(leaves.length);
  return sha256(Uint8Array.of(1), await root(leaves.slice(0, k)), await root(leaves.slice(k)));
}

async function path(at: number, leaves: readonly Bytes[]): Promise<Bytes[]> {
  if (leaves.length === 1) return [];
  const k = cut(leaves.length);
  const [left, right] = [leaves.slice(0, k), leaves.slice(k)];
  return at < k
    ? [...(await path(at, left)), await root(right)]
    : [...(await path(at - k, right)), await root(left)];
}

async function proof(old: number, leaves: readonly Bytes[], isWhole: boolean): Promise<Bytes[]> {
  if (old === leaves.length) return isWhole ? [] : [await root(leaves)];
  const k = cut(leaves.length);
  const [left, right] = [leaves.slice(0, k), leaves.slice(k)];
  return old <= k
    ? [...(await proof(old, left, isWhole)), await root(right)]
    : [...(await proof(old - k, right, false)), await root(left)];
}

const LEAVES = await Promise.all(
  Array.from({ length: MOST }, (_, at) => leafHash(utf8(String(at)))),
);
const HEADS = await Promise.all(LEAVES.map((_, at) => root(LEAVES.slice(0, at + 1))));
const head = (size: number): Bytes => HEADS[size - 1] as Bytes;

test("every leaf of every tree is found at its own place only", async () => {
  for (let size = 1; size <= MOST; size++) {
    for (let at = 0; at < size; at++) {
      const found = await path(at, LEAVES.slice(0, size));
      const leaf = LEAVES[at] as Bytes;
      await verifyInclusion(leaf, BigInt(at), BigInt(size), found, head(size));
      const wrong = (index: number, hashes: Bytes[]) =>
        verifyInclusion(leaf, BigInt(index), BigInt(size), hashes, head(size));
      for (const index of [at + 1, size, at ^ 1].filter((one) => one !== at)) {
        await assert.rejects(wrong(index, found), ProofError);
      }
      await assert.rejects(wrong(at, [...found, leaf]), ProofError);
    }
  }
});

test("every tree continues every smaller one, and no other", async () => {
  for (let size = 1; size <= MOST; size++) {
    for (let old = 1; old <= size; old++) {
      const found = await proof(old, LEAVES.slice(0, size), true);
      const holds = (before: Bytes, after: Bytes, hashes: Bytes[]) =>
        isConsistent(BigInt(old), before, BigInt(size), after, hashes).catch(() => false);
      assert.ok(await holds(head(old), head(size), found));
      const other = LEAVES[0] === head(old) ? utf8("x".repeat(32)) : (LEAVES[0] as Bytes);
      assert.ok(!(await holds(other, head(size), found)));
      assert.ok(!(await holds(head(old), other, found)));
      assert.ok(!(await holds(head(old), head(size), [...found, other])));
      for (const at of found.keys()) {
        assert.ok(!(await holds(head(old), head(size), found.with(at, other))), `${old} ${size}`);
      }
    }
  }
});
