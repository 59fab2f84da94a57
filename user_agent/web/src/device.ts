/**
 * Answer a task: fetch and check it, charge the account, prepare, save and submit: user_agent/core.py.
 *
 * An answer is randomized once, and saved before it is submitted, so that every retry sends the
 * same bytes.
 */

import { Account, type Answer, claimOf } from "./account";
import { type Bytes, knownBase64, knownHex, toBase64, toHex } from "./bytes";
import { prepare } from "./contribution";
import { loadSuite } from "./crypto/hpke";
import { isValidReceipt, verifyTask } from "./crypto/signing";
import { PendingToken, TokenKey, tokenChallenge } from "./crypto/tokens";
import {
  PeerError,
  PeerRefusalError,
  PolicyError,
  SettingsError,
  ShuffleDpError,
  WitnessQuorumError,
} from "./errors";
import { InclusionMonitor } from "./inclusion/monitor";
import type { NoteKey } from "./log/checkpoint";
import { CLOCK_SKEW_SECONDS, DeviceLog, type WitnessPolicy } from "./log/device_log";
import { checkTask, checkTotals, type Policy } from "./policy";
import { SecureUniform, type Uniform } from "./random";
import type { Store } from "./store/store";
import { parseTask, type Task } from "./task/task";
import { Issuer, Shuffler } from "./transport/services";
import { heldOf, type Value } from "./values";

const CHECK_SECONDS = 3600;

/** What a device pins and where it calls; all of it is fixed before any task is seen. */
export interface DeviceSettings {
  readonly policy: Policy;
  readonly store: Store;
  readonly shufflerUrl: string;
  readonly issuerUrl?: string;
  /** Shows the issuer who asks: a person's secret or an ID token. An answer keeps its own. */
  readonly credential?: Bytes;
  /** The log that every task must be in. */
  readonly log: WitnessPolicy;
  /** Those witnesses that recompute every claim before they cosign. */
  readonly checkingWitnesses?: readonly NoteKey[];
  readonly uniform?: Uniform;
  /** Seconds since 1970 UTC. */
  readonly now?: () => number;
  /** Largest average number of seconds between checks that an answer was counted. */
  readonly checkSeconds?: number;
  /** Seconds since any moment, which never jump. */
  readonly elapsed?: () => number;
}

/** A task that this device may answer, and who vouched for it. */
export interface CheckedTask {
  readonly task: Task;
  /** Number of pinned witnesses that cosigned the task's checkpoint. */
  readonly cosigners: number;
  /** Number of those that recompute every claim first. */
  readonly checkedBy: number;
  /** Whether this device recomputed the central claim itself. */
  readonly isRecomputed: boolean;
}

/** The outcome of one call of `contribute`. */
export interface Outcome {
  /** Whether the task was answered before; if so, this call's value was not used. */
  readonly isRepeated: boolean;
  /** Whether this call submitted the answer and the shuffler acknowledged it. */
  readonly isSent: boolean;
  readonly answer: Answer;
}

export class Device {
  readonly account: Account;
  readonly monitor: InclusionMonitor;
  /** What this device saw of the log, to compare with other devices. */
  readonly log: DeviceLog;
  readonly #shuffler: Shuffler;
  readonly #issuer: Issuer | null;
  readonly #uniform: Uniform;
  readonly #now: () => number;
  /** What `read` returned, for which digest in hexadecimal. */
  readonly #checked = new WeakMap<CheckedTask, { digest: string; task: Task }>();
  readonly #underWay = new Map<string, Promise<boolean>>();

  constructor(private readonly settings: DeviceSettings) {
    const { policy, store, issuerUrl } = settings;
    checkPolicy(policy);
    checkAddresses(settings);
    this.#uniform = settings.uniform ?? new SecureUniform();
    this.#now = settings.now ?? (() => Date.now() / 1000);
    this.account = new Account(store);
    this.#shuffler = new Shuffler(settings.shufflerUrl);
    this.#issuer = issuerUrl === undefined ? null : new Issuer(issuerUrl);
    const fetchLogged = this.#shuffler.fetchLoggedTask.bind(this.#shuffler);
    this.log = new DeviceLog(fetchLogged, store, settings.log, this.#now);
    this.monitor = new InclusionMonitor(
      this.#shuffler,
      this.account,
      policy,
      this.#uniform,
      this.#now,
      settings.checkSeconds ?? CHECK_SECONDS,
      settings.elapsed ?? (() => performance.now() / 1000),
    );
  }

  /**
   * Fetch a task, and check everything that must hold before it is answered.
   *
   * Raises ProofError, ForkError or WitnessQuorumError for a signature or proof, TaskError for an
   * invalid task, PolicyError for one that is closed or not for this device, PeerError and
   * PeerRefusalError if the shuffler is away or refuses.
   */
  async read(digest: Bytes): Promise<CheckedTask> {
    const { policy, checkingWitnesses = [] } = this.settings;
    await checkCryptography();
    const { signed, cosigners } = await this.#fetch(digest);
    await verifyTask(signed, digest, policy.analyzer);
    const task = parseTask(signed.bytes);
    const checking = new Set(checkingWitnesses.map((key) => toHex(key.identity.raw)));
    const checkedBy = [...checking].filter((key) => cosigners.has(key)).length;
    const isRecomputed = await checkTask(task, policy, this.#now(), checkedBy);
    if (!(await this.#shuffler.isCollecting(digest))) throw new PolicyError("batch_closed");
    await loadSuite(task.suite);
    const checked = { task, cosigners: cosigners.size, checkedBy, isRecomputed };
    this.#checked.set(checked, { digest: toHex(digest), task });
    return checked;
  }

  /**
   * Answer a task. If an answer is saved already, `value` is ignored.
   *
   * Given what `read` returned for this digest, it needs no connection until the answer is saved;
   * anything else is read again. Raises what `read` does; ValueRangeError if the value does not
   * fit; BudgetError if a total would be exceeded. Until the answer is saved, with the credential to
   * ask the issuer with, nothing is charged; afterwards `resendPending` sends the same bytes, unless
   * a refusal was final, or the issuer refused the credential: then nothing is saved or charged.
   */
  async contribute(
    digest: Bytes,
    value: Value,
    checked?: CheckedTask,
    credential = this.settings.credential ?? new Uint8Array(),
  ): Promise<Outcome> {
    const name = toHex(digest);
    const earlier = await this.account.find(name);
    let charged = earlier && { answer: earlier, isRepeated: true };
    if (charged === null) {
      const known = checked && this.#checked.get(checked);
      const { task } = known?.digest === name ? known : await this.read(digest);
      charged = await this.#charge(task, digest, value, credential);
    }
    const isSent = await this.#submit(name);
    const answer = (await this.account.find(name)) ?? charged.answer;
    return { isRepeated: charged.isRepeated, isSent, answer };
  }

  /** Submit the answers that have neither arrived nor been refused; return the failures. */
  async resendPending(): Promise<ShuffleDpError[]> {
    const failures: ShuffleDpError[] = [];
    for (const answer of await this.account.answers()) {
      if (answer.state !== "pending" || this.#underWay.has(answer.digest)) continue;
      try {
        await this.#submit(answer.digest);
      } catch (error) {
        if (!(error instanceof ShuffleDpError)) throw error;
        failures.push(error);
      }
    }
    return failures;
  }

  /** Fetch a task that is in the log; name this device's clock if it is at fault. */
  async #fetch(digest: Bytes) {
    try {
      return await this.log.fetch(digest);
    } catch (error) {
      const ahead = this.#shuffler.clockAhead;
      if (error instanceof WitnessQuorumError && Math.abs(ahead) > CLOCK_SKEW_SECONDS) {
        const seconds = Math.round(Math.abs(ahead));
        throw new WitnessQuorumError("clock_off", { seconds }, { cause: error });
      }
      throw error;
    }
  }

  /** Charge the account, then prepare an answer and save it. */
  #charge(task: Task, digest: Bytes, value: Value, credential: Bytes) {
    const { deadline, tokens } = task;
    if (this.#now() >= deadline) throw new PolicyError("deadline_passed");
    if (tokens && !credential.length) throw new SettingsError("no_credential");
    const held = heldOf(task, value);
    const claim = claimOf(task);
    return this.account.charge(
      toHex(digest),
      claim,
      (spent) => checkTotals(this.settings.policy, spent, claim),
      async () => {
        const token = tokens && {
          key: tokens.key.der,
          issuer: tokens.issuer,
          pending: PendingToken.draw(tokens.key, this.#uniform),
          credential,
        };
        const prepared = await prepare(task, digest, held, this.#uniform);
        return { ...prepared, isSampled: task.keep < 1, deadline, token };
      },
    );
  }

  /** Submit a task's answer, one call at a time; return whether this call's bytes arrived. */
  async #submit(name: string): Promise<boolean> {
    const running = this.#underWay.get(name);
    if (running !== undefined) return running.then(() => false);
    const sending = this.#send(name).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, sending);
    return sending;
  }

  async #send(name: string): Promise<boolean> {
    const digest = knownHex(name);
    const answer = await this.account.find(name);
    if (answer === null || answer.state === "arrived") return false;
    if (answer.state === "refused") throw new PolicyError("refused_before");
    const envelope = knownBase64(answer.envelope);
    const token = await this.#token(answer, digest);
    const submitting = this.#shuffler.submit(digest, envelope, token);
    // A shuffler that misjudges the token may be mended. A refusal leaves the charge: the reports
    // have left the device, and an earlier try may have stored them.
    const receipt = await this.#final(answer, submitting, "UNAUTHENTICATED");
    const { shuffler } = this.settings.policy;
    if (!(await isValidReceipt(shuffler, digest, envelope, receipt))) {
      throw new PeerError("receipt");
    }
    await this.account.change(answer, { state: "arrived", receipt: toBase64(receipt) });
    return true;
  }

  /** Make a call for an answer; a refusal is final, unless it has the status of a passing one. */
  async #final<T>(answer: Answer, calling: Promise<T>, ...passing: string[]): Promise<T> {
    try {
      return await calling;
    } catch (error) {
      const isFinal = isRefusal(error) && !passing.includes(error.status);
      if (isFinal) await this.account.change(answer, { state: "refused" });
      throw error;
    }
  }

  /** Return the answer's token, got from the issuer at first; empty if it needs none. */
  async #token(answer: Answer, digest: Bytes): Promise<Bytes> {
    if (answer.token || !answer.pendingToken) return knownBase64(answer.token);
    if (this.#now() >= answer.deadline) {
      await this.account.change(answer, { state: "refused" });
      throw new PolicyError("deadline_before_token");
    }
    const credential = knownBase64(answer.credential);
    const key = TokenKey.of(knownHex(answer.tokenKey));
    if (!this.#issuer || !credential.length || !key) throw new SettingsError("no_credential");
    const challenge = tokenChallenge(digest, answer.issuer);
    const pending = new PendingToken(key, challenge, knownBase64(answer.pendingToken));
    const blinded = await pending.blinded();
    const issuing = this.#issuer.issue(await key.keyId(), blinded, credential);
    // A spent cap of tokens is renewed with time.
    const passing = ["RESOURCE_EXHAUSTED", "UNAUTHENTICATED"];
    const signature = await this.#final(answer, issuing, ...passing).catch(async (error) => {
      // All that was sent for the answer is the blinded message, which is drawn without regard to
      // it; so it can be withdrawn, for the credential of the right person to answer with.
      if (isRefusal(error) && error.status === "UNAUTHENTICATED")
        await this.account.withdraw(answer);
      throw error;
    });
    const token = await pending.finalize(signature);
    const kept = { token: toBase64(token), pendingToken: "", credential: "" };
    await this.account.change(answer, kept);
    return token;
  }
}

function isRefusal(error: unknown): error is PeerRefusalError {
  return error instanceof PeerRefusalError;
}

/** Raise SettingsError if this browser, or an insecure page, lacks what signatures and keys need. */
async function checkCryptography(): Promise<void> {
  try {
    await crypto.subtle.generateKey("Ed25519", false, ["verify", "sign"]);
    await crypto.subtle.generateKey("X25519", false, ["deriveBits"]);
  } catch (error) {
    throw new SettingsError("old_browser", {}, { cause: error });
  }
}

/** Raise SettingsError for a limit that nothing exceeds, such as none, and for one party twice. */
function checkPolicy(policy: Policy): void {
  const { localEpsilonCap, totalLocalEpsilonCap, totalCentralEpsilonCap, totalDeltaCap } = policy;
  const { coalitionEpsilonCap, totalCoalitionEpsilonCap } = policy;
  const coalition = [coalitionEpsilonCap, totalCoalitionEpsilonCap, totalDeltaCap];
  const caps = [localEpsilonCap, totalLocalEpsilonCap, totalCentralEpsilonCap, ...coalition];
  if (![...caps, policy.checkingQuorum + 1].every((cap) => cap > 0)) throw new SettingsError("cap");
  const parties = [policy.analyzer, policy.shuffler, policy.relay, policy.issuer];
  const pins = parties.flatMap((pin) => (pin ? [toHex(pin.raw)] : []));
  if (new Set(pins).size < pins.length) throw new SettingsError("same_pins");
  const { shufflerName, relayName } = policy;
  if (shufflerName && shufflerName === relayName) throw new SettingsError("same_names");
}

const ADDRESS = /^(https:\/\/|http:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(\/|$))/;

/** Raise SettingsError unless calls are encrypted, or stay on this machine: they hold secrets. */
function checkAddresses({ policy, shufflerUrl, issuerUrl }: DeviceSettings): void {
  if ((policy.issuer === null) !== (issuerUrl === undefined))
    throw new SettingsError("issuer_parts");
  if (![shufflerUrl, issuerUrl ?? shufflerUrl].every((address) => ADDRESS.test(address))) {
    throw new SettingsError("address");
  }
}
