/** The page to take part: shows a task, answers it once, and finds the answer counted. */

import { type Account, type Answer, type Claim, claimOf, hasRelay, leavesOf } from "../src/account";
import { knownHex, toHex } from "../src/bytes";
import { Identity } from "../src/crypto/signing";
import { type CheckedTask, Device, type DeviceSettings } from "../src/device";
import {
  ForkError,
  PeerError,
  SettingsError,
  ShuffleDpError,
  sentence,
  ValueRangeError,
  WitnessQuorumError,
} from "../src/errors";
import type { InclusionMonitor } from "../src/inclusion/monitor";
import { NoteKey } from "../src/log/checkpoint";
import { WitnessPolicy } from "../src/log/device_log";
import { IndexedDbStore } from "../src/store/store";
import type { Value } from "../src/values";
import { choicesOf } from "./choices";
import { constants } from "./constants.js";
import { byId, element, facts, paragraph, type Row, section } from "./dom";
import {
  credentialBytes,
  type Invitation,
  Invitations,
  type Opened,
  readFragment,
} from "./invitations";
import { leaving, protection, spending, vouching } from "./statement";
import { asSentence, moment, word } from "./words";

const RESEND_SECONDS = 30;

const now = () => Date.now() / 1000;

/** Return the key of the words about an answer: its state and, once it arrived, its check. */
function stateOf({ state, inclusion, claim }: Answer) {
  if (state !== "arrived") return state;
  const isProven = inclusion === "counted" || inclusion === "missing";
  return isProven && hasRelay(claim) ? (`${inclusion} by relay` as const) : inclusion;
}

/** Announce what happens; a text that the page shows anyway is only heard. */
function say(text: string, isHeard = false): void {
  byId("status").className = isHeard ? "heard" : "";
  byId("status").textContent = text;
}

/** Show an alert; one that is shown already is not announced again. */
function warn(...texts: readonly string[]): void {
  const place = byId("alert");
  if (place.textContent !== texts.join("")) {
    place.replaceChildren(...texts.filter(Boolean).map((text) => element("p", {}, text)));
    if (place.hasChildNodes()) place.scrollIntoView({ block: "nearest" });
  }
}

/** Return the sentence of an error, and another party's own words apart from it. */
function explained(error: unknown): string[] {
  if (!(error instanceof ShuffleDpError)) return [asSentence(sentence("unforeseen"))];
  const { message, reason } = error;
  return [asSentence(message), reason && word("reason", { reason })];
}

function show(title: string, ...parts: readonly (HTMLElement | null)[]): void {
  const heading = element("h1", { tabIndex: -1, dir: "auto" }, title);
  const content = byId("content");
  const hadFocus = content.contains(document.activeElement);
  content.replaceChildren(heading, ...parts.filter((part) => part !== null));
  document.title = title;
  if (hadFocus) heading.focus();
}

async function settingsOf(store: IndexedDbStore): Promise<DeviceSettings> {
  const { issuer: issuerUrl, issuer_identity: issuer, relay_identity: relay } = constants;
  const analyzer = Identity.fromHex(constants.analyzer_identity);
  const keys = (texts: readonly string[]) => Promise.all(texts.map((text) => NoteKey.parse(text)));
  const witnesses = await keys(constants.witnesses);
  return {
    store,
    policy: {
      analyzer,
      shuffler: Identity.fromHex(constants.shuffler_identity),
      relay: relay ? Identity.fromHex(relay) : null,
      shufflerName: constants.shuffler_name ?? null,
      relayName: constants.relay_name ?? null,
      issuer: issuer === null ? null : Identity.fromHex(issuer),
      allowTasksWithoutTokens: constants.allow_tasks_without_tokens,
      localEpsilonCap: constants.local_epsilon_cap,
      totalLocalEpsilonCap: constants.total_local_epsilon_cap,
      coalitionEpsilonCap: constants.coalition_epsilon_cap,
      totalCoalitionEpsilonCap: constants.total_coalition_epsilon_cap,
      totalCentralEpsilonCap: constants.total_central_epsilon_cap,
      totalDeltaCap: constants.total_delta_cap,
      checkingQuorum: constants.checking_quorum,
    },
    log: new WitnessPolicy(await NoteKey.ofLog(analyzer), witnesses, constants.witness_quorum),
    checkingWitnesses: await keys(constants.checking_witnesses),
    shufflerUrl: constants.shuffler,
    ...(issuerUrl !== null && { issuerUrl }),
    checkSeconds: constants.inclusion_check_seconds,
  };
}

class Page {
  readonly #device: Device;
  readonly #account: Account;
  readonly #monitor: InclusionMonitor;
  readonly #invitations: Invitations;
  readonly #tabs = new BroadcastChannel("shuffledp");
  #current: Opened | undefined;
  #shown = "";
  /** The cost of the question that is shown. */
  #asked: Claim | null = null;
  #isBusy = false;
  /** Whether the question could not be fetched, and may be later. */
  #mayAsk = false;

  constructor(
    private readonly store: IndexedDbStore,
    settings: DeviceSettings,
  ) {
    this.#device = new Device(settings);
    ({ account: this.#account, monitor: this.#monitor } = this.#device);
    this.#invitations = new Invitations(store);
  }

  async start(given: Opened | null): Promise<void> {
    void this.store.persist().then(() => this.#showAccount());
    const [last] = await this.#invitations.all();
    this.#current = given ?? last;
    await this.#refresh();
    await this.#catchUp(true);
    this.#tabs.addEventListener("message", () => void this.#refresh());
    window.addEventListener("online", () => void this.#catchUp());
    const seconds = Math.min(RESEND_SECONDS, Math.max(1, constants.inclusion_check_seconds / 4));
    setInterval(() => void this.#catchUp(), 1000 * seconds);
  }

  /** Send what is saved, fetch what could not be fetched, and check what arrived. */
  async #catchUp(isStart = false): Promise<void> {
    if (this.#isBusy || !navigator.onLine) return;
    this.#isBusy = true;
    try {
      for (const answer of await this.#account.answers()) {
        if (answer.state === "pending") await this.#send(answer.digest);
      }
      await this.#monitor.checkDue(isStart);
      if (this.#mayAsk && this.#current) await this.#ask(this.#current);
      await this.#refresh();
    } catch (error) {
      warn(...explained(error));
    } finally {
      this.#isBusy = false;
    }
  }

  /** Answer the current task, or send a saved answer again, with its own credential. */
  async #send(digest: string, value?: Value, checked?: CheckedTask): Promise<void> {
    const tell = digest === this.#current?.digest ? warn : () => undefined;
    const credential = credentialBytes(this.#current?.credential ?? "");
    try {
      const sending = this.#device.contribute(knownHex(digest), value ?? "", checked, credential);
      const { isRepeated, isSent, answer } = await sending;
      if (isSent) await this.#invitations.arrived(digest, answer.credentialHash, now());
      tell(isRepeated && value !== undefined ? word("answer_again") : "");
    } catch (error) {
      const isSaved = (await this.#account.find(digest)) !== null;
      tell(...explained(error), isSaved ? "" : word("untouched"));
    }
    this.#tabs.postMessage("");
  }

  /** Show the answer to the current task, or its question, and the account. */
  async #refresh(): Promise<void> {
    const current = this.#current;
    const answer = current ? await this.#account.find(current.digest) : null;
    const shown = answer ? stateOf(answer) : "question";
    const isNew = shown !== this.#shown;
    this.#shown = shown;
    if (isNew && answer) await this.#showAnswer(answer);
    else if (isNew && current) await this.#ask(current);
    else if (isNew) show(word("invitation"), paragraph(word("invitation_text")));
    await this.#showAccount();
  }

  /** Fetch and check a task, and show its question. */
  async #ask(invitation: Opened): Promise<void> {
    say(word("asking"));
    try {
      const checked = await this.#device.read(knownHex(invitation.digest));
      const { title, prompt, tokens } = checked.task;
      if (tokens && !invitation.credential) throw new SettingsError("bad_invitation");
      await this.#invitations.keep(invitation, title || prompt);
      this.#showQuestion(invitation, checked);
      if (this.#mayAsk) warn(); // of what failed before; the reason why it is asked again stays
      this.#mayAsk = false;
    } catch (error) {
      this.#mayAsk = error instanceof PeerError || error instanceof WitnessQuorumError;
      const again = element("button", { type: "button" }, word("again"));
      again.addEventListener("click", () => {
        this.#mayAsk = true;
        void this.#catchUp();
      });
      show(word("ask_failed"), again, error instanceof ForkError ? await this.#evidence() : null);
      warn(...explained(error), word("untouched"));
    }
    say("");
    await this.#showAccount();
  }

  #showQuestion(invitation: Opened, checked: CheckedTask): void {
    const { task } = checked;
    const { title, prompt, series, round } = task;
    const choices = choicesOf(task);
    const send = element("button", { className: "primary" }, word("answer_send"));
    const form = element("form", { noValidate: true }, ...choices.parts, send);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const value = choices.read();
      if (value === null) {
        form.querySelector<HTMLElement>("input, select")?.focus();
        warn(...explained(new ValueRangeError("no_choice")));
        return;
      }
      const progress = element("progress", { ariaLabel: word("answer_sending"), tabIndex: -1 });
      send.replaceWith(progress);
      progress.focus();
      say(word("answer_sending"));
      this.#isBusy = true;
      await this.#send(invitation.digest, value, checked);
      this.#isBusy = false;
      say("");
      progress.replaceWith(send);
      send.focus();
      await this.#refresh();
    });
    this.#asked = claimOf(task);
    show(
      title || prompt || word("untitled"),
      title ? paragraph(prompt, "prompt") : null,
      facts([
        [word("purpose"), task.purpose],
        [word("series"), series && word("series_round", { series, round })],
        [word("until"), word("until_latest", { moment: moment(task.deadline) })],
      ]),
      form,
      leaving(task),
      protection(checked),
      vouching(checked),
    );
  }

  async #showAnswer(answer: Answer): Promise<void> {
    [this.#asked, this.#mayAsk] = [null, false];
    const { title = "", arrivedAt = 0 } = (await this.#known()).get(answer.digest) ?? {};
    const state = stateOf(answer);
    const { credentialHash: used } = answer;
    const isAnother = used !== "" && used !== this.#current?.credentialHash;
    const receipt: Row[] = [
      [word("receipt_time"), arrivedAt ? moment(arrivedAt) : ""],
      [word("receipt_task"), answer.digest],
      [word("receipt_answer"), answer.envelopeHash],
      [word("receipt_signed"), answer.receipt],
      [word("receipt_leaves"), leavesOf(answer).map(toHex).join(" ")],
    ];
    show(
      word(`state ${state}`),
      paragraph(title, "prompt"),
      isAnother ? paragraph(word("another_invitation"), "caution") : null,
      paragraph(word(`text ${state}`)),
      answer.inclusion === "missing" ? await this.#evidence(answer) : null,
      paragraph(word("answer_once")),
      element("details", {}, element("summary", {}, word("receipt")), facts(receipt)),
    );
    say(word(`text ${state}`), true);
  }

  /** Return a link that saves what this device saw of the log, and an answer that was lost. */
  async #evidence(answer?: Answer): Promise<HTMLElement> {
    const found = JSON.stringify({ answer, log: await this.#device.log.evidence() }, null, 2);
    const href = URL.createObjectURL(new Blob([found], { type: "application/json" }));
    const link = element("a", { href, download: "evidence.json" }, word("evidence"));
    return element("p", {}, link);
  }

  /** Return the invitation with which each task was answered; if it was not, any. */
  async #known(): Promise<Map<string, Invitation>> {
    const all = await this.#invitations.all();
    const sorted = all.toSorted((one, other) => one.arrivedAt - other.arrivedAt);
    return new Map(sorted.map((one) => [one.digest, one]));
  }

  async #showAccount(): Promise<void> {
    const answers = await this.#account.answers();
    const known = await this.#known();
    const others = answers.filter(({ digest }) => digest !== this.#current?.digest);
    const rows = others.map((answer): Row => {
      const { title, arrivedAt } = known.get(answer.digest) ?? {};
      const state = word(`state ${stateOf(answer)}`);
      const when = arrivedAt ? `${state}, ${moment(arrivedAt)}` : state;
      return [title || `${word("receipt_task")} ${answer.digest.slice(0, 16)}`, when];
    });
    const claims = answers.map(({ claim }) => claim);
    byId("answers").replaceChildren(
      spending(claims, this.store.isPersistent, this.#asked),
      ...(rows.length ? [section(word("earlier"), facts(rows))] : []),
    );
  }
}

/** Take the invitation out of the address before anything else; the history may have kept it. */
async function open(): Promise<void> {
  const { hash } = location;
  history.replaceState(null, "", location.pathname);
  window.addEventListener("hashchange", () => location.reload());
  byId("version").textContent = word("version", { version: constants.version });
  try {
    if (!isSecureContext) throw new SettingsError("old_browser");
    const store = await IndexedDbStore.open();
    const page = new Page(store, await settingsOf(store));
    let given: Opened | null = null;
    try {
      given = await readFragment(hash, now());
    } catch (error) {
      warn(...explained(error));
    }
    await page.start(given);
  } catch (error) {
    warn(...explained(error));
  }
}

void open();
