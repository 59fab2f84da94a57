/**
 * The person's account: what every answer cost, its bytes, and whether it was counted.
 *
 * An answer is one record, so its charge is saved together with its bytes, before anything is sent:
 * user_agent/device_store.py. No true value is stored.
 */

import { type Bytes, knownBase64, knownHex, splitEvery, toBase64, toHex } from "./bytes";
import { sha256 } from "./crypto/hashes";
import { PolicyError, UnknownTaskError } from "./errors";
import { HASH_BYTES } from "./log/merkle";
import type { Records, Store } from "./store/store";
import type { Task } from "./task/task";

export type State = "pending" | "arrived" | "refused";
export type Inclusion = "unchecked" | "counted" | "missing" | "sampled" | "unproven";

/** The privacy cost of one answer, as claimed by its task and confirmed by this device. */
export interface Claim {
  readonly localEpsilon: number;
  readonly centralEpsilon: number;
  /** Against the analyzer with one of two shufflers; with one shuffler, or if absent, the local ε. */
  readonly coalitionEpsilon?: number;
  readonly delta: number;
  /** Whether the task has two shufflers; claims of earlier versions do not say so. */
  readonly isChained?: boolean;
}

/** Return the cost of an answer to a task. */
export function claimOf(task: Task): Claim {
  const { localEpsilon, centralEpsilon, coalitionEpsilon, delta, relay } = task;
  return { localEpsilon, centralEpsilon, coalitionEpsilon, delta, isChained: relay !== null };
}

/** Return whether two shufflers hide an answer: its reports carry no noise of their own. */
export const hasRelay = (claim: Claim) =>
  claim.isChained ?? coalitionOf(claim) < claim.localEpsilon;
export const coalitionOf = (claim: Claim) => claim.coalitionEpsilon ?? claim.localEpsilon;

/** One answer; plain data, with bytes in base64. */
export interface Answer {
  readonly digest: string;
  readonly claim: Claim;
  readonly state: State;
  readonly inclusion: Inclusion;
  /** Empty once it arrived and needs no check any more. */
  readonly envelope: string;
  readonly envelopeHash: string;
  readonly leaves: string;
  /** Maximum number of leaves of the batch; answers of earlier versions have none. */
  readonly mostLeaves?: number;
  readonly deadline: number;
  readonly receipt: string;
  /** The token key in hexadecimal, empty without tokens. */
  readonly tokenKey: string;
  readonly issuer: string;
  /** The secrets of a token that was not received yet, and the credential to ask for it with. */
  readonly pendingToken: string;
  readonly credential: string;
  /** SHA-256 of the credential in hexadecimal, which stays; empty without tokens. */
  readonly credentialHash: string;
  readonly token: string;
}

/** What to save of a new answer. */
export interface NewAnswer {
  readonly envelope: Bytes;
  readonly leaves: readonly Bytes[];
  readonly mostLeaves: number;
  /** Whether the task lets the shuffler drop reports, so that a missing one proves nothing. */
  readonly isSampled: boolean;
  readonly deadline: number;
  /** The token to ask for, and with which credential; null without tokens. */
  readonly token: {
    readonly key: Bytes;
    readonly issuer: string;
    readonly pending: Bytes;
    readonly credential: Bytes;
  } | null;
}

const PREFIX = "answer ";
const FINISHED = new Set<Inclusion>(["counted", "sampled", "unproven"]);

export class Account {
  constructor(private readonly store: Store) {}

  /** Find the answer to a task by its digest in hexadecimal. */
  find(digest: string): Promise<Answer | null> {
    return this.store.locked((records) => find(records, digest));
  }

  answers(): Promise<Answer[]> {
    return this.store.locked((records) => all(records));
  }

  /**
   * Check the totals, prepare an answer and save it, alone across tabs.
   *
   * If the task is answered already, that answer is returned and nothing is prepared. If `check` or
   * `prepare` raises, nothing is charged.
   */
  async charge(
    digest: string,
    claim: Claim,
    check: (spent: readonly Claim[]) => void,
    prepare: () => Promise<NewAnswer>,
  ): Promise<{ readonly answer: Answer; readonly isRepeated: boolean }> {
    return this.store.locked(async (records) => {
      const earlier = await find(records, digest);
      if (earlier) return { answer: earlier, isRepeated: true };
      const answers = await all(records);
      check(answers.map((answer) => answer.claim));
      const fresh = await prepare();
      const { token } = fresh;
      const tokenKey = token ? toHex(token.key) : "";
      if (tokenKey && answers.some((answer) => answer.tokenKey === tokenKey)) {
        throw new PolicyError("token_key_again");
      }
      const leaves = fresh.isSampled ? [] : fresh.leaves.map(toHex).sort();
      const answer: Answer = {
        digest,
        claim,
        state: "pending",
        inclusion: fresh.isSampled ? "sampled" : "unchecked",
        envelope: toBase64(fresh.envelope),
        envelopeHash: toHex(await sha256(fresh.envelope)),
        leaves: toBase64(knownHex(leaves.join(""))),
        mostLeaves: fresh.mostLeaves,
        deadline: fresh.deadline,
        receipt: "",
        tokenKey,
        issuer: token?.issuer ?? "",
        pendingToken: toBase64(token?.pending ?? new Uint8Array()),
        credential: toBase64(token?.credential ?? new Uint8Array()),
        credentialHash: token ? toHex(await sha256(token.credential)) : "",
        token: "",
      };
      await records.put(`${PREFIX}${digest}`, answer);
      return { answer, isRepeated: false };
    });
  }

  /**
   * Change fields of a saved answer, and return it; raise UnknownTaskError if it was withdrawn.
   *
   * What arrived stays so, and keeps no secret: a late token or refusal of another tab changes
   * nothing. Once it was checked it keeps no bytes, but the leaves of missing reports as evidence.
   */
  change({ digest, envelopeHash }: Answer, changes: Partial<Answer>): Promise<Answer> {
    return this.store.locked(async (records) => {
      const answer = await find(records, digest);
      if (answer?.envelopeHash !== envelopeHash) throw new UnknownTaskError("not_answered");
      const changed = { ...answer, ...changes };
      if ([answer.state, changed.state].includes("arrived")) {
        Object.assign(changed, { state: "arrived", token: "", pendingToken: "", credential: "" });
        if (FINISHED.has(changed.inclusion)) Object.assign(changed, { envelope: "", leaves: "" });
      }
      await records.put(`${PREFIX}${digest}`, changed);
      return changed;
    });
  }

  /**
   * Forget a pending answer that still lacks its token, and with it its charge.
   *
   * It is sent with the token only, so nothing of it has left the device, and a later answer is the
   * first. Once another tab kept the token, it may be on its way, and stays.
   */
  withdraw({ digest, envelopeHash }: Answer): Promise<void> {
    return this.store.locked(async (records) => {
      const answer = await find(records, digest);
      const isUnsent = answer?.state === "pending" && answer.pendingToken !== "";
      if (isUnsent && answer.envelopeHash === envelopeHash) {
        await records.remove(`${PREFIX}${digest}`);
      }
    });
  }
}

/** Return the leaves of an answer that a check looks for, or found missing. */
export function leavesOf(answer: Answer): Bytes[] {
  return splitEvery(knownBase64(answer.leaves), HASH_BYTES);
}

async function find(records: Records, digest: string): Promise<Answer | null> {
  return ((await records.get(`${PREFIX}${digest}`)) as Answer | undefined) ?? null;
}

async function all(records: Records): Promise<Answer[]> {
  return (await records.all(PREFIX)) as Answer[];
}
