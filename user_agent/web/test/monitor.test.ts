import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import {
  type Bytes,
  concat,
  fromBase64,
  fromInteger,
  splitEvery,
  toBase64,
  utf8,
} from "../src/bytes";
import { SHUFFLER, sealContext } from "../src/crypto/hpke";
import { type BatchCommitment, leafOf, prefixOf } from "../src/inclusion/proof";
import { parseTask } from "../src/task/task";
import { open } from "./hpke_core";
import { FORESEEN, type Parties, signedBy, withParties } from "./parties";
import { hex } from "./vectors";

const bytes = (text: string) => fromBase64(text) as Bytes;
const NOT_YET = [400, { code: "failed_precondition", message: "not yet" }, FORESEEN] as const;

/** Return a device with an answer that arrived, which has these leaves. */
async function answered(parties: Parties, leaves: Bytes) {
  const device = await parties.device();
  const { answer } = await device.contribute(parties.digest, 1);
  await device.account.change(answer, { leaves: toBase64(leaves) });
  const inclusion = async () => (await device.account.find(parties.shown.digest))?.inclusion;
  return { device, inclusion };
}

/** Sign the transcript's commitment with changed fields, as its analyzer, or as the relay: 8. */
function committed(parties: Parties, changes: object, signer = 1) {
  const commitment = { ...parties.shown.inclusion.commitment, ...changes };
  const { taskDigest, batchId, nLeaves, bits = 0, salt, root } = commitment;
  const message = concat(
    utf8("shuffledp v1 batch commitment"),
    bytes(taskDigest),
    bytes(batchId),
    fromInteger(BigInt(nLeaves), 8),
    fromInteger(bits, 1),
    bytes(salt),
    bytes(root),
  );
  return { ...commitment, signature: signedBy(signer, message) };
}

const asked = (parties: Parties): Bytes[] =>
  parties
    .bodies("GetInclusion")
    .flatMap((body) => JSON.parse(body).prefix ?? [])
    .map(bytes);

test("of many reports 64 are drawn, once, before any prefix is sent", () =>
  withParties("grr", async (parties) => {
    const all = Array.from({ length: 300 }, (_, n) => createHash("sha256").update(`${n}`).digest());
    const { device, inclusion } = await answered(parties, concat(...all));
    const kept = async () => (await device.account.find(parties.shown.digest))?.leaves ?? "";
    const before: string[] = [];
    parties.reply("GetInclusion", ({ prefix }) =>
      prefix ? NOT_YET : [200, parties.shown.inclusion],
    );
    for (let round = 0; round < 3; round++) {
      await device.monitor.checkDue();
      before.push(await kept());
    }
    assert.equal(await inclusion(), "unchecked");
    const drawn = splitEvery(bytes(before[0] ?? ""), 32).map(toBase64);
    assert.equal(new Set(drawn).size, 64);
    assert.ok(drawn.every((one) => all.some((leaf) => toBase64(leaf) === one)));
    assert.equal(new Set(before).size, 1);
  }));

test("no prefix is sent for a commitment that does not verify", () =>
  withParties("grr", async (parties) => {
    const { inclusion: whole, answers } = parties.shown;
    const { device, inclusion } = await answered(parties, hex(answers[0].leaves[0]));
    const root = toBase64(new Uint8Array(32));
    const commitment = { ...whole.commitment, root };
    parties.reply("GetInclusion", () => [200, { ...whole, commitment }]);
    await device.monitor.checkDue();
    await device.monitor.checkDue();
    assert.ok(parties.bodies("GetInclusion").length > 0);
    assert.deepEqual(asked(parties), []);
    assert.equal(await inclusion(), "unchecked");
  }));

for (const [name, most, signer] of [
  ["grr", 20_001_000, 1],
  ["chain-sageo", 20_001_450, 8],
] as const) {
  test(`no prefix is sent for a tree so large that it would name the leaf: ${name}`, () =>
    withParties(name, async (parties) => {
      const { inclusion: whole } = parties.shown;
      const device = await parties.device();
      await device.contribute(parties.digest, 1);
      for (const [leaves, bits, calls] of [
        [2 ** 40, 32, 0],
        [most + 1, 16, 0],
        [most, 16, 1],
      ] as const) {
        const commitment = committed(parties, { nLeaves: leaves, bits }, signer);
        parties.reply("GetInclusion", ({ prefix }) => [
          200,
          prefix ? {} : { ...whole, commitment },
        ]);
        await device.monitor.checkDue(true);
        assert.equal(asked(parties).length, calls);
      }
    }));
}

test("with two shufflers, what follows a submission depends on its envelope alone", async () => {
  for (const item of [0, 2]) {
    await withParties("chain-sageo", async (parties) => {
      const { inclusion: whole, private_keys: keys, task } = parties.shown;
      const device = await parties.device();
      const commitment = committed(parties, { nLeaves: 8192, bits: 5 }, 8);
      parties.reply("GetInclusion", ({ prefix }) =>
        prefix ? NOT_YET : [200, { ...whole, commitment }],
      );
      await device.contribute(parties.digest, item);
      await device.monitor.checkDue(true);
      const { requests } = parties.shuffler;
      const at = requests.findIndex(({ method }) => method.endsWith("/Submit"));
      const { envelope, taskDigest } = JSON.parse(requests[at]?.body ?? "");
      const info = sealContext(SHUFFLER, parties.digest);
      const plain = await open(
        parseTask(utf8(task)).suite,
        hex(keys.shuffler),
        info,
        bytes(envelope),
      );
      const known = { bits: 5, salt: bytes(commitment.salt) } as BatchCommitment;
      const bucket = fromInteger(await prefixOf(known, await leafOf(plain.slice(16))), 4);
      assert.deepEqual(
        requests.slice(at + 1).map(({ method, body }) => [method.split("/")[2], JSON.parse(body)]),
        [["GetInclusion", { taskDigest }], ["GetInclusion", { taskDigest, prefix: toBase64(bucket) }]], // biome-ignore format: two calls
      );
    });
  }
});

test("a second commitment to one batch proves nothing, even if it is signed", () =>
  withParties("grr", async (parties) => {
    const { inclusion: whole, answers } = parties.shown;
    const { device, inclusion } = await answered(parties, hex(answers[0].leaves[0]));
    assert.deepEqual(committed(parties, {}), whole.commitment);
    const commitment = committed(parties, { batchId: toBase64(new Uint8Array(16).fill(1)) });
    parties.reply("GetInclusion", ({ prefix }) => [
      200,
      prefix ? { ...whole, commitment } : { ...whole, bucket: "" },
    ]);
    await device.monitor.checkDue();
    assert.equal(asked(parties).length, 1);
    assert.equal(await inclusion(), "unchecked");
  }));

test("an open device asks again after pauses that double up to the longest", () =>
  withParties("grr", async (parties) => {
    let seconds = 0;
    const device = await parties.device({ checkSeconds: 1000, elapsed: () => seconds });
    await device.contribute(parties.digest, 1);
    parties.reply("GetInclusion", () => NOT_YET);
    const times: number[] = [];
    const calls = () => parties.bodies("GetInclusion").length;
    for (; seconds < 7200; seconds += 5) {
      await device.monitor.checkDue();
      if (calls() > times.length) times.push(seconds);
    }
    assert.ok(times.length >= 9 && (times[0] ?? 99) <= 35, String(times));
    for (const [at, time] of times.slice(0, -1).entries()) {
      const pause = Math.min(1000, 60 * 2 ** at);
      const gap = (times[at + 1] ?? 0) - time;
      assert.ok(gap >= pause / 2 && gap <= 1.5 * pause + 5, `${gap} after ${time}`);
    }
    await device.monitor.checkDue(true);
    assert.equal(calls(), times.length + 1);
    seconds += 45;
    await device.monitor.checkDue();
    assert.equal(calls(), times.length + 2);
  }));
