/**
 * Print a hash of the reports of many answers to each transcript's task, and their counts in cells.
 *
 * Arguments: the number of answers to each task, and the seed of the draws.
 */

import { createHash } from "node:crypto";
import { drawReports } from "../src/contribution";
import { PolicyError } from "../src/errors";
import { mechanismOf } from "../src/mechanisms/registry";
import { parseTask, type Task } from "../src/task/task";
import { heldOf } from "../src/values";
import { HashedDraws, hashOf } from "./hashed_draws";
import { vectorNames, vectors } from "./vectors";

const CELLS = 64;
const [answers = "", seed = ""] = process.argv.slice(2);

/** Parse a task; null if this device does not answer tasks of its kind. */
function supported(text: string): Task | null {
  try {
    return parseTask(Buffer.from(text));
  } catch (error) {
    if (error instanceof PolicyError) return null;
    throw error;
  }
}

const found: Record<string, { hash: string; counts: number[] }> = {};
for (const name of vectorNames("transcript-")) {
  const shown = vectors(name);
  const task = supported(shown.task);
  if (task === null) continue;
  const mechanism = await mechanismOf(task);
  const values = shown.answers.map((answer: { value: number | string }) => answer.value);
  const uniform = new HashedDraws(seed);
  const all = createHash("sha256");
  const counts = new Array<number>(CELLS).fill(0);
  for (let at = 0; at < Number(answers); at++) {
    const item = heldOf(task, values[at % values.length]);
    const hash = hashOf(...drawReports(task, mechanism, item, uniform));
    all.update(hash);
    const cell = (hash[0] ?? 0) % CELLS;
    counts[cell] = (counts[cell] ?? 0) + 1;
  }
  found[name] = { hash: all.digest("hex"), counts };
}
process.stdout.write(JSON.stringify(found));
