/**
 * Read the fields of one table of a task: types, ranges, defaults, and no unknown key.
 *
 * The rules are those of common/task/specs.py.
 */

import { type Bytes, fromHex } from "../bytes";
import { TaskError } from "../errors";
import type { Json, JsonTable } from "./canonical";

/** 2^63 - 1, the largest sum of weights. */
export const MAX_WEIGHT_SUM = (1n << 63n) - 1n;

/** Reads a table's fields by name; `end` refuses those that nobody read. */
export class Fields {
  private readonly table: Map<string, Json>;

  constructor(
    json: Json,
    private readonly what: string,
  ) {
    if (!(json instanceof Map)) throw new TaskError("wrong_type", { name: what });
    this.table = new Map(json as JsonTable);
  }

  /** Raise TaskError for a key that nobody read. */
  end(): void {
    for (const key of this.table.keys()) {
      if (!/^\w{1,40}$/.test(key)) throw new TaskError("task_not_canonical");
      throw new TaskError("unknown_field", { name: key, what: this.what });
    }
  }

  has(name: string): boolean {
    return this.table.has(name);
  }

  any(name: string): Json {
    const value = this.table.get(name);
    if (value === undefined) throw new TaskError("missing_field", { name, what: this.what });
    this.table.delete(name);
    return value;
  }

  /** Read a field that may be left out; its default value must be left out. */
  optional<T>(name: string, fallback: T, read: (name: string) => T): T {
    if (!this.has(name)) return fallback;
    const value = read(name);
    const empty = Array.isArray(value) && value.length === 0;
    if (value === fallback || empty) throw new TaskError("default_given", { name });
    return value;
  }

  text = (name: string): string => {
    const value = this.any(name);
    if (typeof value !== "string") throw new TaskError("wrong_type", { name });
    return value;
  };

  truth = (name: string): boolean => {
    const value = this.any(name);
    if (typeof value !== "boolean") throw new TaskError("wrong_type", { name });
    return value;
  };

  list = (name: string): readonly Json[] => {
    const value = this.any(name);
    if (!Array.isArray(value)) throw new TaskError("wrong_type", { name });
    return value as readonly Json[];
  };

  texts = (name: string): readonly string[] =>
    this.list(name).map((value) => {
      if (typeof value !== "string") throw new TaskError("wrong_type", { name });
      return value;
    });

  bytes = (name: string): Bytes => {
    const value = fromHex(this.text(name));
    if (value === null) throw new TaskError("wrong_type", { name });
    return value;
  };

  /** Read a double; one that is infinite, if it may be, is the text "inf". */
  double(name: string, mayBeInfinite = false): number {
    const value = this.any(name);
    if (mayBeInfinite && value === "inf") return Number.POSITIVE_INFINITY;
    return checkDouble(name, value);
  }

  whole(name: string, least: number, most: number): number {
    const value = this.any(name);
    if (typeof value !== "bigint") throw new TaskError("wrong_type", { name });
    return Number(checkRange(name, value, BigInt(least), BigInt(most)));
  }

  /** Read one of the integers that are texts whatever their value. */
  weight(name: string, least: bigint, most: bigint): bigint {
    const value = this.text(name);
    if (!/^(0|[1-9][0-9]{0,30})$/.test(value)) throw new TaskError("wrong_type", { name });
    return checkRange(name, BigInt(value), least, most);
  }

  choice<T extends string>(name: string, allowed: readonly T[]): T {
    const value = this.text(name);
    const found = allowed.find((word) => word === value);
    if (found === undefined) throw new TaskError("not_one_of", { name, words: allowed.join(", ") });
    return found;
  }

  printable(name: string, most: number, onlyAscii = false): string {
    return this.optional(name, "", () => checkPrintable(name, this.text(name), most, onlyAscii));
  }
}

export function checkRange(name: string, value: bigint, least: bigint, most: bigint): bigint {
  if (value < least || value > most) {
    throw new TaskError("out_of_range", { name, value, least, most });
  }
  return value;
}

export function checkDouble(name: string, value: Json): number {
  if (typeof value !== "number" || Object.is(value, -0))
    throw new TaskError("wrong_type", { name });
  if (!Number.isFinite(value)) throw new TaskError("wrong_type", { name });
  return value;
}

function checkPrintable(name: string, text: string, most: number, onlyAscii: boolean): string {
  const pattern = onlyAscii ? /^[ -~]*$/ : /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]*$/u;
  if (!pattern.test(text) || text !== strip(text)) throw new TaskError("not_printable", { name });
  checkLength(name, text, most);
  return text;
}

/** Raise TaskError for a text of too many characters. */
export function checkLength(name: string, text: string, most: number): void {
  const value = [...text].length;
  if (value > most) throw new TaskError("too_long", { name, value, most });
}

const SPACE =
  "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const ENDS = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");

/** Remove what Python calls whitespace from both ends. */
export function strip(text: string): string {
  return text.replace(ENDS, "");
}

const MAX_TYPED_CHARACTERS = 4096;

/** Return a text in the form that all parties compare: stripped, and in normal form C. */
export function normalize(text: string): string {
  const stripped = strip(text);
  return [...stripped].length <= MAX_TYPED_CHARACTERS ? stripped.normalize("NFC") : stripped;
}

const MAX_LABEL_CHARACTERS = 256;
const LONE_SURROGATE = /\p{Cs}/u;

/** Raise TaskError unless labels are absent, or one an item, short, distinct and valid text. */
export function checkLabels(labels: readonly string[], size: number): void {
  if (labels.length === 0) return;
  if (labels.length !== size) {
    throw new TaskError("label_count", { value: labels.length, size });
  }
  for (const label of labels) {
    checkLength("a label", label, MAX_LABEL_CHARACTERS);
    if (LONE_SURROGATE.test(label)) throw new TaskError("not_printable", { name: "a label" });
  }
  if (new Set(labels.map(normalize)).size !== size) throw new TaskError("labels_equal");
}
