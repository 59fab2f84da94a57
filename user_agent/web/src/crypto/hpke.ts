/**
 * Hybrid public key encryption [RFC9180] of reports and envelopes: common/crypto/hpke.py.
 *
 * Base mode, sender's half, one message a context: DHKEM(X25519, HKDF-SHA256) and HKDF-SHA256 from
 * WebCrypto. `info` binds a ciphertext to its sender, recipient and task. WebCrypto lacks
 * ChaCha20-Poly1305, which is loaded only for a task that names it. Tests hold this module to
 * @hpke/core, to the Python device's vectors and to transcripts with known ephemeral keys.
 */

import { type Bytes, concat, equal, fromInteger, utf8 } from "../bytes";
import { PeerError, WireError } from "../errors";

type Seal = (key: Bytes, nonce: Bytes, plaintext: Bytes) => Promise<Bytes>;

interface SuiteSpec {
  /** The identifier of the AEAD [RFC9180, Section 7.3], and the length of its key. */
  readonly aead: number;
  readonly keyBytes: number;
  readonly seal: Seal;
  /** Fetch what the page loads for this suite alone. */
  readonly load?: () => Promise<unknown>;
  readonly publicKeyBytes: number;
  /** Length that sealing adds: encapsulated key and tag. */
  readonly overheadBytes: number;
}

const X25519 = { publicKeyBytes: 32, overheadBytes: 32 + 16 };

/** The suites of this device by their names in tasks. */
export const SUITES = {
  "x25519-hkdf-sha256-aes128gcm": { ...X25519, aead: 1, keyBytes: 16, seal: sealByAes },
  "x25519-hkdf-sha256-chacha20poly1305": {
    ...X25519,
    aead: 3,
    keyBytes: 32,
    seal: sealByChaCha,
    load: chaCha,
  },
} satisfies Record<string, SuiteSpec>;

export type SuiteName = keyof typeof SUITES;

/** Load all that sealing needs, so that it works offline; raise PeerError if that cannot be had. */
export async function loadSuite(name: SuiteName): Promise<void> {
  const suite: SuiteSpec = SUITES[name];
  await suite.load?.();
}

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

/**
 * Return a function that seals under one key and context; it raises WireError for a bad key.
 *
 * Every call of `ephemeral` must give a pair that is used for nothing else; only tests replace it.
 */
export function sealer(
  name: SuiteName,
  publicKey: Bytes,
  info: Bytes,
  ephemeral: () => Promise<CryptoKeyPair> = freshPair,
): Sealer {
  const suite: SuiteSpec = SUITES[name];
  const kem = labelled(concat(utf8("KEM"), fromInteger(0x20, 2)));
  const hpke = labelled(concat(utf8("HPKE"), Uint8Array.of(0, 0x20, 0, 1, 0, suite.aead)));
  const hashes = Promise.all([
    hpke.extract("", "psk_id_hash", utf8("")),
    hpke.extract("", "info_hash", info),
  ]);
  return async (plaintext) => {
    const pair = await ephemeral();
    const enc = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    const agreed = await agree(publicKey, pair.privateKey);
    const prk = await kem.extract("", "eae_prk", agreed);
    const shared = await kem.expand(prk, "shared_secret", concat(enc, publicKey), 32);
    const context = concat(Uint8Array.of(0), ...(await hashes));
    const secret = await hpke.extract(shared, "secret", utf8(""));
    const key = await hpke.expand(secret, "key", context, suite.keyBytes);
    const nonce = await hpke.expand(secret, "base_nonce", context, 12);
    return concat(enc, await suite.seal(key, nonce, plaintext));
  };
}

async function freshPair(): Promise<CryptoKeyPair> {
  const pair = await crypto.subtle.generateKey("X25519", false, ["deriveBits"]);
  return pair as CryptoKeyPair;
}

/** Return the shared X25519 secret; raise WireError for a point of small order. */
async function agree(publicKey: Bytes, privateKey: CryptoKey): Promise<Bytes> {
  try {
    const key = await crypto.subtle.importKey("raw", publicKey, "X25519", false, []);
    const exchange = { name: "X25519", public: key };
    const agreed = new Uint8Array(await crypto.subtle.deriveBits(exchange, privateKey, 256));
    if (!equal(agreed, new Uint8Array(32))) return agreed;
  } catch (error) {
    throw new WireError("key_seals_nothing", {}, { cause: error });
  }
  throw new WireError("key_seals_nothing");
}

/** LabeledExtract and LabeledExpand of one suite, for outputs of one hash [RFC9180, Section 4]. */
function labelled(suiteId: Bytes) {
  const head = (label: string) => concat(utf8("HPKE-v1"), suiteId, utf8(label));
  return {
    extract: (salt: Bytes | "", label: string, key: Bytes): Promise<Bytes> =>
      hmac(salt || new Uint8Array(32), concat(head(label), key)),
    expand: async (prk: Bytes, label: string, info: Bytes, length: number): Promise<Bytes> => {
      const message = concat(fromInteger(length, 2), head(label), info, Uint8Array.of(1));
      return (await hmac(prk, message)).slice(0, length);
    },
  };
}

async function hmac(key: Bytes, message: Bytes): Promise<Bytes> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

async function sealByAes(key: Bytes, iv: Bytes, plaintext: Bytes): Promise<Bytes> {
  const imported = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  return new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, imported, plaintext));
}

async function chaCha() {
  try {
    return await import("@hpke/chacha20poly1305");
  } catch (error) {
    throw new PeerError("part_missing", {}, { cause: error });
  }
}

async function sealByChaCha(key: Bytes, nonce: Bytes, plaintext: Bytes): Promise<Bytes> {
  const { Chacha20Poly1305 } = await chaCha();
  const context = new Chacha20Poly1305().createEncryptionContext(key);
  return new Uint8Array(await context.seal(nonce, plaintext, new Uint8Array()));
}
