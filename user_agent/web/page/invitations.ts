/** Invitations: a task and a credential in the fragment of an address, `#task=HEX&credential=TEXT`. */

import { type Bytes, fromHex, toHex, utf8 } from "../src/bytes";
import { sha256 } from "../src/crypto/hashes";
import { SettingsError } from "../src/errors";
import type { Store } from "../src/store/store";

/** What an address states of an invitation. */
export interface Opened {
  /** The task's digest in hexadecimal. */
  readonly digest: string;
  /** Shows the issuer who asks; empty once the answer has arrived, or if no token is needed. */
  readonly credential: string;
  /** SHA-256 of the credential in hexadecimal, which stays: each credential has its invitation. */
  readonly credentialHash: string;
  /** Seconds since 1970 UTC at which it was opened last. */
  readonly openedAt: number;
}

/** What the page knows of a task besides its answer; plain data. */
export interface Invitation extends Opened {
  readonly title: string;
  /** Seconds since 1970 UTC of the receipt; 0 before. */
  readonly arrivedAt: number;
}

const PLACE = "invitations";
/** Most invitations that are kept, those that were opened last. */
const MOST_KEPT = 100;
const DIGEST = /^[0-9a-f]{64}$/;
const CREDENTIAL = /^[!-~]{0,8192}$/;

/** Read the fragment of an address; null if it is empty. Raises SettingsError. */
export async function readFragment(hash: string, now: number): Promise<Opened | null> {
  if (hash.length < 2) return null;
  const fields = new URLSearchParams(hash.slice(1));
  const digest = fields.get("task")?.toLowerCase() ?? "";
  const credential = fields.get("credential") ?? "";
  const isWhole = [...fields.keys()].every((name) => name === "task" || name === "credential");
  if (!isWhole || !DIGEST.test(digest) || !CREDENTIAL.test(credential)) {
    throw new SettingsError("bad_invitation");
  }
  const credentialHash = toHex(await sha256(credentialBytes(credential)));
  return { digest, credential, credentialHash, openedAt: now };
}

/** Return the bytes of a credential: a secret in hexadecimal, or an ID token as it is. */
export function credentialBytes(text: string): Bytes {
  return (DIGEST.test(text) ? fromHex(text) : null) ?? utf8(text);
}

export class Invitations {
  constructor(private readonly store: Store) {}

  /** Return all, the last opened first. */
  async all(): Promise<Invitation[]> {
    return ((await this.store.locked((records) => records.get(PLACE))) ?? []) as Invitation[];
  }

  /** Keep an invitation, new or known, with the title of its question. */
  keep(opened: Opened, title: string): Promise<void> {
    return this.#change((kept) => {
      const others = kept.filter((one) => !isSame(one, opened));
      const known = kept.find((one) => isSame(one, opened));
      return [{ arrivedAt: 0, ...known, ...opened, title }, ...others];
    });
  }

  /** Note that the answer with this credential arrived, of all if it needs none; and erase it. */
  arrived(digest: string, credentialHash: string, now: number): Promise<void> {
    return this.#change((kept) =>
      kept.map((one) =>
        one.digest === digest && (!credentialHash || one.credentialHash === credentialHash)
          ? { ...one, credential: "", arrivedAt: now }
          : one,
      ),
    );
  }

  #change(change: (kept: readonly Invitation[]) => readonly Invitation[]): Promise<void> {
    return this.store.locked(async (records) => {
      const kept = change(((await records.get(PLACE)) ?? []) as Invitation[]);
      const sorted = kept.toSorted((one, other) => other.openedAt - one.openedAt);
      await records.put(PLACE, sorted.slice(0, MOST_KEPT));
    });
  }
}

function isSame(one: Opened, other: Opened): boolean {
  return one.digest === other.digest && one.credentialHash === other.credentialHash;
}
