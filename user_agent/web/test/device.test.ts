import assert from "node:assert/strict";
import { createPrivateKey, privateDecrypt } from "node:crypto";
import { describe, test } from "node:test";
import {
  type Bytes,
  concat,
  fromBase64,
  knownBase64,
  splitEvery,
  toBase64,
  toHex,
  utf8,
} from "../src/bytes";
import { sha256 } from "../src/crypto/hashes";
import { ANALYZER, RELAY, SHUFFLER, sealContext } from "../src/crypto/hpke";
import { Identity } from "../src/crypto/signing";
import { Device } from "../src/device";
import { SettingsError, type ShuffleDpError } from "../src/errors";
import { leafOf } from "../src/inclusion/proof";
import { MemoryStore, type Records, type Store } from "../src/store/store";
import { parseTask } from "../src/task/task";
import { HashedDraws } from "./hashed_draws";
import { open } from "./hpke_core";
import { FORESEEN, type Parties, withParties } from "./parties";
import { hex, vectors } from "./vectors";

const failsWith = (name: string) => (error: unknown) => (error as ShuffleDpError).name === name;

/** An identity that is nobody's pin. */
const STRANGER = Identity.fromHex(
  "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
);

/** Sign blinded messages with the token key of the transcripts. */
function signTokens(parties: Parties): void {
  const der = Buffer.from(vectors("privacy_tokens")[0].private_key, "hex");
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  parties.reply("IssueToken", ({ blinded }) => {
    const message = Buffer.from(blinded, "base64");
    const signature = privateDecrypt({ key, padding: 3 }, message); // without padding
    return [200, { blindSignature: signature.toString("base64") }];
  });
}

async function opened(parties: Parties, envelope: string): Promise<string[]> {
  const { private_keys: keys, task: text } = parties.shown;
  const task = parseTask(Buffer.from(text));
  const opening = (key: string, recipient: number, sealed: Bytes) =>
    open(task.suite, hex(key), sealContext(recipient, parties.digest), sealed);
  const outer = knownBase64(envelope);
  const plaintext = await opening(keys.shuffler, SHUFFLER, outer);
  const size = task.mechanism.reportBytes + 48 * task.shufflers.length;
  const inside = async (layer: Bytes) => {
    if (!task.relay) return layer;
    return open(task.suite, hex(keys.relay), sealContext(RELAY, parties.digest, 1), layer);
  };
  const sealed = await Promise.all(splitEvery(plaintext.slice(16), size).map(inside));
  return Promise.all(sealed.map(async (one) => toHex(await opening(keys.analyzer, ANALYZER, one))));
}

/** A view of a store without one answer, as another task would see it. */
function without(store: MemoryStore, digest: string): Store {
  const records: Records = {
    get: async (key) => (key.endsWith(digest) ? undefined : store.get(key)),
    all: async (prefix) => (await store.all(prefix)).filter((one) => one !== null),
    put: (key, value) => store.put(key, value),
    remove: (key) => store.remove(key),
  };
  return { locked: (work) => store.locked(() => work(records)) };
}

// At once, since some wait for repeated calls.
describe("a device", { concurrency: 24 }, () => {
  test("an answer with a token is sent, acknowledged and charged", () =>
    withParties("mixdump", async (parties) => {
      signTokens(parties);
      const device = await parties.device();
      const { isRepeated, isSent, answer } = await device.contribute(parties.digest, "bike");
      assert.deepEqual([isRepeated, isSent, answer.state], [false, true, "arrived"]);
      const task = parseTask(Buffer.from(parties.shown.task));
      const { localEpsilon, centralEpsilon, coalitionEpsilon, delta } = task;
      const figures = { localEpsilon, centralEpsilon, coalitionEpsilon, delta };
      assert.deepEqual(answer.claim, { ...figures, isChained: false });
      const [body = ""] = parties.bodies("Submit");
      const { envelope, token } = JSON.parse(body);
      assert.equal(fromBase64(token)?.length, 354);
      assert.ok(task.lengths.includes((await opened(parties, envelope)).length));
      assert.equal(answer.token + answer.pendingToken, "");
      const again = await device.contribute(parties.digest, "car");
      assert.deepEqual([again.isRepeated, again.isSent], [true, false]);
      assert.equal(parties.bodies("Submit").length, 1);
    }));

  test("the size of the last checkpoint is sent, and evidence is kept", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      await device.read(parties.digest);
      await device.read(parties.digest);
      const sizes = parties.bodies("FetchTask").map((body) => JSON.parse(body).logSize);
      assert.deepEqual(sizes, ["0", "7"]);
      const [evidence, ...others] = await device.log.evidence();
      assert.deepEqual([evidence?.index, evidence?.refused, others.length], ["4", false, 0]);
    }));

  test("an answer is saved before it is sent, and the same bytes are sent again", () =>
    withParties("grr", async (parties) => {
      const store = new MemoryStore();
      const device = await parties.device({ store });
      parties.reply("Submit", () => null);
      await assert.rejects(device.contribute(parties.digest, 1), failsWith("PeerError"));
      const [saved] = await device.account.answers();
      assert.equal(saved?.state, "pending");
      const answer = parties.reply.bind(parties, "Submit");
      answer(({ taskDigest, envelope }) => [
        200,
        { receipt: parties.receipt(taskDigest, envelope) },
      ]);
      const later = await parties.device({ store });
      assert.deepEqual(await later.resendPending(), []);
      assert.equal((await later.account.find(parties.shown.digest))?.state, "arrived");
      assert.equal(new Set(parties.bodies("Submit")).size, 1);
      assert.equal(parties.bodies("Submit").length, 4);
    }));

  test("an answer keeps its own credential when it is sent again", () =>
    withParties("mixdump", async (parties) => {
      const store = new MemoryStore();
      const first = await parties.device({ store, credential: utf8("person 3") });
      parties.reply("IssueToken", () => null);
      await assert.rejects(first.contribute(parties.digest, "bike"), failsWith("PeerError"));
      signTokens(parties);
      const other = await parties.device({ store, credential: utf8("person 4") });
      const { isRepeated, isSent, answer } = await other.contribute(parties.digest, "car");
      assert.deepEqual([isRepeated, isSent, answer.credential], [true, true, ""]);
      assert.equal(answer.credentialHash, toHex(await sha256(utf8("person 3"))));
      const asked = parties.bodies("IssueToken").map((body) => JSON.parse(body).credential);
      assert.deepEqual([...new Set(asked)], [toBase64(utf8("person 3"))]);
    }));

  test("only a task that this device has checked is answered without a connection", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const checked = await device.read(parties.digest);
      const other = await (await parties.device()).read(parties.digest);
      parties.reply("FetchTask", () => [404, ""]);
      const foreign = { ...checked, task: parseTask(Buffer.from(parties.shown.task)) };
      for (const [digest, shown] of [
        [parties.digest, foreign],
        [parties.digest, other],
        [new Uint8Array(32), checked],
      ] as const) {
        await assert.rejects(device.contribute(digest, 1, shown), failsWith("ForeignReplyError"));
      }
      assert.ok((await device.contribute(parties.digest, 1, checked)).isSent);
    }));

  test("a false receipt leaves the answer pending", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      parties.reply("Submit", () => [200, { receipt: toBase64(new Uint8Array(64)) }]);
      await assert.rejects(device.contribute(parties.digest, 1), failsWith("PeerError"));
      assert.equal((await device.account.find(parties.shown.digest))?.state, "pending");
    }));

  for (const [status, body, headers, name, state] of [
    [
      400,
      { code: "failed_precondition", message: "closed" },
      FORESEEN,
      "PeerRefusalError",
      "refused",
    ],
    [401, { code: "unauthenticated", message: "token" }, FORESEEN, "PeerRefusalError", "pending"],
    [429, { code: "resource_exhausted", message: "later" }, {}, "PeerBusyError", "pending"],
    [503, { code: "unavailable", message: "disk is full" }, FORESEEN, "PeerUnableError", "pending"],
    [404, "<html>no such page</html>", {}, "ForeignReplyError", "pending"],
    [502, "<html>bad gateway</html>", {}, "PeerError", "pending"],
    [200, "[1]", {}, "PeerError", "pending"],
  ] as const) {
    test(`a reply of status ${status} is ${name}, and the answer is ${state}`, () =>
      withParties("grr", async (parties) => {
        const device = await parties.device();
        parties.reply("Submit", () => [status, body, headers]);
        await assert.rejects(device.contribute(parties.digest, 1), failsWith(name));
        assert.equal((await device.account.find(parties.shown.digest))?.state, state);
        assert.equal((await device.account.answers()).length, 1);
        if (state !== "refused") return;
        await assert.rejects(device.contribute(parties.digest, 1), failsWith("PolicyError"));
        assert.equal(parties.bodies("Submit").length, 1);
      }));
  }

  for (const [code, key, state] of [
    ["already_exists", "answered_elsewhere", "refused"],
    ["unauthenticated", "unaccepted_credential", undefined],
    ["failed_precondition", "peer_refused", "refused"],
    ["resource_exhausted", "peer_refused", "pending"],
  ] as const) {
    test(`an answer whose token the issuer refuses as ${code} is ${state ?? "withdrawn"}`, () =>
      withParties("mixdump", async (parties) => {
        const device = await parties.device();
        parties.reply("IssueToken", () => [400, { code, message: "no" }, FORESEEN]);
        const isNamed = (error: ShuffleDpError) => error.key === key && error.reason === "no";
        await assert.rejects(device.contribute(parties.digest, "bike"), isNamed);
        assert.equal((await device.account.find(parties.shown.digest))?.state, state);
        assert.equal((await device.resendPending()).length, Number(state === "pending"));
      }));
  }

  test("an answer whose credential the issuer refuses costs nothing, and the right one answers", () =>
    withParties("mixdump", async (parties) => {
      const store = new MemoryStore();
      const cut = await parties.device({ store, credential: utf8("person") });
      parties.reply("IssueToken", () => [401, { code: "unauthenticated", message: "" }, FORESEEN]);
      await assert.rejects(cut.contribute(parties.digest, "bike"), failsWith("PeerRefusalError"));
      assert.deepEqual([await cut.account.answers(), parties.bodies("Submit")], [[], []]);
      signTokens(parties);
      const whole = await parties.device({ store, credential: utf8("person 3") });
      const { isRepeated, isSent } = await whole.contribute(parties.digest, "car");
      assert.deepEqual([isRepeated, isSent], [false, true]);
      assert.equal(parties.bodies("Submit").length, 1);
    }));

  test("the request for a token, which is sent before, is the same whatever the answer", () =>
    withParties("mixdump", async (parties) => {
      parties.reply("IssueToken", () => [401, { code: "unauthenticated", message: "" }, FORESEEN]);
      for (const value of ["bike", "car"]) {
        const device = await parties.device({ uniform: new HashedDraws("one") });
        await assert.rejects(device.contribute(parties.digest, value));
      }
      const bodies = parties.bodies("IssueToken");
      assert.deepEqual([bodies.length, new Set(bodies).size], [2, 1]);
    }));

  test("a party whose certificate may be at fault is named with its address", () =>
    withParties("grr", async (parties) => {
      parties.reply("FetchTask", () => null);
      const isAway = (error: ShuffleDpError) => error.key === "peer_away";
      await assert.rejects((await parties.device()).read(parties.digest), isAway);
      const shufflerUrl = parties.shuffler.url.replace("http:", "https:");
      const device = await parties.device({ shufflerUrl });
      await assert.rejects(device.read(parties.digest), (error: ShuffleDpError) => {
        assert.equal(error.name, "PeerError");
        assert.ok(
          error.message.includes(`the shuffler does not answer at ${new URL(shufflerUrl).host}`),
        );
        return true;
      });
    }));

  test("a refusal's reason is no part of the sentence, and cannot turn a line around", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const message = `Call +1\u202e\n${"x".repeat(500)}`;
      for (const [code, status] of [
        ["call_us_now", "UNKNOWN"],
        ["constructor", "UNKNOWN"],
        ["out_of_range", "OUT_OF_RANGE"],
      ]) {
        parties.reply("FetchTask", () => [400, { code, message }, FORESEEN]);
        await assert.rejects(device.read(parties.digest), (error: ShuffleDpError) => {
          assert.equal(error.message, `the shuffler refused the call (${status})`);
          assert.match(error.reason, /^Call \+1\?x{200,300}$/);
          return true;
        });
      }
    }));

  test("a refusal has the sentence of its call", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      for (const [method, key] of [
        ["GetBatchStatus", "peer_refused"],
        ["FetchTask", "unknown_task"],
      ] as const) {
        parties.reply(method, () => [404, { code: "not_found", message: "no" }, FORESEEN]);
        const isNamed = (error: ShuffleDpError) => error.key === key;
        await assert.rejects(device.read(parties.digest), isNamed);
      }
    }));

  test("nothing is charged if the task is refused, or the value does not fit", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      await assert.rejects(device.contribute(parties.digest, 17), failsWith("ValueRangeError"));
      parties.now += 20 * 24 * 3600;
      await assert.rejects(device.contribute(parties.digest, 1), failsWith("WitnessQuorumError"));
      assert.deepEqual(await device.account.answers(), []);
    }));

  test("a clock that is off is named, and is no fork", () =>
    withParties("grr", async (parties) => {
      parties.now += 20 * 24 * 3600;
      const date = new Date(Date.now() - 20 * 24 * 3600 * 1000).toUTCString();
      parties.reply("FetchTask", () => [200, parties.fetched("0"), { date }]);
      const device = await parties.device();
      const isNamed = (error: ShuffleDpError) => error.key === "clock_off";
      await assert.rejects(device.contribute(parties.digest, 1), isNamed);
    }));

  test("with two shufflers, what is sent and asked depends on the layers alone", () =>
    withParties("chain-sageo", async (parties) => {
      const caps = { localEpsilonCap: 4, totalLocalEpsilonCap: 20, coalitionEpsilonCap: 4 };
      const device = await parties.device({ policy: await parties.policy(caps) });
      const { answer } = await device.contribute(parties.digest, 3);
      const [submitted = ""] = parties.bodies("Submit");
      const { envelope } = JSON.parse(submitted);
      assert.deepEqual(await opened(parties, envelope), parties.shown.answers[0].reports);
      const { suite } = parseTask(Buffer.from(parties.shown.task));
      const { shuffler } = parties.shown.private_keys;
      const info = sealContext(SHUFFLER, parties.digest);
      const plaintext = await open(suite, hex(shuffler), info, knownBase64(envelope));
      assert.equal(answer.leaves, toBase64(await leafOf(plaintext.slice(16))));
      assert.deepEqual([answer.claim.coalitionEpsilon, answer.claim.isChained], [2.07967, true]);
      assert.equal(answer.mostLeaves, 20_001_000 + 5 * 90); // most_leaves of the Python device

      const [leaf] = parties.shown.answers[0].leaves;
      const find = () => device.account.find(parties.shown.digest);
      await device.account.change(answer, { leaves: toBase64(hex(leaf)) });
      await device.monitor.checkDue(true);
      assert.equal((await find())?.inclusion, "counted");
      const other = await parties.policy({ relay: STRANGER });
      for (const policy of [other, await parties.policy({ relay: null })]) {
        const store = new MemoryStore();
        await store.put(`answer ${parties.shown.digest}`, { ...answer, state: "arrived" });
        const unsure = await parties.device({ policy, store });
        await unsure.monitor.checkDue(true);
        assert.equal((await unsure.account.find(parties.shown.digest))?.inclusion, "unchecked");
      }
    }));

  test("two shufflers need a second pin, and an epsilon within its limit", () =>
    withParties("chain-sageo", async (parties) => {
      for (const [changes, key] of [
        [{ relay: null }, "no_relay"],
        [{ shufflerName: "second.example" }, "other_name"],
        [{ relayName: "first.example" }, "other_name"],
        [{ coalitionEpsilonCap: 2 }, "epsilon_cap"],
        [{ totalCoalitionEpsilonCap: 2 }, "composed_budget"],
        [{ totalCentralEpsilonCap: 1.2 }, "composed_budget"],
      ] as const) {
        const device = await parties.device({ policy: await parties.policy(changes) });
        const isNamed = (error: ShuffleDpError) => error.key === key;
        await assert.rejects(device.contribute(parties.digest, 3), isNamed);
        assert.deepEqual(await device.account.answers(), []);
      }
    }));

  test("budgets hold across tasks", () =>
    withParties("grr", async (parties) => {
      const policy = await parties.policy({ totalLocalEpsilonCap: 3 });
      const store = new MemoryStore();
      const device = await parties.device({ policy, store });
      await device.contribute(parties.digest, 1);
      await store.put("answer ff", { ...(await device.account.answers())[0], digest: "ff" });
      await store.put(`answer ${parties.shown.digest}`, null);
      const fresh = await parties.device({ policy, store: without(store, parties.shown.digest) });
      await assert.rejects(fresh.contribute(parties.digest, 1), failsWith("BudgetError"));
    }));

  test("two calls at once give one answer", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const calls = [1, 2, 3].map((value) => device.contribute(parties.digest, value));
      const outcomes = await Promise.all(calls);
      assert.equal(outcomes.filter((one) => one.isRepeated).length, 2);
      assert.equal(outcomes.filter((one) => one.isSent).length, 1);
      assert.equal(parties.bodies("Submit").length, 1);
    }));

  test("a task whose claim is not checked here needs checking witnesses", () =>
    withParties("hierarchy", async (parties) => {
      const plain = await parties.device();
      const value = "DE / 3";
      await assert.rejects(plain.contribute(parties.digest, value), failsWith("PolicyError"));
      const policy = await parties.policy({ checkingQuorum: 2 });
      const log = (await parties.device())["settings"].log;
      const checkingWitnesses = log?.witnesses.slice(0, 2) ?? [];
      const device = await parties.device({ policy, checkingWitnesses });
      assert.ok((await device.contribute(parties.digest, value)).isSent);
      const strict = await parties.policy({ checkingQuorum: 3 });
      const other = await parties.device({ policy: strict, checkingWitnesses });
      await assert.rejects(other.contribute(parties.digest, value), failsWith("PolicyError"));
    }));

  test("an answer is found counted, missing, or not yet proven", () =>
    withParties("grr", async (parties) => {
      const { answers, inclusion } = parties.shown;
      const policy = await parties.policy({ relay: STRANGER });
      const device = await parties.device({ policy });
      const { answer: arrived } = await device.contribute(parties.digest, 1);
      const changes = { leaves: toBase64(concat(...answers[0].leaves.map(hex))) };
      await device.account.change(arrived, changes);
      parties.reply("GetInclusion", () => [
        400,
        { code: "failed_precondition", message: "not yet" },
        FORESEEN,
      ]);
      await device.monitor.checkDue();
      const state = async () => (await device.account.find(parties.shown.digest))?.inclusion;
      assert.equal(await state(), "unchecked");
      parties.reply("GetInclusion", ({ prefix }) => [
        200,
        prefix ? inclusion : { ...inclusion, bucket: "" },
      ]);
      await device.monitor.checkDue();
      await device.monitor.checkDue();
      assert.equal(await state(), "counted");
      const answer = await device.account.find(parties.shown.digest);
      assert.deepEqual([answer?.envelope, answer?.leaves], ["", ""]);
      assert.equal(answer?.envelopeHash.length, 64);
      const other = await parties.device();
      await other.contribute(parties.digest, 1);
      await other.monitor.checkDue();
      await other.monitor.checkDue();
      const lost = await other.account.find(parties.shown.digest);
      assert.equal(lost?.inclusion, "missing");
      assert.notEqual(lost?.leaves, "");
    }));

  test("checks are due by elapsed time, whatever the clock of the day does", () =>
    withParties("grr", async (parties) => {
      let seconds = 0;
      const device = await parties.device({ checkSeconds: 10, elapsed: () => seconds });
      await device.contribute(parties.digest, 1);
      await device.monitor.checkDue();
      parties.now += 1e5;
      await device.monitor.checkDue();
      assert.equal(parties.bodies("GetInclusion").length, 0);
      seconds += 10;
      await device.monitor.checkDue();
      assert.notEqual(parties.bodies("GetInclusion").length, 0);
    }));

  test("an account holds no value", () =>
    withParties("edges", async (parties) => {
      const device = await parties.device();
      parties.reply("Submit", () => [401, "{}"]);
      await assert.rejects(
        device.contribute(parties.digest, 0.7654321),
        failsWith("ForeignReplyError"),
      );
      const [saved] = await device.account.answers();
      assert.doesNotMatch(JSON.stringify(saved), /7654321/);
    }));

  test("a task that was read before its deadline is not answered after it", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const read = await device.read(parties.digest);
      parties.now = read.task.deadline;
      const known = Object.assign(read, read.task) as never;
      await assert.rejects(device.contribute(parties.digest, 1, known), (error) => {
        return (error as ShuffleDpError).key === "deadline_passed";
      });
      assert.deepEqual(await device.account.answers(), []);
    }));

  test("a closed question is not shown, and nothing is charged", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const isClosed = (error: ShuffleDpError) => error.key === "batch_closed";
      parties.reply("GetBatchStatus", () => [200, { state: "BATCH_STATE_CLOSED", nUsers: "3" }]);
      await assert.rejects(device.contribute(parties.digest, 1), isClosed);
      assert.deepEqual(await device.account.answers(), []);
    }));

  test("a task with tokens is not charged without a credential", () =>
    withParties("mixdump", async (parties) => {
      const { credential: _, ...settings } = (await parties.device())["settings"];
      const device = new Device(settings);
      await assert.rejects(device.contribute(parties.digest, "bike"), failsWith("SettingsError"));
      assert.deepEqual(await device.account.answers(), []);
    }));

  test("no redirect is followed, and no endless answer read", () =>
    withParties("grr", async (parties) => {
      const device = await parties.device();
      const location = `${parties.issuer.url}/shuffledp.v1.Shuffler/FetchTask`;
      parties.issuer.methods.set("/shuffledp.v1.Shuffler/FetchTask", () => [
        200,
        parties.fetched("0"),
      ]);
      parties.reply("FetchTask", () => [307, "", { location }]);
      await assert.rejects(device.read(parties.digest), failsWith("PeerError"));
      assert.equal(parties.issuer.count, 0);
      const padding = "a".repeat(8 * 1024 * 1024);
      parties.reply("FetchTask", () => [200, { ...parties.fetched("0"), padding }]);
      await assert.rejects(device.read(parties.digest), failsWith("PeerError"));
    }));

  test("an issuer's address needs its pin", async () => {
    await withParties("grr", async (parties) => {
      const policy = await parties.policy({ issuer: null });
      await assert.rejects(parties.device({ policy }), SettingsError);
    });
  });

  test("no party is pinned twice", () =>
    withParties("chain-sageo", async (parties) => {
      const { analyzer, shuffler, issuer } = await parties.policy();
      for (const changes of [
        ...[analyzer, shuffler, issuer].map((twice) => ({ relay: twice })),
        { shuffler: analyzer },
        { issuer: shuffler },
        { issuer: analyzer },
      ]) {
        const policy = await parties.policy(changes);
        await assert.rejects(parties.device({ policy }), /must have different identities/);
      }
      assert.ok(await parties.device({ policy: await parties.policy({ relay: null }) }));
      const policy = await parties.policy({ shufflerName: "one", relayName: "one" });
      await assert.rejects(parties.device({ policy }), /must have different operators/);
    }));

  test("limits that bound nothing, and addresses in the clear, are refused", async () => {
    await withParties("grr", async (parties) => {
      for (const changes of [
        { totalDeltaCap: Number.NaN },
        { localEpsilonCap: 0 },
        { coalitionEpsilonCap: 0 },
        { totalCoalitionEpsilonCap: Number.NaN },
      ]) {
        const policy = await parties.policy(changes);
        await assert.rejects(parties.device({ policy }), SettingsError);
      }
      for (const shufflerUrl of [
        "http://shuffler.example",
        "ftp://127.0.0.1",
        "http://localhost:1@a.example",
        "127.0.0.1",
        "",
      ]) {
        await assert.rejects(parties.device({ shufflerUrl }), SettingsError);
      }
      assert.ok(await parties.device({ shufflerUrl: "https://shuffler.example/base" }));
    });
  });
});
