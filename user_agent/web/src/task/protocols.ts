/** The protocols that this device answers, and the tasks that each allows: common/protocols.py. */

export const MECHANISMS = [
  "grr",
  "warner",
  "symmetric-unary",
  "optimized-unary",
  "local-hashing",
  "hierarchy",
  "digits",
  "tables",
] as const;
export type MechanismName = (typeof MECHANISMS)[number];

export interface ProtocolRow {
  readonly mechanism: MechanismName;
  /** Kind of a value; items without edges are categorical. */
  readonly kind: "ordered" | "mean" | "vector" | "table" | "categorical";
  /** Whether reports have local noise of their own. */
  readonly localNoise: "required" | "optional" | "none";
  /** Allowed distributions of the device's dummies; if empty, devices add none. */
  readonly dummies: readonly string[];
  /** Distribution of the shuffler's dummies of each item. */
  readonly noise: "none" | "binomial" | "geometric";
  /** Whether the shuffler may drop reports at random. */
  readonly samples: boolean;
  readonly isBinary: boolean;
  /** Number of buckets; 0 if the task chooses it. */
  readonly buckets: number;
  /** Whether the central ε relies on the shuffler; if not, it is the local ε. */
  readonly isAmplified: boolean;
}

const FIXED = ["fixed", "fractional"] as const;
const RANDOM = [...FIXED, "binomial", "negative-binomial"] as const;

function row(mechanism: MechanismName, own: Partial<ProtocolRow> = {}): ProtocolRow {
  return {
    mechanism,
    kind: "categorical",
    localNoise: "required",
    dummies: [],
    noise: "none",
    samples: false,
    isBinary: false,
    buckets: 0,
    isAmplified: true,
    ...own,
  };
}

const VIEWS = [...FIXED, "views"] as const;
const HIDDEN = { localNoise: "none", dummies: VIEWS } as const;
const NOISY = { localNoise: "none", noise: "geometric" } as const;
const LOCAL = { isAmplified: false };
export const PROTOCOLS: ReadonlyMap<string, ProtocolRow> = new Map([
  ["ldp-warner", row("warner", { ...LOCAL, isBinary: true })],
  ["ldp-grr", row("grr", LOCAL)],
  ["ldp-sue", row("symmetric-unary", LOCAL)],
  ["ldp-oue", row("optimized-unary", LOCAL)],
  ["ldp-blh", row("local-hashing", { ...LOCAL, buckets: 2 })],
  ["ldp-olh", row("local-hashing", LOCAL)],
  ["sh", row("grr")],
  ["murs", row("local-hashing")],
  ["hp-sdp", row("local-hashing")],
  ["ddps", row("warner", { isBinary: true })],
  ["aue", row("grr", { localNoise: "none", dummies: ["each-item"] })],
  ["puredump", row("grr", { localNoise: "none", dummies: FIXED })],
  ["hierarchy", row("hierarchy", { ...HIDDEN, kind: "ordered" })],
  ["tables", row("tables", { kind: "table", localNoise: "none", dummies: VIEWS })],
  ["geo-tables", row("tables", { kind: "table", localNoise: "none", noise: "geometric" })],
  ["mixdump", row("grr", { dummies: FIXED })],
  ["od-hp", row("local-hashing", { localNoise: "optional", dummies: RANDOM })],
  ["fe1", row("local-hashing", { localNoise: "none", dummies: FIXED })],
  ["sbin", row("grr", { localNoise: "none", noise: "binomial", samples: true })],
  ["sageo", row("grr", { ...NOISY, samples: true })],
  ["hybrid", row("grr", { noise: "geometric" })],
  ["digits", row("digits", { ...HIDDEN, kind: "mean" })],
  ["geo-digits", row("digits", { ...NOISY, kind: "mean" })],
  ["vector-digits", row("digits", { ...HIDDEN, kind: "vector" })],
  ["geo-vector-digits", row("digits", { ...NOISY, kind: "vector" })],
]);
