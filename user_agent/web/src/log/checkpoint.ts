/**
 * Checkpoints of the log, with the signatures of the log and of its witnesses.
 *
 * C2SP tlog-checkpoint, signed-note and tlog-cosignature, without extension lines:
 * common/transparency/checkpoint.py.
 */

import { type Bytes, concat, equal, fromBase64, toBase64, toHex, toInteger, utf8 } from "../bytes";
import { sha256 } from "../crypto/hashes";
import { IDENTITY_BYTES, Identity } from "../crypto/signing";
import { ProofError, WireError } from "../errors";
import { EMPTY_ROOT, HASH_BYTES, MAX_SIZE } from "./merkle";

export const MAX_NOTE_BYTES = 1 << 17;
const CHECKPOINT = 1;
const COSIGNATURE = 4;
const KEY_ID_BYTES = 4;
const TIME_BYTES = 8;
const NAME = /^[^\p{White_Space}+\x00-\x1f\p{Cs}]+$/u;

/** A public key of a log or a witness, with its name. */
export class NoteKey {
  private constructor(
    readonly name: string,
    readonly isWitness: boolean,
    readonly identity: Identity,
    readonly keyId: Bytes,
  ) {}

  /** Return the key of an analyzer's log, whose origin follows from the analyzer's identity. */
  static ofLog(analyzer: Identity): Promise<NoteKey> {
    return NoteKey.of(`shuffledp/${toHex(analyzer.raw)}`, CHECKPOINT, analyzer);
  }

  /** Parse a witness's verifier key, `<name>+<key ID>+<base64>`, or raise WireError. */
  static async parse(text: string): Promise<NoteKey> {
    const [name = "", keyId = "", ...rest] = text.split("+");
    const raw = fromBase64(rest.join("+"));
    if (raw?.length !== 1 + IDENTITY_BYTES || raw[0] !== COSIGNATURE || !NAME.test(name)) {
      throw new WireError("witness_key");
    }
    const key = await NoteKey.of(name, COSIGNATURE, Identity.of(raw.slice(1)));
    if (toHex(key.keyId) !== keyId) throw new WireError("witness_key");
    return key;
  }

  private static async of(name: string, type: number, identity: Identity): Promise<NoteKey> {
    const typed = concat(Uint8Array.of(type), identity.raw);
    const hash = await sha256(utf8(`${name}\n`), typed);
    return new NoteKey(name, type === COSIGNATURE, identity, hash.slice(0, KEY_ID_BYTES));
  }
}

interface NoteSignature {
  readonly line: string;
  readonly name: string;
  readonly keyId: Bytes;
  readonly signature: Bytes;
}

/** The head of a log's tree, and its signature lines, which are not yet verified. */
export class SignedCheckpoint {
  private constructor(
    readonly origin: string,
    readonly size: bigint,
    readonly root: Bytes,
    private readonly text: string,
    private readonly signatures: readonly NoteSignature[],
  ) {}

  /** Parse a signed note, or raise WireError. It verifies no signature. */
  static parse(raw: Bytes): SignedCheckpoint {
    if (raw.length > MAX_NOTE_BYTES) throw new WireError("note");
    let note: string;
    try {
      note = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    } catch (error) {
      throw new WireError("note", {}, { cause: error });
    }
    const cut = note.lastIndexOf("\n\n");
    const [text, rest] = [note.slice(0, cut + 1), note.slice(cut + 2)];
    const [origin = "", size = "", encoded = "", ...more] = text.split("\n");
    const root = fromBase64(encoded);
    const isHead = cut >= 0 && rest.endsWith("\n") && more.length === 1 && more[0] === "";
    const isSize = /^(0|[1-9][0-9]{0,18})$/.test(size) && BigInt(size) <= MAX_SIZE;
    if (!isHead || !isSize || !NAME.test(origin) || root?.length !== HASH_BYTES) {
      throw new WireError("note");
    }
    if (size === "0" && !equal(root, EMPTY_ROOT)) throw new WireError("note");
    const signatures = rest.slice(0, -1).split("\n").map(signatureOf);
    return new SignedCheckpoint(origin, BigInt(size), root, text, signatures);
  }

  /** Return the note with the valid signature lines of these keys only. */
  async only(keys: readonly NoteKey[]): Promise<Bytes> {
    const lines: string[] = [];
    for (const key of keys) {
      const isValid = await this.signedAt(key).catch(() => null);
      if (isValid !== null) lines.push(this.#find(key)?.line ?? "");
    }
    return utf8(`${this.text}\n${lines.map((line) => `${line}\n`).join("")}`);
  }

  /** Raise ProofError unless the checkpoint is this log's, signed by it. */
  async checkLog(log: NoteKey): Promise<void> {
    if (this.origin !== log.name || (await this.signedAt(log)) === null) {
      throw new ProofError("checkpoint_not_signed", { log: log.name });
    }
  }

  /**
   * Return the time of a key's signature in seconds since 1970, 0 for a log's; null without one.
   *
   * Of a key's lines the first one counts. Raises ProofError if it is not valid.
   */
  async signedAt(key: NoteKey): Promise<bigint | null> {
    const found = this.#find(key);
    if (found === undefined) return null;
    const at = key.isWitness ? TIME_BYTES : 0;
    const seconds = toInteger(found.signature.slice(0, at));
    const label = key.isWitness ? "cosignature/v1\n" : "";
    const message = key.isWitness ? `time ${seconds}\n${this.text}` : this.text;
    const isValid = await key.identity.signed(label, utf8(message), found.signature.slice(at));
    if (!isValid || seconds > MAX_SIZE) {
      throw new ProofError("note_signature", { name: key.name, size: this.size });
    }
    return seconds;
  }

  #find(key: NoteKey): NoteSignature | undefined {
    const isOf = (one: NoteSignature) => one.name === key.name && equal(one.keyId, key.keyId);
    return this.signatures.find(isOf);
  }
}

function signatureOf(line: string): NoteSignature {
  const [dash, name = "", ...rest] = line.split(" ");
  const raw = fromBase64(rest.join(" "));
  if (dash !== "\u2014" || !NAME.test(name) || raw === null || raw.length <= KEY_ID_BYTES) {
    throw new WireError("note");
  }
  const [keyId, signature] = [raw.slice(0, KEY_ID_BYTES), raw.slice(KEY_ID_BYTES)];
  return { line: `\u2014 ${name} ${toBase64(raw)}`, name, keyId, signature };
}
