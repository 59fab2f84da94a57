/**
 * Accept a task only if it is in the analyzer's log, under a checkpoint that witnesses cosigned.
 *
 * user_agent/task_log.py and common/transparency/witness_policy.py. What the device saw is kept, so
 * that anyone who pins the keys can compare it with what others saw.
 */

import { type Bytes, concat, knownBase64, toBase64, toHex, utf8 } from "../bytes";
import type { SignedTask } from "../crypto/signing";
import { ForkError, ProofError, SettingsError, WitnessQuorumError } from "../errors";
import type { Records, Store } from "../store/store";
import { type NoteKey, SignedCheckpoint } from "./checkpoint";
import { isConsistent, leafHash, type Path, verifyInclusion } from "./merkle";

const WEEK_SECONDS = 7 * 24 * 3600;
/** Largest difference of clocks that is let pass. */
export const CLOCK_SKEW_SECONDS = 300;
const MAX_REFUSED = 64;
/** The label of entries, and the kind of a task's. */
const ENTRY_HEAD = concat(utf8("shuffledp v1 log entry"), Uint8Array.of(1));
const PREFIX = "log ";

/** A task's place in the log, for a device that computes the entry itself. */
export interface LogProof {
  readonly index: bigint;
  readonly path: Path;
  readonly checkpoint: SignedCheckpoint;
  readonly consistency: Path;
}

export interface LoggedTask {
  readonly task: SignedTask;
  readonly proof: LogProof;
}

/** An entry that the device found, or refused, under a checkpoint; bytes are in base64. */
export interface LogEvidence {
  /** A signed note, with the lines of the pinned keys alone. */
  readonly checkpoint: string;
  readonly entry: string;
  readonly index: string;
  readonly path: string;
  readonly refused: boolean;
  /** The task's digest in hexadecimal, and the checkpoint's origin and size. */
  readonly digest: string;
  readonly origin: string;
  readonly size: string;
}

/** The keys of the log and its witnesses that a device pins, and how many must cosign. */
export class WitnessPolicy {
  constructor(
    readonly log: NoteKey,
    readonly witnesses: readonly NoteKey[],
    readonly quorum: number,
    readonly maxAgeSeconds: number = WEEK_SECONDS,
  ) {
    const keys = new Set([log, ...witnesses].map((key) => toHex(key.identity.raw)));
    if (keys.size !== 1 + witnesses.length || witnesses.some((key) => !key.isWitness)) {
      throw new SettingsError("witness_keys");
    }
    if (!(Number.isInteger(quorum) && quorum >= 1 && quorum <= witnesses.length)) {
      throw new SettingsError("quorum_range", { quorum, most: witnesses.length });
    }
  }

  /**
   * Check a checkpoint: the log's signature, that it continues the last one, and the quorum.
   *
   * A fork is reported before a missing quorum: without one it is still a proof. Cosignatures older
   * than maxAgeSeconds at `now`, in seconds since 1970, do not count. An invalid signature of a
   * pinned key refuses the checkpoint even if the others are a quorum [C2SP, signed-note]. Returns
   * the keys of the witnesses that count, in hexadecimal.
   */
  async check(
    signed: SignedCheckpoint,
    now: number,
    last: SignedCheckpoint | null,
    consistency: Path,
  ): Promise<ReadonlySet<string>> {
    await signed.checkLog(this.log);
    if (last !== null) await checkContinues(last, signed, consistency);
    const cosigners = new Set<string>();
    for (const witness of this.witnesses) {
      const time = await signed.signedAt(witness);
      const age = time === null ? Number.POSITIVE_INFINITY : now - Number(time);
      if (age <= this.maxAgeSeconds && age >= -CLOCK_SKEW_SECONDS)
        cosigners.add(toHex(witness.identity.raw));
    }
    const { quorum, maxAgeSeconds: seconds } = this;
    if (cosigners.size < quorum) {
      const [counted, all] = [cosigners.size, this.witnesses.length];
      throw new WitnessQuorumError("quorum_missed", { counted, all, seconds, quorum });
    }
    return cosigners;
  }
}

async function checkContinues(
  last: SignedCheckpoint,
  signed: SignedCheckpoint,
  path: Path,
): Promise<void> {
  const sizes = { old: last.size, size: signed.size };
  if (signed.size < last.size) throw new ProofError("log_shrank", sizes);
  const proving = isConsistent(last.size, last.root, signed.size, signed.root, path);
  const isProven = await proving.catch((error) => {
    if (error instanceof ProofError) return false; // a path of another length
    throw error;
  });
  if (!isProven) throw new ForkError("log_forked", sizes);
}

export class DeviceLog {
  constructor(
    private readonly fetchLogged: (digest: Bytes, size: bigint) => Promise<LoggedTask>,
    private readonly store: Store,
    private readonly policy: WitnessPolicy,
    private readonly now: () => number,
  ) {}

  /**
   * Fetch a task that is in the log; keep the new last checkpoint and the proof.
   *
   * The proof is of the digest and the signature; that the bytes are theirs is not yet verified.
   */
  async fetch(digest: Bytes): Promise<{ signed: SignedTask; cosigners: ReadonlySet<string> }> {
    for (;;) {
      const last = await this.store.locked((records) => this.#last(records));
      const { task, proof } = await this.fetchLogged(digest, last?.size ?? 0n);
      const { checkpoint, index, path } = proof;
      const entry = concat(ENTRY_HEAD, digest, task.signature);
      const pinned = [this.policy.log, ...this.policy.witnesses];
      const evidence: LogEvidence = {
        checkpoint: toBase64(await checkpoint.only(pinned)),
        entry: toBase64(entry),
        index: String(index),
        path: toBase64(concat(...path)),
        refused: false,
        digest: toHex(digest),
        origin: checkpoint.origin,
        size: String(checkpoint.size),
      };
      try {
        const cosigners = await this.policy.check(checkpoint, this.now(), last, proof.consistency);
        await verifyInclusion(await leafHash(entry), index, checkpoint.size, path, checkpoint.root);
        if (await this.#keep(evidence, last)) return { signed: task, cosigners };
      } catch (error) {
        if (error instanceof ForkError) await this.#refuse({ ...evidence, refused: true });
        throw error;
      }
    }
  }

  evidence(): Promise<LogEvidence[]> {
    return this.store.locked((records) => all(records));
  }

  /** Return the largest accepted checkpoint of the log; null before the first. */
  async #last(records: Records): Promise<SignedCheckpoint | null> {
    let found: LogEvidence | null = null;
    for (const one of await all(records)) {
      const isOf = !one.refused && one.origin === this.policy.log.name;
      if (isOf && (found === null || BigInt(one.size) > BigInt(found.size))) found = one;
    }
    return found && SignedCheckpoint.parse(knownBase64(found.checkpoint));
  }

  /** Replace a task's accepted evidence, unless another call has kept a checkpoint since. */
  #keep(evidence: LogEvidence, last: SignedCheckpoint | null): Promise<boolean> {
    return this.store.locked(async (records) => {
      const newest = await this.#last(records);
      if ((newest?.size ?? 0n) !== (last?.size ?? 0n)) return false;
      await records.put(`${PREFIX}accepted ${evidence.digest}`, evidence);
      return true;
    });
  }

  #refuse(evidence: LogEvidence): Promise<void> {
    return this.store.locked(async (records) => {
      const refused = (await all(records)).filter((one) => one.refused);
      const place = `${PREFIX}refused ${evidence.digest} ${evidence.checkpoint}`;
      if (refused.length < MAX_REFUSED) await records.put(place, evidence);
    });
  }
}

async function all(records: Records): Promise<LogEvidence[]> {
  return (await records.all(PREFIX)) as LogEvidence[];
}
