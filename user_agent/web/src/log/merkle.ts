/** Inclusion and consistency proofs of the log [RFC9162, 2.1]: common/transparency/merkle.py. */

import { type Bytes, equal, knownHex } from "../bytes";
import { taggedHash } from "../crypto/hashes";
import { ProofError } from "../errors";

export const HASH_BYTES = 32;
export const MAX_SIZE = (1n << 63n) - 1n;
/** Root of the tree without leaves. */
export const EMPTY_ROOT = knownHex(
  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
);

/** The hashes of a proof, from the bottom of the tree up. */
export type Path = readonly Bytes[];

export function leafHash(entry: Bytes): Promise<Bytes> {
  return taggedHash(0, entry);
}

function nodeHash(left: Bytes, right: Bytes): Promise<Bytes> {
  return taggedHash(1, left, right);
}

/** Raise ProofError unless the path shows a leaf hash at this index of this size and root. */
export async function verifyInclusion(
  leaf: Bytes,
  index: bigint,
  size: bigint,
  path: Path,
  root: Bytes,
): Promise<void> {
  if (index >= size) throw new ProofError("index_outside", { index, size });
  let found = leaf;
  for (const [isLeft, sibling] of sides(path, index, size - 1n)) {
    found = isLeft ? await nodeHash(sibling, found) : await nodeHash(found, sibling);
  }
  if (!equal(found, root)) throw new ProofError("not_in_log", { index, size });
}

/** Return whether the path proves that the tree with this size and root extends the old one. */
export async function isConsistent(
  oldSize: bigint,
  oldRoot: Bytes,
  size: bigint,
  root: Bytes,
  path: Path,
): Promise<boolean> {
  if (oldSize > size) return false;
  if (oldSize === 0n || oldSize === size) {
    return path.length === 0 && equal(oldRoot, oldSize === size ? root : EMPTY_ROOT);
  }
  let [node, last] = [oldSize - 1n, size - 1n];
  for (; node & 1n; node >>= 1n) last >>= 1n;
  let [before, after, rest] = [oldRoot, oldRoot, path];
  const [first, ...others] = path;
  if (node > 0n) {
    if (first === undefined) return false;
    [before, after, rest] = [first, first, others];
  }
  for (const [isLeft, sibling] of sides(rest, node, last)) {
    if (isLeft) before = await nodeHash(sibling, before);
    after = isLeft ? await nodeHash(sibling, after) : await nodeHash(after, sibling);
  }
  return equal(before, oldRoot) && equal(after, root);
}

/** Pair each hash of a node's path with whether it is on the left, or raise ProofError. */
function sides(path: Path, node: bigint, last: bigint): (readonly [boolean, Bytes])[] {
  const found: boolean[] = [];
  for (let [at, end] = [node, last]; end > 0n; at >>= 1n, end >>= 1n) {
    if (at & 1n || at < end) found.push((at & 1n) === 1n);
  }
  if (path.length !== found.length || path.some((hash) => hash.length !== HASH_BYTES)) {
    throw new ProofError("path_length", { value: path.length, wanted: found.length });
  }
  return path.map((hash, at) => [found[at] ?? false, hash]);
}
