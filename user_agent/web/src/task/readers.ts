/**
 * Readers of a task's JSON: types, ranges, defaults, and no unknown key.
 *
 * A table of a task is stated once, as the readers of its fields; its type follows from them. The
 * rules are those of common/task/specs.py.
 */

import { type Bytes, fromHex } from "../bytes";
import { ensure, TaskError } from "../errors";
import type { Json } from "./canonical";

/** 2^63 - 1, the largest sum of weights. */
export const MAX_WEIGHT_SUM = (1n << 63n) - 1n;

/** Reads a field, undefined if it is left out; raises TaskError. */
export type Reader<T> = (json: Json | undefined, name: string) => T;

type Camel<S> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S;
type Readers = Readonly<Record<string, Reader<unknown>>>;
/** The fields of a table, by their names in camel case. */
type Fields<R extends Readers> = { readonly [K in keyof R as Camel<K>]: ReturnType<R[K]> };

/** Read a table with exactly these fields, in this order. */
export function table<R extends Readers>(readers: R): Reader<Fields<R>> {
  return (json, name) => {
    ensure(json instanceof Map, "wrong_type", { name });
    const found: Record<string, unknown> = {};
    for (const [key, read] of Object.entries(readers)) {
      found[key.replace(/_(\w)/g, (_, first) => first.toUpperCase())] = read(json.get(key), key);
    }
    const unknown = [...json.keys()].find((key) => !Object.hasOwn(readers, key));
    if (unknown !== undefined) {
      const key = /^\w{1,40}$/.test(unknown) ? unknown : "a field";
      throw new TaskError("unknown_field", { name: key, what: name });
    }
    return found as Fields<R>;
  };
}

/** Read a table whose field `tag` chooses its form. */
export function union<T>(tag: string, forms: Readonly<Record<string, Reader<T>>>): Reader<T> {
  return (json, name) => {
    const form = choice(...Object.keys(forms))(json instanceof Map ? json.get(tag) : json, tag);
    return (forms[form] as Reader<T>)(json, name);
  };
}

/** Read a field that may be left out; its default value must be left out. */
export function optional<T, D>(read: Reader<T>, fallback: D): Reader<T | D> {
  return (json, name) => {
    if (json === undefined) return fallback;
    const value = read(json, name);
    const isEmpty = value instanceof Object && "length" in value && value.length === 0;
    ensure(!isEmpty && (value as unknown) !== fallback, "default_given", { name });
    return value;
  };
}

function typed<T extends Json>(isTyped: (json: Json | undefined) => json is T): Reader<T> {
  return (json, name) => {
    ensure(isTyped(json), "wrong_type", { name });
    return json;
  };
}

export const text = typed((json) => typeof json === "string");
export const truth = typed((json) => typeof json === "boolean");
export const double = typed(
  (json): json is number => Number.isFinite(json) && !Object.is(json, -0),
);
const integer = typed((json) => typeof json === "bigint");
const list = typed((json) => Array.isArray(json));

export const bytes: Reader<Bytes> = (json, name) => {
  const value = fromHex(text(json, name));
  ensure(value, "wrong_type", { name });
  return value;
};

/** Read a double, or the text "inf". */
export const doubleOrInfinite: Reader<number> = (json, name) =>
  json === "inf" ? Number.POSITIVE_INFINITY : double(json, name);

export function listOf<T>(read: Reader<T>): Reader<readonly T[]> {
  return (json, name) => list(json, name).map((each) => read(each, name));
}

export function whole(least: number, most: number): Reader<number> {
  return (json, name) => Number(checkRange(name, integer(json, name), least, most));
}

/** Read one of the integers that are texts whatever their value. */
export function weight(least: Whole, most: Whole): Reader<bigint> {
  return (json, name) => {
    const value = text(json, name);
    ensure(/^(0|[1-9][0-9]{0,30})$/.test(value), "wrong_type", { name });
    return checkRange(name, BigInt(value), least, most);
  };
}

/** Read a weight that a double holds. */
export function smallWeight(least: number, most: number): Reader<number> {
  const read = weight(least, most);
  return (json, name) => Number(read(json, name));
}

export function choice<T extends string>(...words: readonly T[]): Reader<T> {
  return (json, name) => {
    const found = words.find((word) => word === json);
    ensure(found !== undefined, "not_one_of", { name, words: words.join(", ") });
    return found;
  };
}

/** Read an optional text for display, of at most `most` characters. */
export function printable(most: number, pattern = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]*$/u) {
  const read: Reader<string> = (json, name) => {
    const value = text(json, name);
    ensure(pattern.test(value) && value === strip(value), "not_printable", { name });
    checkLength(name, value, most);
    return value;
  };
  return optional(read, "");
}

export const ASCII = /^[ -~]*$/;

type Whole = number | bigint;

export function checkRange<T extends Whole>(name: string, value: T, least: Whole, most: Whole): T {
  ensure(value >= least && value <= most, "out_of_range", { name, value, least, most });
  return value;
}

function checkLength(name: string, value: string, most: number): void {
  const length = [...value].length;
  ensure(length <= most, "too_long", { name, value: length, most });
}

const SPACE =
  "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const ENDS = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");
const MAX_TYPED_CHARACTERS = 4096;
const MAX_LABEL_CHARACTERS = 256;

/** Remove what Python calls whitespace from both ends. */
function strip(value: string): string {
  return value.replace(ENDS, "");
}

/** Return a text in the form that all parties compare: stripped, and in normal form C. */
export function normalize(value: string): string {
  const stripped = strip(value);
  return [...stripped].length <= MAX_TYPED_CHARACTERS ? stripped.normalize("NFC") : stripped;
}

/** Raise TaskError unless labels are absent, or one an item, short, distinct and valid text. */
export function checkLabels(labels: readonly string[], size: number): void {
  if (labels.length === 0) return;
  ensure(labels.length === size, "label_count", { value: labels.length, size });
  for (const label of labels) {
    checkLength("a label", label, MAX_LABEL_CHARACTERS);
    ensure(!/\p{Cs}/u.test(label), "not_printable", { name: "a label" });
  }
  ensure(new Set(labels.map(normalize)).size === size, "labels_equal");
}
