/** Check that answers were counted, from the analyzer's commitments: user_agent/inclusion_monitor.py. */

import { type Account, type Answer, type Inclusion, leavesOf } from "../account";
import { type Bytes, concat, knownHex, toBase64 } from "../bytes";
import type { Identity } from "../crypto/signing";
import { ProofError, ShuffleDpError, StorageError } from "../errors";
import { shuffle, type Uniform } from "../random";
import type { Shuffler } from "../transport/services";
import { type BatchCommitment, includes, isSame, prefixOf, verifyCommitment } from "./proof";

/** Most of an answer's reports to check, drawn at random once, before any prefix is sent. */
const MAX_CHECKED = 64;
const PATIENCE_SECONDS = 14 * 24 * 3600;
/** Seconds within which an answer is checked first; the average pauses double from there. */
const FIRST_PAUSE_SECONDS = 30;

/** Checks whether the answers that arrived were counted. */
export class InclusionMonitor {
  /** When each answer is due, and the average pause before that. */
  readonly #next = new Map<string, { readonly at: number; readonly pause: number }>();

  constructor(
    private readonly shuffler: Shuffler,
    private readonly account: Account,
    private readonly analyzer: Identity,
    private readonly uniform: Uniform,
    private readonly now: () => number,
    /** Largest average number of seconds between two checks of an answer. */
    private readonly longestPause: number,
    /** Seconds since any moment: the clock of the day may jump. */
    private readonly elapsed: () => number,
  ) {}

  /**
   * Check the answers that are due, or all that are open; record the outcomes.
   *
   * Each has its own random times. As long as there is no proof, an attempt is one short call.
   */
  async checkDue(atOnce = false): Promise<void> {
    for (const answer of await this.account.answers()) {
      if (answer.state !== "arrived" || answer.inclusion !== "unchecked") continue;
      const { digest } = answer;
      const next = this.#next.get(digest) ?? this.#plan(digest, FIRST_PAUSE_SECONDS, 0);
      const pause = atOnce ? FIRST_PAUSE_SECONDS : 2 * next.pause;
      if (atOnce || this.elapsed() >= next.at) await this.#check(answer, pause);
    }
  }

  async #check(answer: Answer, pause: number): Promise<void> {
    this.#plan(answer.digest, pause, 0.5);
    const drawn = await this.#draw(answer);
    const inclusion = await this.#ask(drawn);
    if (inclusion === "unchecked") return;
    this.#next.delete(answer.digest);
    await this.account.change(answer, { inclusion });
  }

  /** Plan the next check after `least` to `least` + 1 pauses. */
  #plan(digest: string, wanted: number, least: number) {
    const pause = Math.min(wanted, this.longestPause);
    const next = { at: this.elapsed() + pause * (least + this.#share()), pause };
    this.#next.set(digest, next);
    return next;
  }

  #share(): number {
    return Number(this.uniform.below(1n << 32n)) / 2 ** 32;
  }

  async #draw(answer: Answer): Promise<Answer> {
    const leaves = leavesOf(answer);
    if (leaves.length <= MAX_CHECKED) return answer;
    const kept = shuffle(leaves, this.uniform).slice(0, MAX_CHECKED);
    return this.account.change(answer, { leaves: toBase64(concat(...kept)) });
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

/** Return null for an error in requesting or verifying a proof. */
async function proven<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ShuffleDpError && !(error instanceof StorageError)) return null;
    throw error;
  }
}
