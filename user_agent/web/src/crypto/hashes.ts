/** SHA-2 by WebCrypto, over the parts of a message. */

import { type Bytes, concat, toHex } from "../bytes";

function hashing(algorithm: string) {
  return async (...parts: readonly Uint8Array[]): Promise<Bytes> =>
    new Uint8Array(await crypto.subtle.digest(algorithm, concat(...parts)));
}

export const sha256 = hashing("SHA-256");
export const sha384 = hashing("SHA-384");

/** Hash the parts of a tree's leaf or node, told apart by a first byte. */
export function taggedHash(tag: number, ...parts: readonly Uint8Array[]): Promise<Bytes> {
  return sha256(Uint8Array.of(tag), ...parts);
}

/** Return 16 hexadecimal digits of a public key's SHA-256, to show instead of the key. */
export async function fingerprint(key: Uint8Array): Promise<string> {
  return toHex(await sha256(key)).slice(0, 16);
}
