/** @hpke/core, an implementation of HPKE that shares no code with the device's. */

import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { type Bytes, concat } from "../src/bytes";
import type { SuiteName } from "../src/crypto/hpke";
import { hex } from "./vectors";

/** Open a ciphertext; an error if it does not open. */
export async function open(
  name: SuiteName,
  privateKey: Bytes,
  info: Bytes,
  sealed: Bytes,
): Promise<Bytes> {
  const aead = name.endsWith("gcm") ? new Aes128Gcm() : new Chacha20Poly1305();
  const kem = new DhkemX25519HkdfSha256();
  const suite = new CipherSuite({ kem, kdf: new HkdfSha256(), aead });
  const context = await suite.createRecipientContext({
    recipientKey: await suite.kem.deserializePrivateKey(privateKey),
    enc: sealed.slice(0, 32),
    info,
  });
  return new Uint8Array(await context.open(sealed.slice(32)));
}

/** Return the pair of an X25519 private key. */
export async function pairOf(raw: Bytes): Promise<CryptoKeyPair> {
  const pkcs8 = concat(hex("302e020100300506032b656e04220420"), raw);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, "X25519", true, ["deriveBits"]);
  const { x = "" } = await crypto.subtle.exportKey("jwk", privateKey);
  const jwk = { kty: "OKP", crv: "X25519", x };
  const publicKey = await crypto.subtle.importKey("jwk", jwk, "X25519", true, []);
  return { privateKey, publicKey };
}
