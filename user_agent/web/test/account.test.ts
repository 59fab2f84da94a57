import assert from "node:assert/strict";
import { test } from "node:test";
import { Account, type NewAnswer } from "../src/account";
import { BudgetError, PolicyError, UnknownTaskError } from "../src/errors";
import { MemoryStore } from "../src/store/store";

const CLAIM = { localEpsilon: 1, centralEpsilon: 0.1, delta: 1e-6 };
const [FIRST, SECOND] = ["11".repeat(32), "22".repeat(32)];
const LEAF = new Uint8Array(32).fill(9);

const token = {
  key: Uint8Array.of(1),
  issuer: "a.example",
  pending: Uint8Array.of(2),
  credential: Uint8Array.of(3),
};

function charge(account: Account, digest: string, changes: Partial<NewAnswer> = {}) {
  const fresh = { envelope: LEAF, leaves: [LEAF], isSampled: false, deadline: 1, token: null };
  return account.charge(
    digest,
    CLAIM,
    (spent) => {
      if (spent.length > 1) throw new BudgetError("local_budget");
    },
    async () => ({ ...fresh, ...changes }),
  );
}

test("a token key of an earlier task is refused, and nothing is charged", async () => {
  const account = new Account(new MemoryStore());
  await charge(account, FIRST, { token });
  await assert.rejects(charge(account, SECOND, { token }), PolicyError);
  assert.equal((await account.answers()).length, 1);
  await charge(account, SECOND, { token: { ...token, key: Uint8Array.of(4) } });
});

test("an answer that arrived is never marked as refused", async () => {
  const account = new Account(new MemoryStore());
  const { answer } = await charge(account, FIRST);
  const refused = { state: "refused" } as const;
  assert.equal((await account.change(answer, refused)).state, "refused");
  assert.equal((await account.change(answer, { state: "arrived" })).state, "arrived");
  assert.equal((await account.change(answer, refused)).state, "arrived");
});

test("of a task whose reports the shuffler may drop, none is looked for", async () => {
  const account = new Account(new MemoryStore());
  const { answer } = await charge(account, FIRST, { isSampled: true });
  assert.deepEqual([answer.inclusion, answer.leaves], ["sampled", ""]);
  assert.notEqual((await charge(account, SECOND)).answer.leaves, "");
});

test("of answers at once that exceed a total together, the losers are not charged", async () => {
  const account = new Account(new MemoryStore());
  const calls = [1, 2, 3, 4, 5].map((n) => charge(account, `${n}0`.repeat(32)));
  const outcomes = await Promise.allSettled(calls);
  assert.equal(outcomes.filter((one) => one.status === "fulfilled").length, 2);
  assert.equal((await account.answers()).length, 2);
});

test("an answer is withdrawn only before its token, and a late change to it changes no later one", async () => {
  const account = new Account(new MemoryStore());
  const { answer } = await charge(account, FIRST, { token });
  await account.withdraw(answer);
  assert.deepEqual(await account.answers(), []);
  const { answer: later } = await charge(account, FIRST, { token, envelope: new Uint8Array(32) });
  const kept = { token: "AA==", pendingToken: "" };
  await assert.rejects(account.change(answer, kept), UnknownTaskError);
  await account.withdraw(answer);
  await account.change(later, kept);
  await account.withdraw(later);
  assert.equal((await account.answers()).length, 1);
  const { answer: plain } = await charge(account, SECOND);
  await account.withdraw(plain);
  assert.equal((await account.answers()).length, 2);
});
