/** Bytes: joining, comparing, and their forms as hexadecimal, base64 and integers. */

import { StorageError } from "./errors";

/** Bytes in memory of their own, as WebCrypto takes them. */
export type Bytes = Uint8Array<ArrayBuffer>;

const ENCODER = new TextEncoder();

export function utf8(text: string): Bytes {
  return ENCODER.encode(text) as Bytes;
}

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Return whether two arrays hold the same bytes; not in constant time, so not for secrets. */
export function equal(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Read lower-case hexadecimal; null for any other text. */
export function fromHex(text: string): Bytes | null {
  if (!/^([0-9a-f]{2})*$/.test(text)) return null;
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(binary);
}

/** Read canonical standard base64; null for any other text. */
export function fromBase64(text: string): Bytes | null {
  try {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return toBase64(bytes) === text ? bytes : null;
  } catch {
    return null;
  }
}

/** Return bytes that this program wrote in hexadecimal; raise StorageError if they were damaged. */
export function knownHex(text: string): Bytes {
  return undamaged(fromHex(text));
}

/** Return bytes that this program wrote in base64; raise StorageError if they were damaged. */
export function knownBase64(text: string): Bytes {
  return undamaged(fromBase64(text));
}

function undamaged(bytes: Bytes | null): Bytes {
  if (bytes === null) throw new StorageError("storage_failed");
  return bytes;
}

export function toInteger(bytes: Uint8Array): bigint {
  return bytes.length ? BigInt(`0x${toHex(bytes)}`) : 0n;
}

/** Write a big-endian integer into `length` bytes; the caller ensures that it fits. */
export function fromInteger(value: bigint | number, length: number): Bytes {
  return fromHex(value.toString(16).padStart(2 * length, "0")) ?? new Uint8Array(length);
}

/** Split bytes into pieces of `size`; a remainder becomes a shorter last piece. */
export function splitEvery(bytes: Bytes, size: number): Bytes[] {
  const pieces: Bytes[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
  return pieces;
}
