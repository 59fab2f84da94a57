/**
 * Unlinkable one-time tokens: Privacy Pass type 2 [RFC9577, RFC9578] by RSA blind signatures
 * [RFC9474, RSABSSA-SHA384-PSS-Deterministic]; common/crypto/privacy_tokens.py.
 *
 * BigInt's speed depends on its operands, and nothing here runs in constant time. That suffices on
 * a device: r is new in every request, and the device chooses when to use it [RFC9474, Section
 * 7.1]. Code that shares its machine with an attacker who measures it must not rely on this module.
 */

import { type Bytes, concat, equal, fromInteger, knownHex, toInteger, utf8 } from "../bytes";
import { ProofError, WireError } from "../errors";
import { drawBytes, type Uniform } from "../random";
import { sha256, sha384 } from "./hashes";

export const MODULUS_BYTES = 256;
const NONCE_BYTES = 32;
const SALT_BYTES = 48;
const SHA384_BYTES = 48;
const MODULUS_BITS = 8 * MODULUS_BYTES;
const TYPE = Uint8Array.of(0, 2);

/** The only encoding of a key of this size and exponent [RFC9578, Section 6.5]. */
const SPKI_HEAD =
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202" +
  "a11a301806092a864886f70d010108300b0609608648016503040202" +
  "a2030201300382010f003082010a0282010100";
const SPKI_TAIL = "0203010001";

/** The public half of a task's token key; `der` stands in the task. */
export class TokenKey {
  private constructor(
    readonly der: Bytes,
    readonly modulus: bigint,
  ) {}

  /** Parse a key; null unless it is RFC 9578's encoding of 2048 odd bits and exponent 65537. */
  static of(der: Bytes): TokenKey | null {
    const head = knownHex(SPKI_HEAD);
    const tail = knownHex(SPKI_TAIL);
    const middle = der.slice(head.length, der.length - tail.length);
    const modulus = toInteger(middle);
    const isKey = equal(der, concat(head, middle, tail)) && middle.length === MODULUS_BYTES;
    const isFull = modulus >> BigInt(MODULUS_BITS - 1) === 1n && modulus % 2n === 1n;
    return isKey && isFull ? new TokenKey(der, modulus) : null;
  }

  /** Return SHA-256 of the encoded key, which its tokens contain. */
  keyId(): Promise<Bytes> {
    return sha256(this.der);
  }
}

/** Return the challenge that a task's tokens answer [RFC9577, Section 2.1.1]. */
export function tokenChallenge(digest: Bytes, issuer: string): Bytes {
  const name = utf8(issuer);
  return concat(
    TYPE,
    fromInteger(name.length, 2),
    name,
    Uint8Array.of(32),
    digest,
    new Uint8Array(2),
  );
}

export class PendingToken {
  readonly #nonce: Bytes;
  readonly #salt: Bytes;
  readonly #r: bigint;

  /** Take the secrets of `draw` for the same key; raise WireError if they are malformed. */
  constructor(
    private readonly key: TokenKey,
    private readonly challenge: Bytes,
    secrets: Bytes,
  ) {
    this.#nonce = secrets.slice(0, NONCE_BYTES);
    this.#salt = secrets.slice(NONCE_BYTES, -MODULUS_BYTES);
    this.#r = toInteger(secrets.slice(-MODULUS_BYTES));
    const isWhole = secrets.length === NONCE_BYTES + SALT_BYTES + MODULUS_BYTES;
    if (!isWhole || !isBlind(this.#r, key.modulus)) throw new WireError("pending_token");
  }

  /**
   * Draw the secrets of a new token: nonce, salt, and r until it has an inverse.
   *
   * They link the request to the token: a device keeps them until it has the token, so that it asks
   * with the same message again, and never logs or sends them.
   */
  static draw(key: TokenKey, uniform: Uniform): Bytes {
    const head = concat(drawBytes(uniform, NONCE_BYTES), drawBytes(uniform, SALT_BYTES));
    for (;;) {
      const r = drawBytes(uniform, MODULUS_BYTES);
      if (isBlind(toInteger(r), key.modulus)) return concat(head, r);
    }
  }

  /** Return the blinded message, always the same; WireError if the key has a small factor. */
  async blinded(): Promise<Bytes> {
    const { modulus } = this.key;
    const encoded = await pssEncode(await this.#signed(), this.#salt);
    if (inverse(encoded, modulus) === 0n) throw new WireError("token_key_factor");
    return fromInteger((encoded * power(this.#r, modulus)) % modulus, MODULUS_BYTES);
  }

  /** Return the token; raise ProofError if the blind signature is not of this message. */
  async finalize(blindSignature: Bytes): Promise<Bytes> {
    const { modulus } = this.key;
    const signed = await this.#signed();
    const signature = (toInteger(blindSignature) * inverse(this.#r, modulus)) % modulus;
    const isValid = power(signature, modulus) === (await pssEncode(signed, this.#salt));
    if (blindSignature.length !== MODULUS_BYTES || !isValid)
      throw new ProofError("blind_signature");
    return concat(signed, fromInteger(signature, MODULUS_BYTES));
  }

  async #signed(): Promise<Bytes> {
    return concat(TYPE, this.#nonce, await sha256(this.challenge), await this.key.keyId());
  }
}

/** Return EMSA-PSS-ENCODE(message, 2047) [RFC8017, Section 9.1.1] as an integer. */
async function pssEncode(message: Bytes, salt: Bytes): Promise<bigint> {
  const digest = await sha384(new Uint8Array(8), await sha384(message), salt);
  const size = MODULUS_BYTES - SHA384_BYTES - 1;
  const mask: Bytes[] = [];
  for (let at = 0; at * SHA384_BYTES < size; at++) {
    mask.push(await sha384(digest, fromInteger(at, 4)));
  }
  const block = toInteger(concat(Uint8Array.of(1), salt));
  const masked = block ^ toInteger(concat(...mask).slice(0, size));
  const shift = BigInt(8 * (SHA384_BYTES + 1));
  const bits = (1n << (BigInt(MODULUS_BITS - 1) - shift)) - 1n;
  return ((masked & bits) << shift) | toInteger(concat(digest, Uint8Array.of(0xbc)));
}

function isBlind(r: bigint, modulus: bigint): boolean {
  return r > 0n && r < modulus && inverse(r, modulus) !== 0n;
}

/** Return the inverse of a number modulo n, or 0 if there is none. */
function inverse(value: bigint, modulus: bigint): bigint {
  let [r0, r1, s0, s1] = [modulus, value % modulus, 0n, 1n];
  while (r1 > 0n) {
    const quotient = r0 / r1;
    [r0, r1, s0, s1] = [r1, r0 - quotient * r1, s1, s0 - quotient * s1];
  }
  return r0 === 1n ? ((s0 % modulus) + modulus) % modulus : 0n;
}

function power(value: bigint, modulus: bigint): bigint {
  let squared = value;
  for (let bit = 0; bit < 16; bit++) squared = (squared * squared) % modulus;
  return (squared * value) % modulus;
}
