/**
 * Prepare one person's submission to one task: user_agent/contribution.py.
 *
 * No other code turns a value into bytes that leave the device.
 */

import { type Bytes, concat } from "./bytes";
import { ANALYZER, RELAY, SHUFFLER, sealContext, sealer } from "./crypto/hpke";
import { leafOf } from "./inclusion/proof";
import type { Held, Mechanism, Report } from "./mechanisms/mechanism";
import { mechanismOf } from "./mechanisms/registry";
import { drawBytes, shuffle, type Uniform } from "./random";
import { SUBMISSION_ID_BYTES, type Task } from "./task/task";

/** The bytes to send, and what the device needs later to check that they were counted. */
export interface Prepared {
  readonly envelope: Bytes;
  /** Of the reports as sent: of layers, if there are two shufflers. */
  readonly leaves: readonly Bytes[];
  readonly mostLeaves: number;
}

/**
 * Randomize a value: the own reports, dummies and null reports, in random order.
 *
 * Draws, in order: those of the own reports, of the dummies, and of the permutation.
 */
export function drawReports(
  task: Task,
  mechanism: Mechanism,
  value: Held,
  uniform: Uniform,
): Report[] {
  const reports = mechanism.randomize(value, uniform);
  reports.push(...task.dummies.draw(mechanism, uniform));
  const length = task.lengths.find((each) => each >= reports.length);
  if (length === undefined) throw new RangeError("there are more reports than any length");
  while (reports.length < length) reports.push(new Uint8Array(mechanism.reportBytes).fill(0xff));
  return shuffle(reports, uniform);
}

/** Prepare the submission of a valid value. */
export async function prepare(
  task: Task,
  digest: Bytes,
  value: Held,
  uniform: Uniform,
): Promise<Prepared> {
  const mechanism = await mechanismOf(task);
  const { suite, analyzerKey, shuffler, relay, lengths, targetSize, viewSizes } = task;
  const inner = sealer(suite, analyzerKey, sealContext(ANALYZER, digest));
  const layer = relay && sealer(suite, relay.key, sealContext(RELAY, digest, 1));
  const sealReport = async (report: Bytes) => (layer ? layer(await inner(report)) : inner(report));
  const sealEnvelope = sealer(suite, shuffler.key, sealContext(SHUFFLER, digest));
  const sealed = await Promise.all(drawReports(task, mechanism, value, uniform).map(sealReport));
  const id = drawBytes(uniform, SUBMISSION_ID_BYTES);
  const envelope = await sealEnvelope(concat(id, ...sealed));
  const leaves = await Promise.all(sealed.map(leafOf));
  const added = viewSizes.map((size, view) => {
    const { most = 0, trials = most } = shuffler.noise[view] as { most?: number; trials?: number };
    return size * trials;
  });
  // A batch may hold some users more than its target; twice as many, and 1000 more, are believed.
  const ofUsers = (2 * targetSize + 1000) * (lengths.at(-1) ?? 0);
  const mostLeaves = added.reduce((total, ofView) => total + ofView, ofUsers);
  return { envelope, leaves, mostLeaves };
}
