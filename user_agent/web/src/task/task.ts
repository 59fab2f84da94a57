/**
 * A task: what is collected and under which parameters; common/task/task.py.
 *
 * It is identified by the SHA-256 of its bytes exactly as received.
 */

import { SUITES, type SuiteName } from "../crypto/hpke";
import { ensure, PolicyError } from "../errors";
import { parseCanonical } from "./canonical";
import { breakdown, edges, GROUP_SEPARATOR, hierarchySizes, withoutGroup } from "./domain";
import { type Dummies, dummies, ItemDummies, UniformDummies, ViewDummies } from "./dummies";
import * as parts from "./parts";
import { PROTOCOLS, type ProtocolRow } from "./protocols";
import * as read from "./readers";

export const SUBMISSION_ID_BYTES = 16;

export const MAX_TASK_BYTES = 2 * 1024 * 1024;
const MAX_ENVELOPE_BYTES = 1024 * 1024;
const MAX_USERS = 10 ** 9;
const MAX_LOCAL_EPSILON = 20;
const MIN_DELTA = 1e-15;
const MIN_COMPOSED_DELTA = 1e-12;

/** Read a name that this device knows; raise PolicyError, with the name, for any other. */
function known<T extends string>(names: readonly T[]): read.Reader<T> {
  return (json, name) => {
    const found = read.text(json, name);
    const own = names.find((each) => each === found);
    if (own !== undefined) return own;
    const shown = /^[a-z0-9-]{1,64}$/.test(found) ? found : "?";
    throw new PolicyError("unsupported", { name, shown });
  };
}

const TASK = read.table({
  version: (json) => ensure(json === 2n, "task_version"),
  protocol: known([...PROTOCOLS.keys()]),
  suite: known(Object.keys(SUITES) as SuiteName[]),
  kind: read.choice("categorical", "ordered", "mean", "vector", "table"),
  views: read.listOf(read.table({ domain_size: read.whole(1, parts.MAX_DOMAIN_SIZE), dummies })),
  shufflers: read.listOf(parts.shuffler),
  mechanism: parts.mechanism,
  labels: read.optional(read.listOf(read.text), []),
  edges: read.optional(edges, null),
  breakdown: read.optional(breakdown, null),
  tokens: read.optional(parts.tokens, null),
  delta: read.double,
  n_min: read.whole(1, MAX_USERS),
  target_size: read.whole(1, MAX_USERS),
  deadline: read.whole(1, 2 ** 40),
  assumed_honest_fraction: read.double,
  local_epsilon: read.doubleOrInfinite,
  central_epsilon: read.double,
  coalition_epsilon: read.doubleOrInfinite,
  budget_epsilon: read.double,
  budget_delta: read.double,
  analyzer_key: read.bytes,
  nonce: read.bytes,
  population: read.printable(64, read.ASCII),
  title: read.printable(80),
  prompt: read.printable(500),
  purpose: read.printable(1000),
  series: read.printable(64),
  round: read.optional(read.whole(1, 10 ** 6), 0),
});
type Stated = ReturnType<typeof TASK>;

/** A task that keeps every rule of its format, and what follows from its fields. */
export interface Task extends Stated {
  readonly row: ProtocolRow;
  readonly shuffler: parts.Shuffler;
  /** The second of two shufflers; null if there is one. */
  readonly relay: parts.Shuffler | null;
  /** For each view, the noise of each shuffler, which adds up. */
  readonly noises: readonly (readonly parts.Noise[])[];
  /** Probability that the shuffler keeps a report. */
  readonly keep: number;
  /** Number of groups of the breakdown; 1 without one. */
  readonly groups: number;
  /** Number of items, of the last view, the finest; or of a person's numbers or attributes. */
  readonly domainSize: number;
  /** The labels of the values in each group, without the group; empty if there are none. */
  readonly valueLabels: readonly string[];
  /** Number of items of each view. */
  readonly viewSizes: readonly number[];
  /** The dummies of all views together. */
  readonly dummies: Dummies;
  /** Numbers of sealed reports that a submission may have, ascending. */
  readonly lengths: readonly number[];
}

/**
 * Parse a task's bytes.
 *
 * Raises TaskError unless they are canonical and keep every rule, and PolicyError, with a name, for
 * a protocol or a suite that this device does not support.
 */
export function parseTask(raw: Uint8Array): Task {
  ensure(raw.length <= MAX_TASK_BYTES, "task_too_long", { most: MAX_TASK_BYTES });
  const stated = TASK(parseCanonical(raw), "task");
  const { views, breakdown, labels, mechanism: spec } = stated;
  const groups = breakdown?.groups.length ?? 1;
  const viewSizes = views.map((view) => view.domainSize);
  const domainSize = spec.numbers || spec.attributes.length || (viewSizes.at(-1) ?? 0);
  const ofGroup = Math.floor(domainSize / groups);
  checkViews(viewSizes, spec, ofGroup, groups);
  const dummies = dummiesOfViews(stated);
  const task: Task = {
    ...stated,
    ...parts.chainOf(stated.shufflers, views.length),
    row: PROTOCOLS.get(stated.protocol) as ProtocolRow,
    groups,
    domainSize,
    valueLabels: breakdown ? labels.slice(0, ofGroup).map(withoutGroup) : labels,
    viewSizes,
    dummies,
    lengths: dummies.lengths.map((length) => views.length + length),
  };
  checkProtocol(task);
  checkDomain(task);
  checkClaims(task);
  checkKeysAndSizes(task);
  return task;
}

function checkViews(
  sizes: readonly number[],
  spec: parts.MechanismSpec,
  ofGroup: number,
  groups: number,
): void {
  const { buckets, digits, radices, numbers, views } = spec;
  const isTree = spec.name === "hierarchy";
  const ofItems = isTree ? hierarchySizes(ofGroup, buckets, groups) : [ofGroup * groups];
  const ofNumbers = Array.from({ length: numbers }, () => radices).flat();
  const needed = views.length ? parts.tableSizes(spec) : numbers ? ofNumbers : ofItems;
  const count = needed.length;
  ensure(sizes.length === count, "view_count", { value: sizes.length, count });
  const areNeeded = needed.every((size, view) => sizes[view] === size);
  ensure(areNeeded && (!isTree || digits === count), "sizes_of_views");
}

function dummiesOfViews({ views }: Stated): Dummies {
  const ofViews = views.map((view) => view.dummies);
  if (views.length === 1) return ofViews[0] as Dummies;
  const known = ofViews.filter((one) => one instanceof UniformDummies && one.hasAnAverage);
  ensure(known.length === views.length, "dummies_of_views");
  return new ViewDummies(known as UniformDummies[]);
}

function checkProtocol(task: Task): void {
  const { row, protocol, mechanism: spec, dummies, noises, relay } = task;
  const hashesNothing = row.mechanism === "local-hashing" && spec.name === "grr";
  ensure(spec.name === row.mechanism || hashesNothing, "mechanism", { protocol });
  const forbidden = spec.otherWeight === 0n ? "required" : "none";
  ensure(row.localNoise !== forbidden, "local_noise", { protocol });
  const isNone = dummies.lengths[0] === 0 && dummies.lengths.length === 1;
  const fits = row.dummies.length ? row.dummies.includes(dummies.distribution) : isNone;
  ensure(fits, "dummies_of_protocol", { protocol });
  const hidesAlone = row.noise !== "none" && row.localNoise === "none";
  ensure(relay === null || hidesAlone, "chain_of_protocol", { protocol });
  const areOwn = noises.flat().every((noise) => noise.distribution === row.noise);
  const isKept = task.keep === 1 || (row.samples && relay === null);
  ensure(areOwn && isKept, "shuffler_of_protocol", { protocol });
  parts.checkNoise(noises, task.viewSizes);
  const { buckets } = row;
  if (buckets && !hashesNothing) read.checkRange("buckets", spec.buckets, buckets, buckets);
}

function checkDomain(task: Task): void {
  const { domainSize: size, row, labels, dummies, groups, edges } = task;
  const { name, buckets, digits, numbers, attributes } = task.mechanism;
  const isMean = row.kind === "mean";
  read.checkRange("domain_size", size, isMean ? 1 : 2, isMean ? 1 : parts.MAX_DOMAIN_SIZE);
  ensure(!row.isBinary || size === 2, "binary", { protocol: task.protocol });
  const isItem = row.kind === "categorical" || row.kind === "ordered";
  ensure(isItem || !(edges || task.breakdown), "kind");
  ensure(!attributes.length || !labels.length, "bad_tables");
  ensure(task.kind === (edges ? "ordered" : row.kind) && (edges || row.kind !== "ordered"), "kind");
  ensure(!edges || !(row.isBinary || labels.length > 0), "edges_twice");
  if (dummies instanceof ItemDummies) {
    const { trials } = dummies;
    ensure(trials === size, "trials_of_items", { value: trials, size });
  }
  const isPlain = name === "grr" || name === "warner";
  const isCovered = name !== "local-hashing" || buckets ** digits >= size;
  const represents = isPlain ? buckets === size && digits === 1 : isCovered || numbers > 0;
  ensure(represents, "buckets_of_items", { buckets, digits, size });
  read.checkLabels(labels, size);
  const ofGroup = edges?.size ?? Math.floor(size / groups);
  ensure(ofGroup * groups === size, "size_of_groups");
  const names = task.breakdown?.groups.flatMap((group) =>
    task.valueLabels.map((label) => `${group}${GROUP_SEPARATOR}${label}`),
  );
  ensure(!names || labels.every((label, item) => label === names[item]), "labels_of_groups");
}

function checkClaims(task: Task): void {
  const { delta, localEpsilon: local, centralEpsilon: central, coalitionEpsilon: coalition } = task;
  const fraction = task.assumedHonestFraction;
  const isInfinite = local === Number.POSITIVE_INFINITY;
  const isLocal = local > 0 && (isInfinite || local <= MAX_LOCAL_EPSILON);
  const least = task.viewSizes.length > 1 ? MIN_COMPOSED_DELTA : MIN_DELTA;
  const isShare = delta >= least && delta < 1 && fraction > 0 && fraction <= 1;
  ensure(isLocal && isShare && central >= 0 && central <= local, "claim_range");
  const isNoiseless = task.mechanism.otherWeight === 0n;
  const isOwn = task.row.isAmplified || central === 0 || central === local;
  const isBetween = coalition > 0 && coalition >= central && Number.isFinite(coalition);
  const isCoalition = task.relay === null ? coalition === local : isBetween;
  ensure(isInfinite === isNoiseless && isCoalition && isOwn, "claim_of_noise");
  const { budgetEpsilon: budget, budgetDelta } = task;
  const isBudget = budget > 0 && budget >= central && budgetDelta >= delta && budgetDelta < 1;
  ensure(isBudget, "budget_range");
}

function checkKeysAndSizes(task: Task): void {
  const { nMin, targetSize, series, round, shufflers, lengths } = task;
  read.checkRange("target_size", targetSize, nMin, MAX_USERS);
  ensure((series === "") === (round === 0), "round_without_series");
  const { publicKeyBytes, overheadBytes } = SUITES[task.suite];
  const keys = [task.analyzerKey, ...shufflers.map(({ key }) => key)];
  const areKeys = keys.every((key) => key.length === publicKeyBytes);
  ensure(areKeys && task.nonce.length === 32, "key_length");
  for (const proof of [...shufflers.map(({ proof }) => proof), task.tokens?.proof]) {
    ensure(!proof?.length || task.deadline <= parts.endOfValidity(proof), "deadline_after_key");
  }
  const each = task.mechanism.reportBytes + shufflers.length * overheadBytes;
  const total = SUBMISSION_ID_BYTES + (lengths.at(-1) ?? 0) * each + overheadBytes;
  ensure(total <= MAX_ENVELOPE_BYTES, "envelope_too_long", { most: MAX_ENVELOPE_BYTES });
}
