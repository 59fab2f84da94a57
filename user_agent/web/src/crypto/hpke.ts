/**
 * Hybrid public key encryption [RFC9180] of reports and envelopes: common/crypto/hpke.py.
 *
 * `info` binds a ciphertext to its sender, recipient and task. WebCrypto lacks ChaCha20-Poly1305,
 * which is loaded only for a task that names it.
 */

import {
  type AeadInterface,
  Aes128Gcm,
  CipherSuite,
  DhkemX25519HkdfSha256,
  HkdfSha256,
} from "@hpke/core";
import { type Bytes, concat, utf8 } from "../bytes";
import { WireError } from "../errors";

interface SuiteSpec {
  readonly aead: () => Promise<AeadInterface>;
  readonly publicKeyBytes: number;
  /** Length that sealing adds: encapsulated key and tag. */
  readonly overheadBytes: number;
}

const X25519 = { publicKeyBytes: 32, overheadBytes: 32 + 16 };

/** The suites of this device by their names in tasks. */
export const SUITES = {
  "x25519-hkdf-sha256-aes128gcm": { ...X25519, aead: async () => new Aes128Gcm() },
  "x25519-hkdf-sha256-chacha20poly1305": {
    ...X25519,
    aead: async () => new (await import("@hpke/chacha20poly1305")).Chacha20Poly1305(),
  },
} satisfies Record<string, SuiteSpec>;

export type SuiteName = keyof typeof SUITES;

/** Seals a plaintext: encapsulated key ‖ ciphertext ‖ tag, with a fresh key each time. */
export type Sealer = (plaintext: Bytes) => Promise<Bytes>;

const USER_AGENT = 1;
/** Recipients, each one byte of the context. */
export const SHUFFLER = 2;
export const ANALYZER = 3;

/** Return HPKE's `info`: label, sender, recipient and task digest. */
export function sealContext(recipient: number, digest: Bytes): Bytes {
  return concat(utf8("shuffledp v1 seal"), Uint8Array.of(USER_AGENT, recipient), digest);
}

/** Return a suite of @hpke/core. */
export async function cipherSuite(name: SuiteName): Promise<CipherSuite> {
  const aead = await SUITES[name].aead();
  return new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead });
}

/** Return a function that seals under one key and context; it raises WireError for a bad key. */
export async function sealer(name: SuiteName, publicKey: Bytes, info: Bytes): Promise<Sealer> {
  const suite = await cipherSuite(name);
  return async (plaintext) => {
    try {
      const recipientPublicKey = await suite.kem.deserializePublicKey(publicKey);
      const sender = await suite.createSenderContext({ recipientPublicKey, info });
      return concat(new Uint8Array(sender.enc), new Uint8Array(await sender.seal(plaintext)));
    } catch (error) {
      throw new WireError("key_seals_nothing", {}, { cause: error });
    }
  };
}
