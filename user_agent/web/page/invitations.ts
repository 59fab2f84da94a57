/** Invitations: a task and a credential in the fragment of an address, `#task=HEX&credential=TEXT`. */

import { type Bytes, fromHex, utf8 } from "../src/bytes";
import { SettingsError } from "../src/errors";
import type { Store } from "../src/store/store";

/** What the page knows of a task besides its answer; plain data. */
export interface Invitation {
  /** The task's digest in hexadecimal. */
  readonly digest: string;
  /** Shows the issuer who asks; empty once the answer has arrived, or if no token is needed. */
  readonly credential: string;
  /** Seconds since 1970 UTC at which it was opened last. */
  readonly openedAt: number;
  readonly title: string;
  /** Seconds since 1970 UTC of the receipt; 0 before. */
  readonly arrivedAt: number;
}

/** What an address states of an invitation. */
export type Opened = Pick<Invitation, "digest" | "credential" | "openedAt">;

/** Keys of invitations begin with this. */
const PREFIX = "invitation ";
const DIGEST = /^[0-9a-f]{64}$/;
const EMPTY: Invitation = { digest: "", credential: "", openedAt: 0, title: "", arrivedAt: 0 };
const CREDENTIAL = /^[!-~]{0,8192}$/;

/** Read the fragment of an address; null if it is empty. Raises SettingsError. */
export function readFragment(hash: string, now: number): Opened | null {
  if (hash.length < 2) return null;
  const fields = new URLSearchParams(hash.slice(1));
  const digest = fields.get("task")?.toLowerCase() ?? "";
  const credential = fields.get("credential") ?? "";
  const isWhole = [...fields.keys()].every((name) => name === "task" || name === "credential");
  if (!isWhole || !DIGEST.test(digest) || !CREDENTIAL.test(credential)) {
    throw new SettingsError("bad_invitation");
  }
  return { digest, credential, openedAt: now };
}

/** Return the bytes of a credential: a secret in hexadecimal, or an ID token as it is. */
export function credentialBytes(text: string): Bytes {
  return (DIGEST.test(text) ? fromHex(text) : null) ?? utf8(text);
}

/** The invitations that this browser was given. */
export class Invitations {
  constructor(private readonly store: Store) {}

  /** Return all, the last opened first. */
  async all(): Promise<Invitation[]> {
    const found = await this.store.locked((records) => records.all(PREFIX));
    return (found as Invitation[]).sort((one, other) => other.openedAt - one.openedAt);
  }

  /** Set fields of an invitation, new or known; once it arrived, its credential is erased. */
  change(digest: string, changes: Partial<Invitation>): Promise<Invitation> {
    return this.store.locked(async (records) => {
      const found = (await records.get(PREFIX + digest)) as Invitation | undefined;
      const changed = { ...(found ?? { ...EMPTY, digest }), ...changes };
      const kept = changed.arrivedAt ? { ...changed, credential: "" } : changed;
      await records.put(PREFIX + digest, kept);
      return kept;
    });
  }
}
