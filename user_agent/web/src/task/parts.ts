/** The tables of a task: mechanism, shuffler with its noise, and token key. */

import { type Bytes, toInteger } from "../bytes";
import { PROOF_BYTES } from "../crypto/signing";
import { TokenKey } from "../crypto/tokens";
import { ensure } from "../errors";
import { attribute, leastWidth, MAX_BOUND } from "./domain";
import { MECHANISMS } from "./protocols";
import * as read from "./readers";

const KEEP_SUM = 2 ** 32;
/** Denominator of a geometric distribution's weights. */
export const RATIO_SUM = 2 ** 30;
export const MAX_DOMAIN_SIZE = 2 ** 24;

const MAX_REPORT_BYTES = 65_536;
const MAX_ATTRIBUTES = 32;
const MAX_RADIX = 65_536;
const MAX_RADICES = 16;
const MAX_NUMBERS = 8192;
const MAX_PER_ITEM = 2 ** 24;
const MAX_GEOMETRIC = 2 ** 20;
const MAX_DRAWS = 2 ** 20;
/** Bound on the values of all different distributions of noise. */
const MAX_MOST = 2 ** 25;
const MAX_SHUFFLER_DUMMIES = 10 ** 9;
const MAX_SHUFFLER_DRAWS = 10 ** 10;

const report_bytes = read.whole(1, MAX_REPORT_BYTES);
const OF_ITEMS = read.table({
  name: read.choice(...MECHANISMS),
  buckets: read.whole(2, MAX_DOMAIN_SIZE),
  digits: read.whole(1, 24),
  true_weight: read.weight(1n, read.MAX_WEIGHT_SUM),
  /** 0 if and only if reports have no noise of their own. */
  other_weight: read.weight(0n, read.MAX_WEIGHT_SUM),
  report_bytes,
});
const OF_NUMBERS = read.table({
  name: read.choice("digits"),
  low: read.double,
  high: read.double,
  report_bytes,
  radices: read.listOf(read.whole(2, MAX_RADIX)),
  numbers: read.optional(read.whole(1, MAX_NUMBERS), 1),
});
const OF_TABLES = read.table({
  name: read.choice("tables"),
  attributes: read.listOf(attribute),
  views: read.listOf(read.listOf(read.whole(0, MAX_ATTRIBUTES - 1))),
  report_bytes,
});
/** A mechanism, with its integers: MechanismSpec, DigitSpec or TableSpec, of common/task/. */
export type MechanismSpec = ReturnType<typeof OF_ITEMS> &
  Pick<ReturnType<typeof OF_NUMBERS>, "low" | "high" | "radices" | "numbers"> &
  Pick<ReturnType<typeof OF_TABLES>, "attributes" | "views">;

const NO_NUMBERS = { low: 0, high: 0, radices: [], numbers: 0 };
const NO_TABLES = { attributes: [], views: [] };
/** Reports are true, without noise. */
const TRUE = { digits: 1, trueWeight: 1n, otherWeight: 0n };

/** Read digits of numbers. */
function ofNumbers(...json: Parameters<read.Reader<MechanismSpec>>): MechanismSpec {
  const spec = OF_NUMBERS(...json);
  const { low, high, radices } = spec;
  read.checkRange("the number of radices", radices.length, 1, MAX_RADICES);
  const points = radices.reduce((product, radix) => product * radix, 1);
  read.checkRange("the product of the radices", points, 2, MAX_DOMAIN_SIZE);
  const areBounded = [low, high].every((end) => Math.abs(end) < MAX_BOUND);
  ensure(areBounded && high - low >= leastWidth(low, high), "bad_range");
  return { ...spec, ...TRUE, ...NO_TABLES, buckets: radices.at(-1) ?? 0 };
}

/** Read attributes, and tables of one or two of them. */
function ofTables(...json: Parameters<read.Reader<MechanismSpec>>): MechanismSpec {
  const spec = OF_TABLES(...json);
  const { attributes, views } = spec;
  read.checkRange("the number of attributes", attributes.length, 2, MAX_ATTRIBUTES);
  const ascend = views.every(
    ([first = MAX_ATTRIBUTES, second = MAX_ATTRIBUTES, ...more]) => first < second && !more.length,
  );
  const used = new Set(views.flat());
  const areUsed = used.size === attributes.length && Math.max(...used) < attributes.length;
  const areNamed = new Set(attributes.map((one) => one.name)).size === attributes.length;
  const differ = new Set(views.map(String)).size === views.length;
  ensure(ascend && areUsed && areNamed && differ, "bad_tables");
  const sizes = tableSizes(spec);
  const cells = sizes.reduce((total, size) => total + size, 0);
  read.checkRange("the number of all cells", cells, 2, MAX_DOMAIN_SIZE);
  return { ...spec, ...TRUE, ...NO_NUMBERS, buckets: sizes.at(-1) ?? 0 };
}

/** Return the number of cells of each table. */
export function tableSizes(spec: Pick<MechanismSpec, "attributes" | "views">): number[] {
  const sizeOf = (place: number) => spec.attributes[place]?.size ?? 0;
  return spec.views.map((view) => view.reduce((total, place) => total * sizeOf(place), 1));
}

export const mechanism: read.Reader<MechanismSpec> = (json, name) => {
  const form = json instanceof Map && json.get("name");
  if (form === "digits") return ofNumbers(json, name);
  if (form === "tables") return ofTables(json, name);
  const spec = { ...OF_ITEMS(json, name), ...NO_NUMBERS, ...NO_TABLES };
  const { trueWeight, otherWeight, buckets } = spec;
  const most = otherWeight === 0n ? 1n : read.MAX_WEIGHT_SUM;
  read.checkRange("true_weight", trueWeight, otherWeight + 1n, most);
  const total = trueWeight + BigInt(buckets - 1) * otherWeight;
  read.checkRange("the sum of the weights", total, 1, read.MAX_WEIGHT_SUM);
  return spec;
};

const NONE = read.table({ distribution: read.choice("none") });
const BINOMIAL = read.table({
  distribution: read.choice("binomial"),
  trials: read.whole(1, MAX_PER_ITEM),
});
const GEOMETRIC = read.table({
  distribution: read.choice("geometric"),
  peak: read.optional(read.whole(0, MAX_GEOMETRIC), 0),
  left_weight: read.smallWeight(1, RATIO_SUM - 1),
  right_weight: read.smallWeight(1, RATIO_SUM - 1),
  most: read.whole(1, MAX_GEOMETRIC),
});
export type GeometricNoise = ReturnType<typeof GEOMETRIC>;
/** The distribution of the number of the shuffler's dummies of one item. */
export type Noise = ReturnType<typeof NONE | typeof BINOMIAL> | GeometricNoise;

const geometric: read.Reader<GeometricNoise> = (json, name) => {
  const noise = GEOMETRIC(json, name);
  ensure(noise.most >= noise.peak && drawsPerItem(noise) <= MAX_DRAWS, "too_many_draws");
  return noise;
};

/** Reads a shuffler of a task: its signed key, and what it drops, and adds to each view. */
export const shuffler = read.table({
  key: read.bytes,
  name: read.printable(64, read.ASCII),
  proof: read.optional(proofOf, new Uint8Array()),
  keep_weight: read.optional(read.smallWeight(1, KEEP_SUM), KEEP_SUM),
  noise: read.listOf(
    read.union<Noise>("distribution", { none: NONE, binomial: BINOMIAL, geometric }),
  ),
});

export type Shuffler = ReturnType<typeof shuffler>;

/** Return a task's shuffler, the relay of two, and what they add: common/task/task_parts.py. */
export function chainOf(shufflers: readonly Shuffler[], views: number) {
  const [shuffler, relay = null] = shufflers;
  const value = shufflers.length;
  ensure(shuffler && value <= 2, "shuffler_count", { value });
  ensure(
    shufflers.every(({ noise }) => noise.length === views),
    "noise_of_views",
  );
  const own = new Set(shufflers.flatMap(({ name, key }) => [`name ${name}`, `key ${key}`]));
  ensure(value === 1 || (own.size === 4 && !own.has("name ")), "shufflers_alike");
  const ofView = (view: number) => shufflers.map(({ noise }) => noise[view] as Noise);
  const noises = Array.from({ length: views }, (_, view) => ofView(view));
  const keep = Math.min(...shufflers.map(({ keepWeight }) => keepWeight)) / KEEP_SUM;
  return { shuffler, relay, noises, keep };
}

/** The issuer whose one-time tokens a task requires, and the task's signed token key. */
export const tokens = read.table({
  issuer: (json, name) => {
    const issuer = read.text(json, name);
    ensure(/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(issuer), "issuer_name");
    return issuer;
  },
  key: (json, name) => {
    const key = TokenKey.of(read.bytes(json, name));
    ensure(key, "token_key");
    return key;
  },
  proof: proofOf,
});

function proofOf(...json: Parameters<read.Reader<Bytes>>): Bytes {
  const proof = read.bytes(...json);
  ensure(proof.length === PROOF_BYTES, "proof_length");
  return proof;
}

/** Return the last second since 1970 UTC at which a signed key may be used. */
export function endOfValidity(proof: Bytes): bigint {
  return toInteger(proof.subarray(0, 8));
}

/** Check the average number of the shufflers' dummies of all views, and of draws for them. */
export function checkNoise(noises: readonly (readonly Noise[])[], sizes: readonly number[]): void {
  const items = new Map<string, [Noise, number]>();
  noises.forEach((ofView, view) => {
    for (const noise of ofView) {
      const key = JSON.stringify(noise);
      const [, before] = items.get(key) ?? [noise, 0];
      items.set(key, [noise, before + (sizes[view] ?? 0)]);
    }
  });
  const sum = (figure: (noise: Noise, count: number) => number) =>
    [...items.values()].reduce((total, [noise, count]) => total + figure(noise, count), 0);
  ensure(sum((noise) => ("most" in noise ? noise.most : 0)) <= MAX_MOST, "too_many_draws");
  const ofAll = (figure: (noise: Noise) => number) =>
    Math.ceil(sum((noise, count) => count * figure(noise)));
  ensure(ofAll(meanOfNoise) <= MAX_SHUFFLER_DUMMIES, "too_many_draws");
  ensure(ofAll(drawsPerItem) <= MAX_SHUFFLER_DRAWS, "too_many_draws");
}

/** Approximate number of draws for one item's dummies, as in common/task/shuffler_spec.py. */
function drawsPerItem(noise: Noise): number {
  if (noise.distribution !== "geometric") return meanOfNoise(noise) / 32;
  const side = (ratio: number, length: number) => {
    const fits = -Math.expm1(length * Math.log(ratio / RATIO_SUM));
    return length === 0 ? 0 : RATIO_SUM / (RATIO_SUM - ratio) / fits;
  };
  return side(noise.leftWeight, noise.peak) + side(noise.rightWeight, noise.most - noise.peak + 1);
}

function meanOfNoise(noise: Noise): number {
  if (noise.distribution !== "geometric") return "trials" in noise ? noise.trials / 2 : 0;
  let [total, sum] = [0, 0];
  for (let z = 0; z <= noise.most; z++) {
    const ratio = (z < noise.peak ? noise.leftWeight : noise.rightWeight) / RATIO_SUM;
    const mass = ratio ** Math.abs(z - noise.peak);
    total += mass;
    sum += z * mass;
  }
  return sum / total;
}
