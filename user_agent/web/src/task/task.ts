/**
 * A task: what is collected and under which parameters; common/task/task.py.
 *
 * It is identified by the SHA-256 of its bytes exactly as received.
 */

import { SUITES, type SuiteName } from "../crypto/hpke";
import { PolicyError, TaskError } from "../errors";
import { parseCanonical } from "./canonical";
import { afterGroup, breakdown, edges, GROUP_SEPARATOR, hierarchySizes } from "./domain";
import { type Dummies, dummies, ItemDummies, LevelDummies, UniformDummies } from "./dummies";
import {
  drawsPerItem,
  endOfValidity,
  KEEP_SUM,
  MAX_DOMAIN_SIZE,
  meanOfNoise,
  mechanism,
  shuffler,
  tokens,
} from "./parts";
import { PROTOCOLS, type ProtocolRow } from "./protocols";
import * as read from "./readers";

export const SUBMISSION_ID_BYTES = 16;

export const MAX_TASK_BYTES = 2 * 1024 * 1024;
const MAX_ENVELOPE_BYTES = 1024 * 1024;
const MAX_USERS = 10 ** 9;
const MAX_LOCAL_EPSILON = 20;
const MIN_DELTA = 1e-15;
const MAX_SHUFFLER_DUMMIES = 10 ** 9;
const MAX_SHUFFLER_DRAWS = 10 ** 10;

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
  version: (json) => {
    if (json !== 2n) throw new TaskError("task_version");
  },
  protocol: known([...PROTOCOLS.keys()]),
  suite: known(Object.keys(SUITES) as SuiteName[]),
  kind: read.choice("categorical", "ordered"),
  views: read.listOf(read.table({ domain_size: read.whole(1, MAX_DOMAIN_SIZE), dummies })),
  shufflers: read.listOf(shuffler),
  mechanism,
  labels: read.optional(read.listOf(read.text), []),
  edges: read.optional(edges, null),
  breakdown: read.optional(breakdown, null),
  tokens: read.optional(tokens, null),
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
  readonly shuffler: Stated["shufflers"][number];
  readonly noise: Stated["shufflers"][number]["noise"][number];
  /** Number of groups of the breakdown; 1 without one. */
  readonly groups: number;
  /** Number of items: of the last view, which is the finest. */
  readonly domainSize: number;
  /** Number of nodes of each level of a hierarchy, the coarsest first; empty for other tasks. */
  readonly levelSizes: readonly number[];
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
  if (raw.length > MAX_TASK_BYTES) throw new TaskError("task_too_long", { most: MAX_TASK_BYTES });
  const stated = TASK(parseCanonical(raw), "task");
  const { views, shufflers, mechanism: spec } = stated;
  const [only] = shufflers;
  const [noise] = only?.noise ?? [];
  const value = shufflers.length;
  if (!only || value > 1) throw new TaskError("shuffler_count", { value });
  if (!noise) throw new TaskError("noise_of_views");
  const groups = stated.breakdown?.groups.length ?? 1;
  const domainSize = views.at(-1)?.domainSize ?? 0;
  const ofGroup = Math.floor(domainSize / groups);
  const isTree = spec.name === "hierarchy";
  const levelSizes = isTree ? hierarchySizes(ofGroup, spec.buckets, groups) : [];
  const added = dummiesOfViews(stated, levelSizes.length);
  const lengths = added.lengths.map((length) => Math.max(1, levelSizes.length) + length);
  const row = PROTOCOLS.get(stated.protocol) as ProtocolRow;
  const follows = { row, shuffler: only, noise, groups, domainSize, levelSizes, lengths };
  const task: Task = { ...stated, ...follows, dummies: added };
  checkProtocol(task);
  checkDomain(task);
  checkClaims(task);
  checkKeysAndSizes(task);
  return task;
}

function dummiesOfViews({ views }: Stated, levels: number): Dummies {
  const count = Math.max(1, levels);
  if (views.length !== count) throw new TaskError("view_count", { value: views.length, count });
  const ofViews = views.map((view) => view.dummies);
  if (levels === 0) return ofViews[0] as Dummies;
  const known = ofViews.filter((one) => one instanceof UniformDummies && one.hasAnAverage);
  if (known.length !== count) throw new TaskError("level_dummies");
  return new LevelDummies(known as UniformDummies[]);
}

function checkProtocol(task: Task): void {
  const { row, mechanism: spec, dummies: added, noise, shuffler: only, domainSize } = task;
  const [named, stated] = [{ protocol: task.protocol }, spec.name];
  const hashesNothing = row.mechanism === "local-hashing" && stated === "grr";
  if (stated !== row.mechanism && !hashesNothing) throw new TaskError("mechanism", named);
  const isNoiseless = spec.otherWeight === 0n;
  if (row.localNoise === (isNoiseless ? "required" : "none")) {
    throw new TaskError("local_noise", named);
  }
  const isNone = added.distribution === "fixed" && added.lengths[0] === 0;
  const fits = row.dummies.length ? row.dummies.includes(added.distribution) : isNone;
  if (!fits) throw new TaskError("dummies_of_protocol", named);
  const alike = new Set(only.noise.map((one) => JSON.stringify(one))).size === 1;
  if (only.noise.length !== task.views.length || !alike) throw new TaskError("noise_of_views");
  if (noise.distribution !== row.noise || (only.keepWeight < KEEP_SUM && !row.samples)) {
    throw new TaskError("shuffler_of_protocol", named);
  }
  const drawn = Math.ceil(domainSize * meanOfNoise(noise));
  const draws = Math.ceil(domainSize * drawsPerItem(noise));
  if (drawn > MAX_SHUFFLER_DUMMIES || draws > MAX_SHUFFLER_DRAWS) {
    throw new TaskError("too_many_draws");
  }
  const buckets = BigInt(row.buckets);
  if (buckets && !hashesNothing) read.checkRange("buckets", BigInt(spec.buckets), buckets, buckets);
}

function checkDomain(task: Task): void {
  const { domainSize: size, row, labels, dummies: added, groups, levelSizes, views } = task;
  const { name, buckets, digits } = task.mechanism;
  const isTree = name === "hierarchy";
  read.checkRange("domain_size", BigInt(size), 2n, BigInt(MAX_DOMAIN_SIZE));
  if (row.isBinary && size !== 2) throw new TaskError("binary", { protocol: task.protocol });
  const kind = task.edges || isTree ? "ordered" : "categorical";
  if (task.kind !== kind || (isTree && !task.edges)) throw new TaskError("kind");
  if (task.edges && (row.isBinary || labels.length > 0)) throw new TaskError("edges_twice");
  if (added instanceof ItemDummies && added.trials !== size) {
    throw new TaskError("trials_of_items", { value: added.trials, size });
  }
  const isPlain = name === "grr" || name === "warner";
  const isHashed = name === "local-hashing";
  if (isPlain ? buckets !== size || digits !== 1 : isHashed && buckets ** digits < size) {
    throw new TaskError("buckets_of_items", { buckets, digits, size });
  }
  read.checkLabels(labels, size);
  const ofGroup = task.edges?.size ?? Math.floor(size / groups);
  if (ofGroup * groups !== size) throw new TaskError("size_of_groups");
  labels.forEach((label, item) => {
    const group = task.breakdown?.groups[Math.floor(item / ofGroup)];
    const value = afterGroup(labels[item % ofGroup] ?? "");
    if (group !== undefined && label !== `${group}${GROUP_SEPARATOR}${value}`) {
      throw new TaskError("labels_of_groups");
    }
  });
  const isMisfit = levelSizes.some((nodes, level) => views[level]?.domainSize !== nodes);
  if (isMisfit || (isTree && digits !== levelSizes.length)) throw new TaskError("sizes_of_levels");
}

function checkClaims(task: Task): void {
  const { delta, localEpsilon: local, centralEpsilon: central } = task;
  const fraction = task.assumedHonestFraction;
  const isInfinite = local === Number.POSITIVE_INFINITY;
  const isLocal = local > 0 && (isInfinite || local <= MAX_LOCAL_EPSILON);
  const isShare = delta >= MIN_DELTA && delta < 1 && fraction > 0 && fraction <= 1;
  if (!isLocal || !isShare || !(central >= 0 && central <= local))
    throw new TaskError("claim_range");
  const isNoiseless = task.mechanism.otherWeight === 0n;
  const isOwn = task.row.isAmplified || central === 0 || central === local;
  if (isInfinite !== isNoiseless || task.coalitionEpsilon !== local || !isOwn) {
    throw new TaskError("claim_of_noise");
  }
  const { budgetEpsilon: budget, budgetDelta } = task;
  const isBudget = budget > 0 && budget >= central && budgetDelta >= delta && budgetDelta < 1;
  if (!isBudget) throw new TaskError("budget_range");
}

function checkKeysAndSizes(task: Task): void {
  const { nMin, targetSize, series, round, shuffler: only, lengths } = task;
  read.checkRange("target_size", BigInt(targetSize), BigInt(nMin), BigInt(MAX_USERS));
  if ((series === "") !== (round === 0)) throw new TaskError("round_without_series");
  const { publicKeyBytes, overheadBytes } = SUITES[task.suite];
  const isKey = [task.analyzerKey, only.key].every((key) => key.length === publicKeyBytes);
  if (!isKey || task.nonce.length !== 32) throw new TaskError("key_length");
  for (const proof of [only.proof, task.tokens?.proof]) {
    if (proof?.length && BigInt(task.deadline) > endOfValidity(proof)) {
      throw new TaskError("deadline_after_key");
    }
  }
  const reports = (lengths.at(-1) ?? 0) * (task.mechanism.reportBytes + overheadBytes);
  if (SUBMISSION_ID_BYTES + reports + overheadBytes > MAX_ENVELOPE_BYTES) {
    throw new TaskError("envelope_too_long", { most: MAX_ENVELOPE_BYTES });
  }
}
