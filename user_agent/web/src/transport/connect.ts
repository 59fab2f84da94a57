/**
 * Connect's unary protocol over `fetch`: POST of protobuf's JSON, errors as `{code, message}`.
 *
 * A call that gets no answer is repeated with the same bytes. Errors are those of `reply` in
 * common/runtime/rpc.py: a refusal counts only with the header that the services set on purpose.
 */

import { type Bytes, fromBase64, toBase64 } from "../bytes";
import {
  ForeignReplyError,
  type MessageKey,
  PeerBusyError,
  PeerError,
  PeerRefusalError,
  PeerUnableError,
  ShuffleDpError,
  WireError,
} from "../errors";

/** The longest field, a bucket of 4 MiB, takes 5.6 MB in base64. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
const DEADLINE_MILLISECONDS = 15_000;
const REPEATS = 2;
const FIRST_PAUSE_MILLISECONDS = 250;
/** Header of every error that a service foresees, except overload. */
const FORESEEN = "shuffledp-foreseen";
/** A sentence or two, which a page can show. */
const MAX_REASON_CHARACTERS = 300;
/** Connect's codes, and whether a call that got one may be repeated. */
const CODES: ReadonlyMap<string, boolean> = new Map(
  Object.entries({
    invalid_argument: false,
    not_found: false,
    already_exists: false,
    permission_denied: false,
    unauthenticated: false,
    failed_precondition: false,
    out_of_range: false,
    unimplemented: false,
    data_loss: false,
    resource_exhausted: true,
    unavailable: true,
    deadline_exceeded: true,
    aborted: true,
    canceled: true,
    internal: true,
    unknown: true,
  }),
);
const EXHAUSTED = "resource_exhausted";

/** The fields of a message; bytes and 64-bit integers are strings, as in protobuf's JSON. */
export type Message = Readonly<Record<string, unknown>>;

/** One service of another party at a base address. */
export class ConnectService {
  /** Seconds by which the party's clock was ahead at its last answer that told the time. */
  clockAhead = 0;

  constructor(
    private readonly base: string,
    private readonly service: string,
    /** What errors call the party, such as "the shuffler". */
    private readonly whom: string,
    /** Sentences for refusals by method and status; others only name the status. */
    private readonly sentences: Readonly<Record<string, MessageKey>> = {},
  ) {}

  /** Call a method; repeat it with the same bytes while the party is away. */
  async call(method: string, message: Readonly<Record<string, Bytes | string>>): Promise<Message> {
    const fields = Object.entries(message).map(([name, value]) => [
      name,
      typeof value === "string" ? value : toBase64(value),
    ]);
    const body = JSON.stringify(Object.fromEntries(fields));
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#send(method, body);
      } catch (error) {
        const isFinal = !(error instanceof PeerError) || error instanceof ForeignReplyError;
        if (isFinal || attempt === REPEATS) throw error;
        const pause = FIRST_PAUSE_MILLISECONDS * 2 ** attempt;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  async #send(method: string, body: string): Promise<Message> {
    let response: Response;
    let text: string;
    try {
      response = await fetch(`${this.base.replace(/\/$/, "")}/${this.service}/${method}`, {
        method: "POST",
        headers: { "content-type": "application/json", "connect-protocol-version": "1" },
        body,
        signal: AbortSignal.timeout(DEADLINE_MILLISECONDS),
        credentials: "omit",
        redirect: "error",
        cache: "no-store",
        referrerPolicy: "no-referrer",
      });
      text = await readText(response, this.whom);
    } catch (error) {
      if (error instanceof ShuffleDpError) throw error;
      throw this.#absence(error);
    }
    const date = Date.parse(response.headers.get("date") ?? "");
    if (Number.isFinite(date)) this.clockAhead = (date - Date.now()) / 1000;
    const answer = parse(text);
    if (response.ok) {
      if (answer === null) throw new PeerError("peer_answer", { whom: this.whom });
      return answer;
    }
    throw this.#refusal(method, response, answer);
  }

  /** Name the address where the certificate may be at fault: `fetch` says no more than "failed". */
  #absence(cause: unknown): PeerError {
    const { whom } = this;
    const { host, protocol } = new URL(this.base);
    if (protocol === "https:" && cause instanceof TypeError) {
      return new PeerError("peer_or_certificate", { whom, host }, { cause });
    }
    return new PeerError("peer_away", { whom }, { cause });
  }

  #refusal(method: string, response: Response, answer: Message | null): ShuffleDpError {
    const { whom } = this;
    const code = typeof answer?.["code"] === "string" ? answer["code"] : "";
    const reason = typeof answer?.["message"] === "string" ? printable(answer["message"]) : "";
    const isForeseen = response.headers.get(FORESEEN) === "1" && /^[a-z_]{1,40}$/.test(code);
    const isRetryable = CODES.get(code) ?? false;
    if (isForeseen && (code === EXHAUSTED || !isRetryable)) {
      const status = CODES.has(code) ? code.toUpperCase() : "UNKNOWN";
      return new PeerRefusalError(whom, status, reason, this.sentences[`${method} ${status}`]);
    }
    if (code === EXHAUSTED || response.status === 429)
      return new PeerBusyError("peer_busy", { whom });
    if (isForeseen) return new PeerUnableError("peer_unable", { whom, reason });
    const isAway = code === "" ? response.status >= 500 : isRetryable;
    if (isAway) return new PeerError("peer_away", { whom });
    return new ForeignReplyError("peer_foreign", { whom, status: response.status });
  }
}

/** Shorten a text from elsewhere to printable ASCII, which cannot turn around what follows it. */
function printable(text: string): string {
  return text.slice(0, MAX_REASON_CHARACTERS).replace(/[^ -~]+/g, "?");
}

async function readText(response: Response, whom: string): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let [text, size] = ["", 0];
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    size += part.value.length;
    if (size > MAX_ANSWER_BYTES) {
      await reader?.cancel();
      throw new PeerError("peer_answer", { whom });
    }
    text += decoder.decode(part.value, { stream: true });
  }
  return text + decoder.decode();
}

function parse(text: string): Message | null {
  try {
    const answer: unknown = JSON.parse(text);
    return typeof answer === "object" && !Array.isArray(answer) ? (answer as Message) : null;
  } catch {
    return null;
  }
}

/** Return a field of bytes, empty if it is left out; raise WireError beyond `most` bytes. */
export function bytesField(message: Message, name: string, most: number): Bytes {
  const value = message[name] ?? "";
  const bytes = typeof value === "string" ? fromBase64(value) : null;
  if (bytes === null || bytes.length > most) throw new WireError("bad_field", { name });
  return bytes;
}

/** Return a field of exactly `length` bytes. */
export function fixedField(message: Message, name: string, length: number): Bytes {
  const bytes = bytesField(message, name, length);
  if (bytes.length !== length) throw new WireError("bad_field", { name });
  return bytes;
}

/** Return an unsigned integer, 0 if it is left out. */
export function wholeField(message: Message, name: string, most: bigint): bigint {
  const value = message[name] ?? 0;
  const isText = typeof value === "string" && /^(0|[1-9][0-9]{0,19})$/.test(value);
  const isSafe = typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
  if (!(isText || isSafe)) throw new WireError("bad_field", { name });
  const whole = BigInt(value as string | number);
  if (whole > most) throw new WireError("bad_field", { name });
  return whole;
}

/** Return a field that is a message; null if it is left out. */
export function messageField(message: Message, name: string): Message | null {
  const value = message[name] ?? null;
  if (typeof value !== "object" || Array.isArray(value)) throw new WireError("bad_field", { name });
  return value as Message | null;
}
