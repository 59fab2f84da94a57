/**
 * Play many people, each with a device, who answer all tasks of a plan, until all answers arrived.
 *
 * The argument is a file with the plan. Prints, for each task, how many answers arrived and how
 * often each report was sent, and how many calls failed and were repeated.
 */

import { readFileSync } from "node:fs";
import { toHex } from "../src/bytes";
import { drawReports } from "../src/contribution";
import { Identity } from "../src/crypto/signing";
import { PendingToken } from "../src/crypto/tokens";
import { Device, type DeviceSettings } from "../src/device";
import { PeerError, WitnessQuorumError } from "../src/errors";
import { NoteKey } from "../src/log/checkpoint";
import { WitnessPolicy } from "../src/log/device_log";
import type { Mechanism } from "../src/mechanisms/mechanism";
import { mechanismOf } from "../src/mechanisms/registry";
import { drawBytes } from "../src/random";
import { MemoryStore } from "../src/store/store";
import { SUBMISSION_ID_BYTES, type Task } from "../src/task/task";
import { heldOf, type Value } from "../src/values";
import { HashedDraws } from "./hashed_draws";
import { hex } from "./vectors";

interface Plan {
  readonly shuffler: string;
  readonly issuer: string;
  readonly analyzerIdentity: string;
  readonly shufflerIdentity: string;
  readonly relayIdentity?: string;
  readonly issuerIdentity: string;
  /** All are trusted to check claims. */
  readonly witnesses: readonly string[];
  readonly quorum: number;
  /** Person n answers with the value n of the list, which is repeated. */
  readonly tasks: readonly { readonly digest: string; readonly values: readonly Value[] }[];
  readonly credentials: readonly string[];
  readonly atOnce: number;
  readonly seed: number;
  readonly patienceSeconds: number;
}

interface Asked {
  readonly digest: string;
  readonly values: readonly Value[];
  readonly task: Task;
  readonly mechanism: Mechanism;
  readonly sent: Record<string, number>;
  arrived: number;
}

const plan: Plan = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8"));
const PAUSE_MILLISECONDS = 200;
let repeats = 0;

/** Repeat while a party is away. */
async function persistently<T>(work: () => Promise<T>): Promise<T> {
  const end = Date.now() + 1000 * plan.patienceSeconds;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isPassing = error instanceof PeerError || error instanceof WitnessQuorumError;
      if (!isPassing || Date.now() > end) throw error;
      repeats += 1;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLISECONDS));
    }
  }
}

async function sharedSettings(): Promise<Omit<DeviceSettings, "store">> {
  const analyzer = Identity.fromHex(plan.analyzerIdentity);
  const witnesses = await Promise.all(plan.witnesses.map((text) => NoteKey.parse(text)));
  return {
    policy: {
      analyzer,
      shuffler: Identity.fromHex(plan.shufflerIdentity),
      relay: plan.relayIdentity ? Identity.fromHex(plan.relayIdentity) : null,
      issuer: Identity.fromHex(plan.issuerIdentity),
      allowTasksWithoutTokens: false,
      localEpsilonCap: Number.POSITIVE_INFINITY,
      totalLocalEpsilonCap: Number.POSITIVE_INFINITY,
      coalitionEpsilonCap: Number.POSITIVE_INFINITY,
      totalCoalitionEpsilonCap: Number.POSITIVE_INFINITY,
      totalCentralEpsilonCap: 100,
      totalDeltaCap: 1e-4,
      checkingQuorum: plan.quorum,
    },
    log: new WitnessPolicy(await NoteKey.ofLog(analyzer), witnesses, plan.quorum),
    checkingWitnesses: witnesses,
    shufflerUrl: plan.shuffler,
    issuerUrl: plan.issuer,
  };
}

const shared = await sharedSettings();
const reader = new Device({ ...shared, store: new MemoryStore() });
const asked: Asked[] = [];
for (const { digest, values } of plan.tasks) {
  const { task } = await persistently(() => reader.read(hex(digest)));
  asked.push({ digest, values, task, mechanism: await mechanismOf(task), sent: {}, arrived: 0 });
}

/** Answer all tasks as one person; then draw again what the device drew. */
async function answerAll(person: number): Promise<void> {
  const seed = `${plan.seed} ${person}`;
  const again = new HashedDraws(seed);
  const device = new Device({
    ...shared,
    store: new MemoryStore(),
    credential: hex(plan.credentials[person] ?? ""),
    uniform: new HashedDraws(seed),
  });
  for (const one of asked) {
    const { digest, values, task, mechanism, sent } = one;
    const value = values[person % values.length] ?? 0;
    const { answer } = await persistently(() => device.contribute(hex(digest), value));
    one.arrived += Number(answer.state === "arrived");
    if (task.tokens) PendingToken.draw(task.tokens.key, again);
    for (const report of drawReports(task, mechanism, heldOf(task, value), again).map(toHex)) {
      sent[report] = (sent[report] ?? 0) + 1;
    }
    drawBytes(again, SUBMISSION_ID_BYTES);
  }
}

let next = 0;
async function workThrough(): Promise<void> {
  while (next < plan.credentials.length) {
    next += 1;
    await answerAll(next - 1);
  }
}
await Promise.all(Array.from({ length: plan.atOnce }, workThrough));
const tasks = asked.map(({ digest, arrived, sent }) => ({ digest, arrived, sent }));
process.stdout.write(JSON.stringify({ tasks, repeats }));
