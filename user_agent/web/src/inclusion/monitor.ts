/** Check that answers were counted, from the analyzer's commitments: user_agent/inclusion_monitor.py. */

import type { Account, Answer, Inclusion } from "../account";
import { type Bytes, concat, knownBase64, knownHex, splitEvery, toBase64 } from "../bytes";
import type { Identity } from "../crypto/signing";
import { ProofError, ShuffleDpError, StorageError } from "../errors";
import { HASH_BYTES } from "../log/merkle";
import { shuffle, type Uniform } from "../random";
import type { Shuffler } from "../transport/services";
import { type BatchCommitment, includes, isSame, prefixOf, verifyCommitment } from "./proof";

/** Most of an answer's reports to check, drawn at random once, before any prefix is sent. */
const MAX_CHECKED = 64;
const PATIENCE_SECONDS = 14 * 24 * 3600;

/** Checks whether the answers that arrived were counted. */
export class InclusionMonitor {
  readonly #notBefore = new Map<string, number>();

  constructor(
    private readonly shuffler: Shuffler,
    private readonly account: Account,
    private readonly analyzer: Identity,
    private readonly uniform: Uniform,
    private readonly now: () => number,
    /** Average number of seconds between two checks of an answer. */
    private readonly pause: number,
    /** Seconds since any moment: the clock of the day may jump. */
    private readonly elapsed: () => number,
  ) {}

  /** Check the answers that are due, each on its own random schedule; record the outcomes. */
  async checkDue(): Promise<void> {
    for (const answer of await this.account.answers()) {
      const isOpen = answer.state === "arrived";
      if (!isOpen || answer.inclusion !== "unchecked") continue;
      const now = this.elapsed();
      const due = this.#notBefore.get(answer.digest) ?? now + this.pause * this.#share();
      this.#notBefore.set(answer.digest, due);
      if (now >= due) await this.check(answer);
    }
  }

  /** Check one answer now; record and return the outcome. */
  async check(answer: Answer): Promise<Inclusion> {
    this.#notBefore.set(answer.digest, this.elapsed() + this.pause * (0.5 + this.#share()));
    const drawn = await this.#draw(answer);
    const found = await this.#ask(drawn);
    if (found !== "unchecked") {
      this.#notBefore.delete(answer.digest);
      await this.account.recordInclusion(answer.digest, found);
    }
    return found;
  }

  #share(): number {
    return Number(this.uniform.below(1n << 32n)) / 2 ** 32;
  }

  async #draw(answer: Answer): Promise<Answer> {
    const leaves = leavesOf(answer);
    if (leaves.length <= MAX_CHECKED) return answer;
    const kept = shuffle(leaves, this.uniform).slice(0, MAX_CHECKED);
    return this.account.change(answer.digest, { leaves: toBase64(concat(...kept)) });
  }

  /** Fetch the signed root, then the bucket of each leaf, one at a time, in random order. */
  async #ask(answer: Answer): Promise<Inclusion> {
    const digest = knownHex(answer.digest);
    const outcome = await proven(async (): Promise<Inclusion> => {
      const { commitment } = await this.shuffler.inclusion(digest, null);
      await verifyCommitment(commitment, this.analyzer, digest);
      for (const leaf of shuffle(leavesOf(answer), this.uniform)) {
        const isCounted = await proven(() => this.#isCounted(leaf, commitment, digest));
        if (isCounted === null) return "unchecked";
        if (!isCounted) return "missing";
      }
      return "counted";
    });
    if (outcome !== null && outcome !== "unchecked") return outcome;
    return this.now() > answer.deadline + PATIENCE_SECONDS ? "unproven" : "unchecked";
  }

  async #isCounted(leaf: Bytes, commitment: BatchCommitment, digest: Bytes): Promise<boolean> {
    const prefix = await prefixOf(commitment, leaf);
    const proof = await this.shuffler.inclusion(digest, prefix);
    if (!isSame(proof.commitment, commitment)) throw new ProofError("two_commitments");
    return includes(proof, leaf);
  }
}

function leavesOf(answer: Answer): Bytes[] {
  return splitEvery(knownBase64(answer.leaves), HASH_BYTES);
}

/** Return null for an error in requesting or verifying a proof. */
async function proven<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ShuffleDpError && !(error instanceof StorageError)) return null;
    throw error;
  }
}
