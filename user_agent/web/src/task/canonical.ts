/**
 * The canonical JSON of a task: docs/wire.md, common/task/canonical.py.
 *
 * Integers are read as bigint and never rounded; a number with a decimal point or an exponent is a
 * double. Only the text that the value is written as is accepted, so whatever a parser could read
 * otherwise is refused.
 */

import { TaskError } from "../errors";

export type Json = null | boolean | bigint | number | string | readonly Json[] | JsonTable;
export type JsonTable = ReadonlyMap<string, Json>;

const MAX_DEPTH = 16;
/** An open string runs to the end of the text, so that it is not searched again from its middle. */
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*(?:"|$)|-?[0-9][0-9.e+-]*/g;
/** No number of a task is longer; reading millions of digits would take long. */
const MAX_NUMBER_CHARACTERS = 40;

/** Parse canonical JSON; raise TaskError for any other bytes. */
export function parseCanonical(raw: Uint8Array): Json {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    const found = JSON.parse(text.replace(STRING_OR_NUMBER, kept), revived);
    if (written(found, 0) === text) return found;
  } catch (error) {
    if (error instanceof TaskError) throw error;
    throw new TaskError("task_not_canonical", {}, { cause: error });
  }
  throw new TaskError("task_not_canonical");
}

/** Keep a number's digits from JSON.parse: 1 becomes {"":"1"}. */
function kept(token: string): string {
  return token.startsWith('"') ? token : `{"":"${token}"}`;
}

function revived(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  if (!("" in value)) return new Map(Object.entries(value));
  const token = String(value[""]);
  if (token.length > MAX_NUMBER_CHARACTERS) throw new TaskError("task_not_canonical");
  return /^-?[0-9]+$/.test(token) ? BigInt(token) : Number(token);
}

/** Write a value as Python's json does, with sorted keys. */
function written(json: Json, depth: number): string {
  if (depth > MAX_DEPTH) throw new TaskError("task_not_canonical");
  const inner = (each: Json) => written(each, depth + 1);
  if (json instanceof Map) {
    const fields = [...json].sort(([one], [other]) => (one < other ? -1 : 1));
    return `{${fields.map(([key, value]) => `${writeString(key)}:${inner(value)}`).join(",")}}`;
  }
  if (Array.isArray(json)) return `[${json.map(inner).join(",")}]`;
  if (typeof json === "string") return writeString(json);
  return typeof json === "number" ? writeDouble(json) : String(json);
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
