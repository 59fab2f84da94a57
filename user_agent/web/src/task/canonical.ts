/**
 * The canonical JSON of a task: docs/theory/task-format.md, common/task/canonical.py.
 *
 * A text is accepted only in its canonical form, so nothing is ever serialized again. Integers are
 * read as bigint and never rounded; a number with a decimal point or an exponent is a double.
 */

import { TaskError } from "../errors";

export type Json = null | boolean | bigint | number | string | readonly Json[] | JsonTable;
export type JsonTable = ReadonlyMap<string, Json>;

const MAX_DEPTH = 16;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?/y;
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/y;
/** No number of a task is longer; reading millions of digits would take long. */
const MAX_NUMBER_CHARACTERS = 40;
const WORDS: readonly (readonly [string, Json])[] = [
  ["true", true],
  ["false", false],
  ["null", null],
];

/** Parse canonical JSON; raise TaskError for any other bytes. */
export function parseCanonical(raw: Uint8Array): Json {
  if (raw.some((byte) => byte < 0x20 || byte > 0x7e)) throw new TaskError("task_not_canonical");
  return new Scanner(new TextDecoder().decode(raw)).parse();
}

class Scanner {
  #at = 0;

  constructor(private readonly text: string) {}

  parse(): Json {
    const value = this.#value(0);
    if (this.#at !== this.text.length) throw new TaskError("task_not_canonical");
    return value;
  }

  #value(depth: number): Json {
    if (depth > MAX_DEPTH) throw new TaskError("task_not_canonical");
    const first = this.text[this.#at];
    if (first === "{") return this.#table(depth);
    if (first === "[") return this.#list(depth);
    if (first === '"') return this.#string();
    const word = WORDS.find(([name]) => this.text.startsWith(name, this.#at));
    if (word === undefined) return this.#number();
    this.#at += word[0].length;
    return word[1];
  }

  #table(depth: number): JsonTable {
    const found = new Map<string, Json>();
    let last: string | undefined;
    this.#items("{", "}", () => {
      const key = this.#string();
      if (last !== undefined && key <= last) throw new TaskError("task_not_canonical");
      last = key;
      this.#skip(":");
      found.set(key, this.#value(depth + 1));
    });
    return found;
  }

  #list(depth: number): readonly Json[] {
    const found: Json[] = [];
    this.#items("[", "]", () => found.push(this.#value(depth + 1)));
    return found;
  }

  #items(open: string, close: string, read: () => void): void {
    this.#skip(open);
    if (this.text[this.#at] !== close) {
      read();
      while (this.text[this.#at] === ",") {
        this.#skip(",");
        read();
      }
    }
    this.#skip(close);
  }

  #string(): string {
    const token = this.#match(STRING);
    let text: string;
    try {
      text = JSON.parse(token);
    } catch {
      throw new TaskError("task_not_canonical");
    }
    if (writeString(text) !== token) throw new TaskError("task_not_canonical");
    return text;
  }

  #number(): bigint | number {
    const token = this.#match(NUMBER);
    const isWhole = /^-?[0-9]+$/.test(token);
    const isKnown = isWhole ? token !== "-0" : writeDouble(Number(token)) === token;
    if (!isKnown || token.length > MAX_NUMBER_CHARACTERS) throw new TaskError("task_not_canonical");
    return isWhole ? BigInt(token) : Number(token);
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const token = pattern.exec(this.text)?.[0];
    if (token === undefined) throw new TaskError("task_not_canonical");
    this.#at += token.length;
    return token;
  }

  #skip(character: string): void {
    if (this.text[this.#at] !== character) throw new TaskError("task_not_canonical");
    this.#at += 1;
  }
}

/** Write a text as Python's json does: ASCII, other characters as `\uXXXX` in lower case. */
function writeString(text: string): string {
  return JSON.stringify(text).replace(
    /[\x7f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Write a finite double as Python's repr does; both languages choose the same digits. */
export function writeDouble(value: number): string {
  const [mantissa = "", exponent = ""] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const power = Number(exponent);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (power < -4 || power >= 16) {
    const places = String(Math.abs(power)).padStart(2, "0");
    return `${sign}${mantissa}e${power < 0 ? "-" : "+"}${places}`;
  }
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${digits}`;
  const whole = digits.slice(0, power + 1).padEnd(power + 1, "0");
  return `${sign}${whole}.${digits.slice(power + 1) || "0"}`;
}
