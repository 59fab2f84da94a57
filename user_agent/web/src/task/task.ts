/**
 * A task: what is collected and under which parameters; common/task/task.py.
 *
 * It is identified by the SHA-256 of its bytes exactly as received.
 */

import type { Bytes } from "../bytes";
import { SUITES, type SuiteName } from "../crypto/hpke";
import { PolicyError, TaskError } from "../errors";
import { type Json, parseCanonical } from "./canonical";
import { type Breakdown, breakdownOf, Edges, GROUP_SEPARATOR, hierarchySizes } from "./domain";
import { type Dummies, dummiesOf, ItemDummies, LevelDummies, UniformDummies } from "./dummies";
import { checkLabels, checkRange, Fields } from "./fields";
import {
  drawsPerItem,
  endOfValidity,
  KEEP_SUM,
  MAX_DOMAIN_SIZE,
  type MechanismSpec,
  meanOfNoise,
  mechanismOf,
  type Noise,
  shufflerOf,
  type TaskShuffler,
  type TokenSpec,
  tokensOf,
} from "./parts";
import { type ProtocolRow, protocolNamed } from "./protocols";

export const SUBMISSION_ID_BYTES = 16;

const FORMAT_VERSION = 2n;
const MAX_TASK_BYTES = 2 * 1024 * 1024;
const MAX_ENVELOPE_BYTES = 1024 * 1024;
const MAX_USERS = 10 ** 9;
const MAX_UNIX_TIME = 2 ** 40;
const MAX_LOCAL_EPSILON = 20;
const MIN_DELTA = 1e-15;
const MAX_ROUND = 10 ** 6;
const MAX_SHUFFLER_DUMMIES = 10 ** 9;
const MAX_SHUFFLER_DRAWS = 10 ** 10;

interface View {
  readonly size: number;
  readonly dummies: UniformDummies | ItemDummies;
}

/** A task that keeps every rule of its format; what a person is shown may be empty. */
export class Task {
  readonly protocol: string;
  readonly row: ProtocolRow;
  readonly mechanism: MechanismSpec;
  readonly shuffler: TaskShuffler;
  readonly labels: readonly string[];
  readonly edges: Edges | null;
  readonly breakdown: Breakdown | null;
  readonly tokens: TokenSpec | null;
  /** Number of items: of the last view, which is the finest. */
  readonly domainSize: number;
  /** Number of nodes of each level of a hierarchy, the coarsest first; empty for other tasks. */
  readonly levelSizes: readonly number[];
  readonly dummies: Dummies;
  /** Numbers of sealed reports that a submission may have, ascending. */
  readonly lengths: readonly number[];
  readonly delta: number;
  readonly nMin: number;
  /** Seconds since 1970 UTC. */
  readonly deadline: number;
  readonly honestFraction: number;
  readonly localEpsilon: number;
  readonly centralEpsilon: number;
  readonly suite: SuiteName;
  readonly analyzerKey: Bytes;
  readonly nonce: Bytes;
  readonly population: string;
  readonly title: string;
  readonly prompt: string;
  readonly purpose: string;
  readonly series: string;
  readonly round: number;

  /**
   * Parse a task's bytes.
   *
   * Raises TaskError unless they are canonical and keep every rule, and PolicyError, with a name,
   * for a protocol, a distribution or a suite that this device does not support.
   */
  static parse(bytes: Uint8Array): Task {
    if (bytes.length > MAX_TASK_BYTES)
      throw new TaskError("task_too_long", { most: MAX_TASK_BYTES });
    return new Task(parseCanonical(bytes));
  }

  private constructor(json: Json) {
    const table = new Fields(json, "task");
    const version = table.any("version");
    if (version !== FORMAT_VERSION) throw new TaskError("task_version");
    this.protocol = table.text("protocol");
    this.row = protocolNamed(this.protocol);
    const { row } = this;
    const suite = table.text("suite");
    if (!Object.hasOwn(SUITES, suite)) throw unsupportedSuite(suite);
    this.suite = suite as SuiteName;
    const plain = row.mechanism === "local-hashing" ? (["grr"] as const) : [];
    this.mechanism = mechanismOf(table.any("mechanism"), [row.mechanism, ...plain]);
    const shufflers = table.list("shufflers");
    if (shufflers.length !== 1) throw new TaskError("shuffler_count", { value: shufflers.length });
    this.shuffler = shufflerOf(shufflers[0] ?? null);
    this.edges = table.has("edges") ? Edges.of(table.any("edges")) : null;
    this.breakdown = table.has("breakdown") ? breakdownOf(table.any("breakdown")) : null;
    this.tokens = table.has("tokens") ? tokensOf(table.any("tokens")) : null;
    this.labels = table.optional<readonly string[]>("labels", [], table.texts);
    const kind = table.text("kind");
    const views = table.list("views").map(viewOf);
    this.domainSize = views.at(-1)?.size ?? 0;
    this.levelSizes = this.levels();
    this.dummies = this.dummiesOf(views);
    const own = Math.max(1, this.levelSizes.length);
    this.lengths = this.dummies.lengths.map((length) => own + length);
    this.delta = table.double("delta");
    this.nMin = table.whole("n_min", 1, MAX_USERS);
    table.whole("target_size", this.nMin, MAX_USERS);
    this.deadline = table.whole("deadline", 1, MAX_UNIX_TIME);
    this.honestFraction = table.double("assumed_honest_fraction");
    this.localEpsilon = table.double("local_epsilon", true);
    this.centralEpsilon = table.double("central_epsilon");
    const coalition = table.double("coalition_epsilon", true);
    this.analyzerKey = table.bytes("analyzer_key");
    this.nonce = table.bytes("nonce");
    this.population = table.printable("population", 64, true);
    const budget = [table.double("budget_epsilon"), table.double("budget_delta")] as const;
    this.title = table.printable("title", 80);
    this.prompt = table.printable("prompt", 500);
    this.purpose = table.printable("purpose", 1000);
    this.series = table.printable("series", 64);
    this.round = table.optional("round", 0, (name) => table.whole(name, 1, MAX_ROUND));
    table.end();
    if ((this.series === "") !== (this.round === 0)) throw new TaskError("round_without_series");
    const expected = this.edges || row.mechanism === "hierarchy" ? "ordered" : "categorical";
    if (kind !== expected || (expected === "ordered" && !this.edges)) throw new TaskError("kind");
    this.checkProtocol(views.length);
    this.checkDomain(views);
    this.checkClaims(coalition, budget);
    this.checkKeysAndSizes();
  }

  /** Number of groups of the breakdown; 1 without one. */
  get groups(): number {
    return this.breakdown?.groups.length ?? 1;
  }

  get noise(): Noise {
    return this.shuffler.noises[0] ?? { distribution: "none" };
  }

  private levels(): readonly number[] {
    const { name, buckets } = this.mechanism;
    if (name !== "hierarchy") return [];
    return hierarchySizes(Math.floor(this.domainSize / this.groups), buckets, this.groups);
  }

  private dummiesOf(views: readonly View[]): Dummies {
    const count = Math.max(1, this.levelSizes.length);
    if (views.length !== count) throw new TaskError("view_count", { value: views.length, count });
    const [first] = views;
    if (this.levelSizes.length === 0 && first) return first.dummies;
    const ofLevels = views.map(({ dummies }) => {
      const known = dummies instanceof UniformDummies && dummies.hasAnAverage;
      if (!known) throw new TaskError("level_dummies");
      return dummies;
    });
    return new LevelDummies(ofLevels);
  }

  private checkProtocol(views: number): void {
    const { row, mechanism, dummies, noise, shuffler } = this;
    const isNoiseless = mechanism.otherWeight === 0n;
    const wrongNoise = row.localNoise === (isNoiseless ? "required" : "none");
    if (wrongNoise) throw new TaskError("local_noise", { protocol: this.protocol });
    const none = dummies.distribution === "fixed" && dummies.lengths[0] === 0;
    const fits = row.dummies.length ? row.dummies.includes(dummies.distribution) : none;
    if (!fits) throw new TaskError("dummies_of_protocol", { protocol: this.protocol });
    if (shuffler.noises.length !== views) throw new TaskError("noise_of_views");
    const drops = shuffler.keepWeight < KEEP_SUM && !row.samples;
    if (noise.distribution !== row.noise || drops) {
      throw new TaskError("shuffler_of_protocol", { protocol: this.protocol });
    }
    const added = Math.ceil(this.domainSize * meanOfNoise(noise));
    const draws = Math.ceil(this.domainSize * drawsPerItem(noise));
    if (added > MAX_SHUFFLER_DUMMIES || draws > MAX_SHUFFLER_DRAWS) {
      throw new TaskError("too_many_draws");
    }
    const isOwn = mechanism.name === row.mechanism;
    if (isOwn && row.buckets !== 0 && row.buckets !== mechanism.buckets) {
      throw new TaskError("out_of_range", {
        name: "buckets",
        value: mechanism.buckets,
        least: row.buckets,
        most: row.buckets,
      });
    }
  }

  private checkDomain(views: readonly View[]): void {
    const { domainSize, mechanism, row, labels, edges, dummies } = this;
    checkRange("domain_size", BigInt(domainSize), 2n, BigInt(MAX_DOMAIN_SIZE));
    if (row.isBinary && domainSize !== 2)
      throw new TaskError("binary", { protocol: this.protocol });
    if (edges && (row.isBinary || labels.length > 0)) throw new TaskError("edges_twice");
    if (dummies instanceof ItemDummies && dummies.trials !== domainSize) {
      throw new TaskError("trials_of_items", { value: dummies.trials, size: domainSize });
    }
    const { name, buckets, digits } = mechanism;
    const isPlain = name === "grr" || name === "warner";
    const wrong = isPlain ? buckets !== domainSize || digits !== 1 : false;
    if (wrong || (name === "local-hashing" && buckets ** digits < domainSize)) {
      throw new TaskError("buckets_of_items", { buckets, digits, size: domainSize });
    }
    checkLabels(labels, domainSize);
    const size = edges?.size ?? Math.floor(domainSize / this.groups);
    if (size * this.groups !== domainSize) throw new TaskError("size_of_groups");
    const named = labels.every((label, item) => {
      const name = (labels[item % size] ?? "")
        .split(GROUP_SEPARATOR)
        .slice(1)
        .join(GROUP_SEPARATOR);
      const group = this.breakdown?.groups[Math.floor(item / size)];
      return !this.breakdown || label === `${group}${GROUP_SEPARATOR}${name}`;
    });
    if (!named) throw new TaskError("labels_of_groups");
    const misfit = this.levelSizes.some((nodes, level) => views[level]?.size !== nodes);
    if (misfit || (name === "hierarchy" && digits !== this.levelSizes.length)) {
      throw new TaskError("sizes_of_levels");
    }
  }

  private checkClaims(coalition: number, [budget, budgetDelta]: readonly [number, number]): void {
    const { delta, honestFraction: fraction, localEpsilon: local, centralEpsilon: central } = this;
    const isInfinite = local === Number.POSITIVE_INFINITY;
    const noiseless = this.mechanism.otherWeight === 0n;
    const inRange = delta >= MIN_DELTA && delta < 1 && fraction > 0 && fraction <= 1 && local > 0;
    if (!inRange || (!isInfinite && local > MAX_LOCAL_EPSILON)) throw new TaskError("claim_range");
    if (isInfinite !== noiseless || coalition !== local) throw new TaskError("claim_of_noise");
    if (central < 0 || central > local) throw new TaskError("claim_range");
    if (!this.row.isAmplified && central > 0 && central !== local) {
      throw new TaskError("claim_of_noise");
    }
    if (!(budget > 0) || budget < central || budgetDelta < delta || budgetDelta >= 1) {
      throw new TaskError("budget_range");
    }
  }

  private checkKeysAndSizes(): void {
    const { publicKeyBytes, overheadBytes } = SUITES[this.suite];
    const keys = [this.analyzerKey, this.shuffler.key];
    if (keys.some((key) => key.length !== publicKeyBytes) || this.nonce.length !== 32) {
      throw new TaskError("key_length");
    }
    for (const proof of [this.shuffler.proof, this.tokens?.proof]) {
      if (proof?.length && BigInt(this.deadline) > endOfValidity(proof)) {
        throw new TaskError("deadline_after_key");
      }
    }
    const reports = (this.lengths.at(-1) ?? 0) * (this.mechanism.reportBytes + overheadBytes);
    if (SUBMISSION_ID_BYTES + reports + overheadBytes > MAX_ENVELOPE_BYTES) {
      throw new TaskError("envelope_too_long", { most: MAX_ENVELOPE_BYTES });
    }
  }
}

function viewOf(json: Json): View {
  const table = new Fields(json, "views");
  const size = table.whole("domain_size", 1, MAX_DOMAIN_SIZE);
  const dummies = dummiesOf(table.any("dummies"));
  table.end();
  return { size, dummies };
}

function unsupportedSuite(suite: string): Error {
  const known = suite === "mlkem768x25519-hkdf-sha256-chacha20poly1305";
  if (known) return new PolicyError("unsupported_suite", { suite });
  return new TaskError("not_one_of", { name: "suite", words: Object.keys(SUITES).join(", ") });
}
