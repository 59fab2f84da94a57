/** The mechanism of a task, and whether its weights keep the task's promise. */

import { ensure } from "../errors";
import type { MechanismSpec } from "../task/parts";
import type { Task } from "../task/task";
import { LocalHashing } from "./hashing";
import { Grr, type Mechanism } from "./mechanism";
import { Tables } from "./tables";
import { UnaryEncoding } from "./unary";
import { Digits, Hierarchy } from "./views";

/** Build a task's mechanism; raise TaskError if its integers or lengths are wrong. */
export async function mechanismOf(task: Task): Promise<Mechanism> {
  const mechanism = await build(task);
  const { reportBytes } = mechanism;
  const value = task.mechanism.reportBytes;
  ensure(value === reportBytes, "report_length", { value, reportBytes });
  return mechanism;
}

async function build(task: Task): Promise<Mechanism> {
  const { mechanism: spec, domainSize } = task;
  switch (spec.name) {
    case "grr":
    case "warner":
      return new Grr(domainSize, spec);
    case "local-hashing":
      return LocalHashing.of(domainSize, spec, task.nonce);
    case "hierarchy":
      return new Hierarchy(task.viewSizes, spec.buckets, task.groups);
    case "digits":
      return new Digits(task.viewSizes, spec);
    case "tables":
      return new Tables(task.viewSizes, spec.attributes, spec.views);
    default:
      return new UnaryEncoding(domainSize, spec);
  }
}

const FIXED_POINT = 220n;

/**
 * Check true / other ≤ e^(ε / factors) exactly; near equality the answer is no.
 *
 * As `odds_keep` of common/mechanisms/weights.py, with a margin of a relative 1e-27, far above the
 * error of 220 bits and far below one unit of a weight.
 */
export function keepsPromise(spec: MechanismSpec, factors: number, localEpsilon: number): boolean {
  if (localEpsilon === Number.POSITIVE_INFINITY) return true;
  const promise = exponential(localEpsilon / factors);
  const lowered = promise - promise / 10n ** 27n - 1n;
  return spec.trueWeight << FIXED_POINT <= lowered * spec.otherWeight;
}

/** Return e^x for x of 0 to 20 in units of 2^-220, too low by less than a relative 1e-50. */
function exponential(x: number): bigint {
  const exponent = BigInt(Math.floor(x * 2 ** 120)) << (FIXED_POINT - 120n);
  const one = 1n << FIXED_POINT;
  let [term, sum] = [one, one];
  for (let k = 1n; term > 0n; k++) {
    term = (term * exponent) / (one * k);
    sum += term;
  }
  return sum;
}
