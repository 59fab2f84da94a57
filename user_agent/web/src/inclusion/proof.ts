/** Proofs that a report is in its batch: common/messages/inclusion_proof.py. */

import { type Bytes, concat, equal, fromInteger, splitEvery, toInteger } from "../bytes";
import { taggedHash } from "../crypto/hashes";
import type { Identity } from "../crypto/signing";
import { ProofError } from "../errors";
import { HASH_BYTES, type Path } from "../log/merkle";

/** Maximum number of bits of a prefix on the wire. */
export const MAX_BITS = 32;
const BUCKET_LEAVES = 256n;
/** First bytes of what is hashed. */
const [LEAF, BUCKET, NODE, SALTED] = [0, 1, 2, 3] as const;

/** The root of the tree over a batch's reports, signed by the analyzer or relay that received them. */
export interface BatchCommitment {
  readonly taskDigest: Bytes;
  readonly batchId: Bytes;
  readonly leaves: bigint;
  readonly bits: number;
  readonly salt: Bytes;
  readonly root: Bytes;
  readonly signature: Bytes;
}

/** One bucket of a batch's tree, and the sibling hashes on its path to the root. */
export interface InclusionProof {
  readonly commitment: BatchCommitment;
  readonly bucket: Bytes;
  readonly path: Path;
}

export function leafOf(sealedReport: Bytes): Promise<Bytes> {
  return taggedHash(LEAF, sealedReport);
}

/** Return the number of the bucket that holds a leaf if the leaf is in the tree. */
export async function prefixOf(commitment: BatchCommitment, leaf: Bytes): Promise<number> {
  const head = (await salted(commitment, leaf)).slice(0, 4);
  return Number(toInteger(head) >> BigInt(MAX_BITS - commitment.bits));
}

function salted(commitment: BatchCommitment, leaf: Bytes): Promise<Bytes> {
  return taggedHash(SALTED, commitment.salt, leaf);
}

/** Raise ProofError for another task, too many leaves to hide one, a wrong depth or signature. */
export async function verifyCommitment(
  commitment: BatchCommitment,
  signer: Identity | null | undefined,
  digest: Bytes,
  most = Number.POSITIVE_INFINITY,
): Promise<void> {
  if (!equal(commitment.taskDigest, digest)) throw new ProofError("commitment_of_another_task");
  if (commitment.leaves > most) throw new ProofError("commitment_leaves", { most });
  if (commitment.bits !== bitsFor(commitment.leaves)) throw new ProofError("commitment_depth");
  const isSigned = await signer?.signed(
    "shuffledp v1 batch commitment",
    signedPart(commitment),
    commitment.signature,
  );
  if (!isSigned) throw new ProofError("commitment_not_signed");
}

export function isSame(one: BatchCommitment, other: BatchCommitment): boolean {
  return equal(signedPart(one), signedPart(other)) && equal(one.signature, other.signature);
}

function signedPart({ taskDigest, batchId, leaves, bits, salt, root }: BatchCommitment): Bytes {
  const counts = concat(fromInteger(leaves, 8), fromInteger(bits, 1));
  return concat(taskDigest, batchId, counts, salt, root);
}

function bitsFor(leaves: bigint): number {
  const bits = (leaves / BUCKET_LEAVES).toString(2).length - 1;
  return Math.min(MAX_BITS, bits);
}

/**
 * Return whether the signer received a leaf; false is a proof of absence.
 *
 * The proof's commitment must have been verified. Raises ProofError if the proof does not lead to
 * its root.
 */
export async function includes(proof: InclusionProof, leaf: Bytes): Promise<boolean> {
  const { commitment, bucket, path } = proof;
  const isLong = path.length === commitment.bits;
  if (!isLong || path.some((hash) => hash.length !== HASH_BYTES)) {
    throw new ProofError("path_length", { value: path.length, wanted: commitment.bits });
  }
  let prefix = await prefixOf(commitment, leaf);
  let found = await taggedHash(BUCKET, bucket);
  for (const sibling of path) {
    const [left, right] = prefix & 1 ? [sibling, found] : [found, sibling];
    found = await taggedHash(NODE, left, right);
    prefix >>>= 1;
  }
  if (!equal(found, commitment.root)) throw new ProofError("bucket_root");
  const own = await salted(commitment, leaf);
  return splitEvery(bucket, HASH_BYTES).some((one) => equal(one, own));
}
