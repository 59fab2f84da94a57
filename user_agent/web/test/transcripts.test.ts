import assert from "node:assert/strict";
import { test } from "node:test";
import { type Bytes, concat, knownBase64, toHex, utf8 } from "../src/bytes";
import { drawReports, prepare } from "../src/contribution";
import { ANALYZER, RELAY, SHUFFLER, sealContext, sealer } from "../src/crypto/hpke";
import { Identity, isValidReceipt, verifyTask } from "../src/crypto/signing";
import { PendingToken, tokenChallenge } from "../src/crypto/tokens";
import { PeerError, PolicyError, ShuffleDpError, WireError } from "../src/errors";
import { includes, leafOf, verifyCommitment } from "../src/inclusion/proof";
import { NoteKey, SignedCheckpoint } from "../src/log/checkpoint";
import { DeviceLog, WitnessPolicy } from "../src/log/device_log";
import { keepsPromise, mechanismOf } from "../src/mechanisms/registry";
import { checkTask } from "../src/policy";
import type { Uniform } from "../src/random";
import { MemoryStore } from "../src/store/store";
import { edges as edgesOf } from "../src/task/domain";
import { PROTOCOLS } from "../src/task/protocols";
import { parseTask } from "../src/task/task";
import { inclusionProof, logProof } from "../src/transport/services";
import { heldOf } from "../src/values";
import { open, pairOf } from "./hpke_core";
import { hex, isTested, vectorNames, vectors } from "./vectors";

// biome-ignore lint/suspicious/noExplicitAny: a file of the vectors
type Transcript = any;

/** Repeats recorded draws; another bound than the recorded one is an error. */
class RepeatedDraws implements Uniform {
  private at = 0;

  constructor(readonly record: readonly (readonly [string, string])[]) {}

  below(n: bigint): bigint {
    const [bound, value] = this.record[this.at] ?? ["nothing", "0"];
    assert.equal(bound, String(n), `the bound of draw ${this.at}`);
    this.at += 1;
    return BigInt(value);
  }

  get isUsed(): boolean {
    return this.at === this.record.length;
  }
}

function signed(shown: Transcript) {
  const bytes = (text: string): Bytes => knownBase64(text);
  const { task, signature } = shown.fetch.task;
  return { bytes: bytes(task), signature: bytes(signature) };
}

async function verified(shown: Transcript): Promise<unknown> {
  const pin = (name: string) => Identity.fromHex(shown.pins[name]);
  await verifyTask(signed(shown), hex(shown.digest), pin("analyzer"));
  const task = parseTask(signed(shown).bytes);
  const policy = {
    analyzer: pin("analyzer"),
    shuffler: pin("shuffler"),
    relay: shown.pins.relay && pin("relay"),
    shufflerName: shown.pins.shuffler_name,
    relayName: shown.pins.relay_name,
    issuer: shown.pins.issuer && pin("issuer"),
    allowTasksWithoutTokens: shown.policy.allow_tasks_without_tokens,
    localEpsilonCap: Number(String(shown.policy.local_epsilon_cap).replace("inf", "Infinity")),
    totalLocalEpsilonCap: Number.POSITIVE_INFINITY,
    coalitionEpsilonCap: Number.POSITIVE_INFINITY,
    totalCoalitionEpsilonCap: Number.POSITIVE_INFINITY,
    totalCentralEpsilonCap: 20,
    totalDeltaCap: 1e-4,
    checkingQuorum: shown.checked_by_witnesses ? 2 : 0,
  };
  await checkTask(task, policy, shown.now, shown.checked_by_witnesses ? 2 : 0);
  return task;
}

async function logged(shown: Transcript): Promise<unknown> {
  const log = await NoteKey.ofLog(Identity.fromHex(shown.pins.analyzer));
  const witnesses = await Promise.all(shown.pins.witnesses.map(NoteKey.parse));
  const policy = new WitnessPolicy(log, witnesses, shown.pins.quorum);
  const store = new MemoryStore();
  const last = SignedCheckpoint.parse(utf8(shown.last_checkpoint));
  await store.put("log accepted 00", {
    checkpoint: Buffer.from(shown.last_checkpoint).toString("base64"),
    refused: false,
    origin: last.origin,
    size: String(last.size),
  });
  const fetchLogged = async (_: Bytes, size: bigint) => {
    assert.equal(size, last.size);
    return { task: signed(shown), proof: logProof(shown.fetch) };
  };
  const device = new DeviceLog(fetchLogged, store, policy, () => shown.now);
  const isFork = shown.error === "ForkError";
  try {
    await device.fetch(hex(shown.digest));
  } finally {
    const kept = (await device.evidence()).filter((one) => one.refused);
    assert.equal(kept.length, Number(isFork), "evidence of a fork is kept");
  }
  return undefined;
}

async function received(shown: Transcript): Promise<void> {
  const [{ envelope, receipt }] = shown.answers;
  const shuffler = Identity.fromHex(shown.pins.shuffler);
  const given = hex(shown.receipt ?? receipt);
  const isValid = await isValidReceipt(shuffler, hex(shown.digest), hex(envelope), given);
  if (!isValid) throw new PeerError("receipt");
}

async function included(shown: Transcript): Promise<string | undefined> {
  const signer = Identity.fromHex(shown.pins.relay ?? shown.pins.analyzer);
  const proof = inclusionProof(shown.inclusion);
  await verifyCommitment(proof.commitment, signer, hex(shown.digest));
  return (await includes(proof, hex(shown.leaf))) ? undefined : "absent";
}

async function token(shown: Transcript): Promise<void> {
  const { tokens } = parseTask(utf8(shown.task));
  assert.ok(tokens);
  const { draws, challenge, blinded, blind_signature: signature, token } = shown.token;
  const asked = tokenChallenge(hex(shown.digest), tokens.issuer);
  assert.equal(toHex(asked), challenge);
  const secrets = PendingToken.draw(tokens.key, new RepeatedDraws(draws));
  const pending = new PendingToken(tokens.key, asked, secrets);
  assert.equal(toHex(await pending.blinded()), blinded);
  assert.equal(toHex(await pending.finalize(hex(signature))), token);
}

/** Open a report as the relay does, and then as the analyzer. */
async function layered(shown: Transcript): Promise<void> {
  const { suite } = parseTask(utf8(shown.task));
  const digest = hex(shown.digest);
  const { relay, analyzer } = shown.private_keys;
  const inner = await open(
    suite,
    hex(relay),
    sealContext(RELAY, digest, 1),
    hex(shown.layer),
  ).catch((cause) => Promise.reject(new WireError("key_seals_nothing", {}, { cause })));
  const report = await open(suite, hex(analyzer), sealContext(ANALYZER, digest), inner);
  assert.equal(toHex(report), shown.answers[0].reports[0]);
}

const STEPS: Record<string, (shown: Transcript) => unknown> = {
  task: verified,
  log: logged,
  value: (shown) => void heldOf(parseTask(utf8(shown.task)), shown.value),
  seal: async (shown) => {
    const [{ value, draws }] = shown.answers;
    const task = parseTask(utf8(shown.task));
    await prepare(task, hex(shown.digest), heldOf(task, value), new RepeatedDraws(draws));
  },
  receipt: received,
  inclusion: included,
  token,
  layer: layered,
};

const isAnswered = (name: string) => PROTOCOLS.has(JSON.parse(vectors(name).task).protocol);
const [answered, others] = [true, false].map((wanted) =>
  [...vectorNames("transcript-"), ...vectorNames("chain-")].filter(
    (name) => isAnswered(name) === wanted,
  ),
) as [string[], string[]];

test("other protocols are refused by name", async () => {
  assert.equal(answered.length, 25);
  for (const name of others) {
    const { protocol } = JSON.parse(vectors(name).task);
    await assert.rejects(verified(vectors(name)), (error) => {
      return error instanceof PolicyError && error.message.includes(protocol);
    });
  }
});

for (const name of answered) {
  const shown = vectors(name);

  test(`${name} is verified step by step`, async () => {
    await verified(shown);
    await logged(shown);
    await received(shown);
    assert.equal(await included(shown), undefined);
    if (shown.token) await token(shown);
    if (shown.layer) await layered(shown);
  });

  test(`${name}: the same draws give the same reports, and the same envelope`, async () => {
    const task = parseTask(utf8(shown.task));
    const mechanism = await mechanismOf(task);
    const digest = hex(shown.digest);
    for (const answer of shown.answers) {
      const id = [String(1n << 128n), String(BigInt(`0x${answer.submission_id}`))] as const;
      assert.deepEqual(answer.draws.at(-1), id);
      const uniform = new RepeatedDraws(answer.draws.slice(0, -1));
      const held = heldOf(task, answer.value);
      const reports = drawReports(task, mechanism, held, uniform);
      assert.deepEqual(reports.map(toHex), answer.reports);
      assert.ok(uniform.isUsed);

      const keys: Bytes[] = answer.ephemeral_keys.map(hex);
      const seal = (key: Bytes, info: Bytes, plaintext: Bytes) => {
        const next = keys.shift() ?? new Uint8Array();
        return sealer(task.suite, key, info, () => pairOf(next))(plaintext);
      };
      const together = (key: Bytes, info: Bytes, all: Bytes[]) =>
        Promise.all(all.map((one) => seal(key, info, one)));
      let sealed = await together(task.analyzerKey, sealContext(ANALYZER, digest), reports);
      if (task.relay)
        sealed = await together(task.relay.key, sealContext(RELAY, digest, 1), sealed);
      const plaintext = concat(hex(answer.submission_id), ...sealed);
      const envelope = await seal(task.shuffler.key, sealContext(SHUFFLER, digest), plaintext);
      assert.equal(keys.length, 0);
      assert.equal(toHex(envelope), answer.envelope);
      assert.deepEqual((await Promise.all(sealed.map(leafOf))).map(toHex), answer.leaves);
    }
  });

  for (const twin of shown.failing) {
    test(`${name} fails with ${twin.why}`, async () => {
      let found: unknown;
      try {
        found = await STEPS[twin.step]?.({ ...shown, ...twin });
      } catch (error) {
        if (!(error instanceof ShuffleDpError)) throw error;
        assert.doesNotMatch(error.message, /undefined|\{/);
        found = error.name;
      }
      assert.equal(found, twin.error);
    });
  }
}

test("what the Python device accepts of changed tasks, and no more, is accepted", async () => {
  for (const change of vectors("transcript_changes").filter(isTested)) {
    const { of, start, end, new: text, accepted, keeps } = change;
    const { task: whole } = vectors(of);
    const changed = whole.slice(0, start) + text + whole.slice(end);
    try {
      const task = parseTask(utf8(changed));
      const { factors } = await mechanismOf(task);
      assert.deepEqual(
        [accepted, keepsPromise(task.mechanism, factors, task.localEpsilon)],
        [true, keeps],
      );
    } catch (error) {
      const isKnown = error instanceof ShuffleDpError && error.key !== "unsupported";
      if (!(error instanceof ShuffleDpError) || (isKnown && accepted)) throw error;
    }
  }
});

test("changed notes are read as in Python", async () => {
  const { pins, fetch } = vectors("transcript-grr");
  const whole = Buffer.from(fetch.logProof.checkpoint, "base64").toString("latin1");
  const log = await NoteKey.ofLog(Identity.fromHex(pins.analyzer));
  const keys: NoteKey[] = [log, ...(await Promise.all<NoteKey>(pins.witnesses.map(NoteKey.parse)))];
  for (const { start, end, new: text, times } of vectors("transcript_notes")) {
    const note = Buffer.from(whole.slice(0, start) + text + whole.slice(end), "latin1");
    let signed: SignedCheckpoint | null = null;
    try {
      signed = SignedCheckpoint.parse(new Uint8Array(note));
    } catch (error) {
      assert.ok(error instanceof WireError);
    }
    const time = async (key: NoteKey) =>
      signed?.signedAt(key).then(
        (seconds) => String(seconds).replace("null", "None"),
        (error: Error) => error.name,
      );
    assert.deepEqual(signed && (await Promise.all(keys.map(time))), times);
  }
});

test("odd keys and signatures of Ed25519 are refused", async () => {
  for (const { why, key, label, message, signature, valid } of vectors("transcript_signatures")) {
    const found = async () => Identity.of(hex(key)).signed(label, hex(message), hex(signature));
    if (why.startsWith("a key of small order")) await assert.rejects(found, WireError, why);
    else assert.equal(await found(), valid, why);
  }
});

test("edges of buckets are the same as in Python", () => {
  for (const { low, high, buckets, spacing, edges } of vectors("transcript_edges")) {
    const table = new Map<string, number | bigint | string>([
      ["high", high],
      ["buckets", BigInt(buckets)],
    ]);
    if (low !== 0) table.set("low", low);
    if (spacing !== "equal") table.set("spacing", spacing);
    assert.deepEqual(edgesOf(table, "edges").edges, edges);
  }
});
