import assert from "node:assert/strict";
import { test } from "node:test";
import { type Bytes, fromBase64, toBase64, utf8 } from "../src/bytes";
import { Identity } from "../src/crypto/signing";
import { ForkError } from "../src/errors";
import { NoteKey, SignedCheckpoint } from "../src/log/checkpoint";
import { DeviceLog, WitnessPolicy } from "../src/log/device_log";
import { MemoryStore } from "../src/store/store";
import { logProof } from "../src/transport/services";
import { hex, vectors } from "./vectors";

const shown = vectors("transcript-grr");
const bytes = (text: string) => fromBase64(text) as Bytes;

/** Return a device's log whose every call runs `during`, and the sizes it asks with. */
async function logOf(store: MemoryStore, during: (call: number) => Promise<unknown>) {
  const { pins, fetch, now } = shown;
  const log = await NoteKey.ofLog(Identity.fromHex(pins.analyzer));
  const witnesses = await Promise.all(pins.witnesses.map(NoteKey.parse) as Promise<NoteKey>[]);
  const sizes: bigint[] = [];
  const fetchLogged = async (_: Bytes, size: bigint) => {
    sizes.push(size);
    await during(sizes.length);
    const { task, signature } = fetch.task;
    return { task: { bytes: bytes(task), signature: bytes(signature) }, proof: logProof(fetch) };
  };
  const policy = new WitnessPolicy(log, witnesses, pins.quorum);
  return { device: new DeviceLog(fetchLogged, store, policy, () => now), sizes };
}

function evidenceOf(text: string, refused: boolean) {
  const { origin, size } = SignedCheckpoint.parse(utf8(text));
  return { checkpoint: toBase64(utf8(text)), refused, origin, size: String(size) };
}

test("a checkpoint that another call kept meanwhile must be continued too", async () => {
  const store = new MemoryStore();
  const other = evidenceOf(shown.last_checkpoint, false);
  const { device, sizes } = await logOf(store, async (call) => {
    if (call === 1) await store.put("log accepted 00", other);
  });
  await device.fetch(hex(shown.digest));
  assert.deepEqual(sizes, [0n, 3n]);
});

test("no shuffler fills the storage with evidence of forks", async () => {
  const store = new MemoryStore();
  const { last_checkpoint: fork } = shown.failing.find((twin: { why: string }) => twin.why === "a fork"); // biome-ignore format: one step
  await store.put("log accepted 00", evidenceOf(fork, false));
  const { device } = await logOf(store, async () => undefined);
  for (let at = 0; at < 64; at++) await store.put(`log refused ${at}`, evidenceOf(fork, true));
  await assert.rejects(device.fetch(hex(shown.digest)), ForkError);
  assert.equal((await device.evidence()).filter((one) => one.refused).length, 64);
});
