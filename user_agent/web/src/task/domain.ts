/** How items arise: buckets of a number, a breakdown, attributes; common/task/domain_spec.py. */

import { ensure, ValueRangeError } from "../errors";
import * as read from "./readers";

/** Between the parts of a value, such as a group's name and a label: `DE / flu`. */
export const GROUP_SEPARATOR = " / ";

export function withoutGroup(label: string): string {
  return label.split(GROUP_SEPARATOR).slice(1).join(GROUP_SEPARATOR);
}

export const MAX_BOUND = 1e12;
const MIN_RELATIVE_WIDTH = 1e-6;
const MAX_GIVEN_EDGES = 65_537;
const MAX_COMPUTED_BUCKETS = 2 ** 20;
const MAX_GROUPS = 4096;
const MAX_CHARACTERS = 32;
const DIGITS = 12;
/** Least width of a bucket, in units of the last digit, for which its edges are rounded. */
const FINE = 50;

const EDGES = read.table({
  spacing: read.optional(read.choice("equal", "logarithmic", "given"), "equal"),
  outside: read.optional(read.choice("refuse", "clip"), "refuse"),
  unit: read.printable(MAX_CHARACTERS),
  low: read.optional(read.double, 0),
  high: read.optional(read.double, 0),
  buckets: read.optional(read.whole(2, MAX_COMPUTED_BUCKETS), 0),
  given: read.optional(read.listOf(read.double), []),
});

export const edges: read.Reader<Edges> = (json, name) => {
  const { spacing, outside, unit, low, high, buckets, given } = EDGES(json, name);
  const isGiven = spacing === "given";
  ensure(isGiven ? !(low || high || buckets) : !given.length && buckets, "edges_twice");
  if (isGiven) {
    read.checkRange("the number of given edges", given.length, 3, MAX_GIVEN_EDGES);
  } else {
    const isPositive = low > 0 || spacing === "equal";
    ensure(high - low >= leastWidth(low, high) && isPositive, "bad_range");
  }
  const all = isGiven ? given : computed(spacing === "equal", low, high, buckets);
  const ascend = all.every((edge, at) => at === 0 || edge > (all[at - 1] ?? edge));
  ensure(ascend && all.every((edge) => Math.abs(edge) < MAX_BOUND), "bad_range");
  return new Edges(all, unit, outside === "clip");
};

/** The edges of ordered buckets; a bucket holds its lower edge, the last one also its upper. */
export class Edges {
  constructor(
    readonly edges: readonly number[],
    readonly unit: string,
    private readonly clips: boolean,
  ) {}

  get size(): number {
    return this.edges.length - 1;
  }

  get low(): number {
    return this.edges[0] ?? 0;
  }

  get high(): number {
    return this.edges.at(-1) ?? 0;
  }

  /** Return a number's bucket; raise ValueRangeError, without the number, if it has none. */
  bucketOf(number: number): number {
    if (!Number.isFinite(number)) throw new ValueRangeError("not_a_number");
    const { low, high } = this;
    if (!this.clips && !(low <= number && number <= high)) {
      const unit = this.unit && ` ${this.unit}`;
      throw new ValueRangeError("number_outside", { low, high, unit });
    }
    let [first, after] = [0, this.edges.length];
    while (first < after) {
      const middle = (first + after) >> 1;
      if ((this.edges[middle] ?? 0) <= number) first = middle + 1;
      else after = middle;
    }
    return Math.min(Math.max(first - 1, 0), this.size - 1);
  }
}

export function leastWidth(low: number, high: number): number {
  return MIN_RELATIVE_WIDTH * Math.max(Math.abs(low), Math.abs(high), MIN_RELATIVE_WIDTH);
}

/** Compute edges with the roundings of `EdgesSpec.edges`, step by step as numpy does. */
function computed(isEqual: boolean, low: number, high: number, buckets: number): number[] {
  const edges = isEqual
    ? spread(low, high, buckets)
    : spread(Math.log(low), Math.log(high), buckets).map(Math.exp);
  const coarse = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)))) - DIGITS;
  const rounded = edges.map((edge, at) => {
    const before = Math.abs(edge - (edges[at - 1] ?? Number.NEGATIVE_INFINITY));
    const after = Math.abs((edges[at + 1] ?? Number.POSITIVE_INFINITY) - edge);
    const narrower = Math.max(Math.min(before, after), 2.2250738585072014e-308);
    const wanted = isEqual ? coarse : Math.floor(Math.log10(narrower / FINE));
    const unit = Math.min(Math.max(wanted, -22), 22);
    const power = Number(`1e${Math.abs(unit)}`);
    const scaled = unit < 0 ? edge * power : edge / power;
    if (Math.abs(scaled) >= 2 ** 53 || narrower < 0.99 * FINE * Number(`1e${unit}`)) return edge;
    const whole = roundHalfToEven(scaled);
    return unit < 0 ? whole / power : whole * power;
  });
  rounded[0] = low;
  rounded[buckets] = high;
  return rounded;
}

function spread(start: number, end: number, intervals: number): number[] {
  const step = (end - start) / intervals;
  const line = Array.from({ length: intervals + 1 }, (_, at) => at * step + start);
  line[intervals] = end;
  return line;
}

export function roundHalfToEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

/** Return the number of nodes of each level of a hierarchy, the coarsest first. */
export function hierarchySizes(buckets: number, fanOut: number, groups: number): number[] {
  const sizes = [buckets];
  while ((sizes[0] ?? 0) > fanOut) sizes.unshift(Math.ceil((sizes[0] ?? 0) / fanOut));
  return sizes.map((size) => groups * size);
}

const BREAKDOWN = read.table({
  attribute: read.printable(MAX_CHARACTERS),
  groups: read.listOf(read.text),
});
export type Breakdown = ReturnType<typeof BREAKDOWN>;

export const breakdown: read.Reader<Breakdown> = (json, name) => {
  const found = BREAKDOWN(json, name);
  const { attribute, groups } = found;
  read.checkRange("the number of groups", groups.length, 2, MAX_GROUPS);
  read.checkLabels(groups, groups.length);
  ensure(areClear(groups) && attribute !== "", "bad_groups");
  return found;
};

const ATTRIBUTE = read.table({
  name: read.printable(MAX_CHARACTERS),
  labels: read.optional(read.listOf(read.text), []),
  edges: read.optional(edges, null),
});
/** One of several attributes of a person, and its values: labels, or buckets of a number. */
export type Attribute = ReturnType<typeof ATTRIBUTE> & { readonly size: number };

export const attribute: read.Reader<Attribute> = (json, name) => {
  const found = ATTRIBUTE(json, name);
  const { labels, edges } = found;
  ensure(found.name !== "" && (edges === null) === labels.length > 0, "bad_tables");
  if (edges) return { ...found, size: edges.size };
  read.checkRange("the number of labels", labels.length, 2, MAX_GROUPS);
  read.checkLabels(labels, labels.length);
  ensure(areClear(labels), "bad_groups");
  return { ...found, size: labels.length };
};

/** Whether names are in normal form and free of what separates the parts of a value. */
function areClear(names: readonly string[]): boolean {
  return names.every(
    (name) => name !== "" && name === read.normalize(name) && !`${name} `.includes(GROUP_SEPARATOR),
  );
}
