/**
 * Ed25519 identities, signed tasks and keys, and receipts: common/crypto/signing.py, signed_key.py.
 *
 * Implementations of Ed25519 differ for keys of small order [CGN20] and for second encodings of a
 * number [RFC8032, Section 5.1.7]; both are refused here before WebCrypto sees them.
 */

import { type Bytes, concat, equal, fromHex, toInteger, utf8 } from "../bytes";
import { ProofError, WireError } from "../errors";
import { fingerprint, sha256 } from "./hashes";

export const IDENTITY_BYTES = 32;
export const SIGNATURE_BYTES = 64;
/** Length of a key's proof: the end of its validity, and the signature. */
export const PROOF_BYTES = 8 + SIGNATURE_BYTES;

const FIELD = 2n ** 255n - 19n;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;
/** The y of two points of order 8; the other two have its negative. */
const EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022n;
/** The y of the points whose order divides 8. */
const SMALL_ORDER: ReadonlySet<bigint> = new Set([0n, 1n, FIELD - 1n, EIGHTH, FIELD - EIGHTH]);

/** A task exactly as published, and the signature over it. */
export interface SignedTask {
  readonly bytes: Bytes;
  readonly signature: Bytes;
}

/** The public half of a party's identity, which the device pins. */
export class Identity {
  private constructor(readonly raw: Bytes) {}

  /** Take 32 bytes, or raise WireError. */
  static of(raw: Bytes): Identity {
    if (raw.length !== IDENTITY_BYTES) throw new WireError("identity_length");
    const y = coordinate(raw);
    if (y >= FIELD || SMALL_ORDER.has(y)) throw new WireError("identity_order");
    return new Identity(raw);
  }

  /** Parse 64 hexadecimal digits, or raise WireError. */
  static fromHex(text: string): Identity {
    return Identity.of(fromHex(text.toLowerCase()) ?? new Uint8Array());
  }

  /** Return whether this identity signed a message under a label. */
  async signed(label: string, message: Uint8Array, signature: Bytes): Promise<boolean> {
    if (signature.length !== SIGNATURE_BYTES || !isStandard(signature)) return false;
    try {
      const key = await crypto.subtle.importKey("raw", this.raw, "Ed25519", false, ["verify"]);
      return await crypto.subtle.verify("Ed25519", key, signature, concat(utf8(label), message));
    } catch {
      return false;
    }
  }
}

function isStandard(signature: Bytes): boolean {
  const scalar = toInteger(signature.slice(32).toReversed());
  return coordinate(signature) < FIELD && scalar < ORDER;
}

function coordinate(point: Bytes): bigint {
  return toInteger(point.slice(0, 32).toReversed()) & (2n ** 255n - 1n);
}

/** Raise ProofError unless a task has this digest, and the pinned analyzer signed it. */
export async function verifyTask(
  task: SignedTask,
  digest: Bytes,
  analyzer: Identity,
): Promise<void> {
  if (!equal(await sha256(task.bytes), digest)) throw new ProofError("another_task");
  if (!(await analyzer.signed("shuffledp v1 task", task.bytes, task.signature))) {
    throw new ProofError("task_not_signed", { identity: await fingerprint(analyzer.raw) });
  }
}

/** The kinds of signed keys: the party, and the label of its signature. */
export const ENVELOPE_KEY = { party: "shuffler", label: "shuffledp v1 envelope key" } as const;
export const RELAY_KEY = { party: "relay", label: "shuffledp v1 relay key" } as const;
export const TOKEN_KEY = { party: "issuer", label: "shuffledp v1 token key" } as const;

/** Raise ProofError unless a party's identity signed a task's key for this scope. */
export async function checkKey(
  identity: Identity,
  use: typeof ENVELOPE_KEY | typeof RELAY_KEY | typeof TOKEN_KEY,
  scope: string,
  key: Bytes,
  proof: Bytes,
): Promise<void> {
  const end = proof.slice(0, 8);
  const message = concat(await sha256(utf8(scope)), await sha256(key), end);
  const isSigned = await identity.signed(use.label, message, proof.slice(8));
  if (proof.length !== PROOF_BYTES || !isSigned) {
    const shown = await fingerprint(identity.raw);
    throw new ProofError("key_not_signed", { party: use.party, identity: shown });
  }
}

/** Return whether a receipt covers this envelope. */
export async function isValidReceipt(
  shuffler: Identity,
  digest: Bytes,
  envelope: Bytes,
  receipt: Bytes,
): Promise<boolean> {
  const message = concat(digest, await sha256(envelope));
  return shuffler.signed("shuffledp v1 receipt", message, receipt);
}
