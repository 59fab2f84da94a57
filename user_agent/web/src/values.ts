/**
 * A person's value as a task's mechanism takes it: user_agent/contribution.py,
 * common/messages/submission.py.
 *
 * No error repeats a value.
 */

import { ValueRangeError } from "./errors";
import type { Held } from "./mechanisms/mechanism";
import { type Attribute, type Breakdown, GROUP_SEPARATOR } from "./task/domain";
import { normalize } from "./task/readers";
import type { Task } from "./task/task";

type Part = number | string;
/** An item's number, a number, or the text of either; or several numbers, or of attributes. */
export type Value = Part | readonly Part[];

const LISTED = 20;
const ITEM = /^[0-9]{1,20}$/;
const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;

/** Return a value as mechanisms take it; raise ValueRangeError if it does not fit the task. */
export function heldOf(task: Task, value: Value): Held {
  const { numbers: count, low, high, attributes } = task.mechanism;
  if (attributes.length) return placesOf(attributes, value);
  if (count === 0) return itemOf(task, value);
  const parts = typeof value === "string" && task.kind === "vector" ? value.split(",") : [value];
  const numbers = parts.flat().map((part) => numberFrom(typeof part === "string" ? normalize(part) : part)); // biome-ignore format: one step
  if (numbers.length !== count) throw new ValueRangeError("number_count", { count });
  return numbers.map((number) => {
    if (!Number.isFinite(number)) throw new ValueRangeError("not_a_number");
    if (!(low <= number && number <= high)) {
      throw new ValueRangeError("number_outside", { low, high, unit: "" });
    }
    return Math.min(Math.max(((number - low) / (high - low)) * 2 - 1, -1), 1);
  });
}

function itemOf(task: Task, value: Value): number {
  if (typeof value === "object") throw new ValueRangeError("not_an_item");
  const { breakdown, edges, domainSize, valueLabels } = task;
  const given = typeof value === "string" ? normalize(value) : value;
  const place = (part: Part, size: number) => placeOf({ edges, labels: valueLabels, size }, part);
  if (!breakdown || !(edges || typeof given === "string")) return place(given, domainSize);
  const [rest, group] = splitGroup(String(given), breakdown);
  const size = domainSize / task.groups;
  return group * size + place(rest, size);
}

/** Return the place of a value of each attribute, given in order, or as in `DE / flu / 37`. */
function placesOf(attributes: readonly Attribute[], value: Value): number[] {
  const given = typeof value === "object" ? value : String(value).split(GROUP_SEPARATOR);
  const names = attributes.map((one) => one.name).join(GROUP_SEPARATOR);
  if (given.length !== attributes.length) throw new ValueRangeError("not_attributes", { names });
  return attributes.map((attribute, place) => {
    const part = given[place] ?? "";
    return placeOf(attribute, typeof part === "string" ? normalize(part) : part);
  });
}

/** Return the place of a value among buckets, or among labels. */
function placeOf({ edges, labels, size }: Omit<Attribute, "name">, value: Part): number {
  const named = () => (typeof value === "string" ? namedItem(value, labels, size) : value);
  const place = edges ? edges.bucketOf(numberFrom(value)) : named();
  if (!Number.isInteger(place)) throw new ValueRangeError("not_an_item");
  if (place < 0 || place >= size) throw new ValueRangeError("item_outside", { most: size - 1 });
  return place;
}

function numberFrom(value: Part): number {
  if (typeof value === "number") return value;
  if (!NUMBER.test(value)) throw new ValueRangeError("not_a_number");
  return Number(value);
}

/** Split `group / value`; of the groups A and A/B, A/B/7 could be either, and is refused. */
function splitGroup(text: string, breakdown: Breakdown): [string, number] {
  const { groups } = breakdown;
  const [before = ""] = text.split(GROUP_SEPARATOR);
  const head = before.trimEnd();
  const fitting = groups.filter(
    (name) => text.startsWith(name) && text.slice(name.length).trimStart().startsWith("/"),
  );
  const exact = fitting.filter((name) => name === head);
  const [found, ...others] = exact.length > 0 ? exact : fitting;
  if (found === undefined || others.length > 0) {
    const words = groups.slice(0, LISTED).join(", ");
    throw new ValueRangeError("no_group", { attribute: breakdown.attribute, words });
  }
  const rest = text.slice(found.length).trimStart().slice(1);
  return [normalize(rest), groups.indexOf(found)];
}

/** Parse an item's label or number; with labels, a number needs a # before it. */
function namedItem(text: string, labels: readonly string[], size: number): number {
  const found = labels.map(normalize).indexOf(text);
  if (found >= 0) return found;
  const digits = text.replace(/^#/, "");
  if ((digits !== text || labels.length === 0) && ITEM.test(digits)) return Number(digits);
  if (labels.length === 0) throw new ValueRangeError("item_outside", { most: size - 1 });
  const words = labels.slice(0, LISTED).join(", ");
  throw new ValueRangeError("no_label", { words, most: size - 1 });
}
