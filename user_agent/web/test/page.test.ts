import assert from "node:assert/strict";
import { test } from "node:test";
import { Invitations, readFragment } from "../page/invitations";
import { percent, reported, word } from "../page/words";
import { MemoryStore } from "../src/store/store";
import type { Task } from "../src/task/task";

const DIGEST = "ab".repeat(32);

async function opened(credential: string, now: number, digest = DIGEST) {
  const found = await readFragment(`#task=${digest}&credential=${credential}`, now);
  assert.ok(found);
  return found;
}

test("invitations to one task with two credentials are two, and one opened again is one", async () => {
  const invitations = new Invitations(new MemoryStore());
  const [own, other] = [await opened("own", 1), await opened("other", 2)];
  for (const each of [own, other, { ...own, openedAt: 3 }]) await invitations.keep(each, "Title");
  const credentials = async () => (await invitations.all()).map(({ credential }) => credential);
  assert.deepEqual(await credentials(), ["own", "other"]);
  await invitations.arrived(DIGEST, own.credentialHash, 4);
  assert.deepEqual(await credentials(), ["", "other"]);
  assert.deepEqual(
    (await invitations.all()).map(({ arrivedAt }) => arrivedAt),
    [4, 0],
  );
  await invitations.arrived(DIGEST, "", 5);
  assert.deepEqual(await credentials(), ["", ""]);
});

test("the hundred invitations that were opened last are kept", async () => {
  const invitations = new Invitations(new MemoryStore());
  for (let at = 0; at < 102; at++) await invitations.keep(await opened(`person-${at}`, at), "");
  const kept = await invitations.all();
  assert.equal(kept.length, 100);
  assert.deepEqual([kept[0]?.openedAt, kept.at(-1)?.openedAt], [101, 2]);
});

test("delta is added to what the odds bound, not the chance that they fail to", () => {
  const figures = { unseen: "", people: "9 honest people", odds: "2", delta: "0.000001" };
  const written = word("protected_central", figures);
  assert.match(written, /at most 2 times as likely .*, plus a probability of at most 0\.000001\.$/);
});

test("a true answer is hidden by others' reports, or by what the shuffler adds", () => {
  const hidden = (name: string, noise: string) =>
    reported({
      mechanism: { name, trueWeight: 1n, otherWeight: 0n, buckets: 2 },
      domainSize: 2,
      viewSizes: [2],
      edges: null,
      row: { noise },
    } as unknown as Task);
  for (const name of ["digits", "grr", "hierarchy", "tables"]) {
    assert.match(hidden(name, "none"), /Chance does not .*; the reports of all others do\.$/);
    assert.match(hidden(name, "geometric"), /; random reports that the shuffler adds do\.$/);
  }
});

test("a share is never written as none or all", () => {
  const written = (part: bigint) => [percent(part, 100000n), percent(100000n - part, 100000n)];
  assert.deepEqual(written(1n), ["0.001%", "99.999%"]);
  assert.deepEqual(written(50000n), ["50%", "50%"]);
  assert.deepEqual(written(33333n), ["33.3%", "66.7%"]);
  assert.deepEqual(written(0n), ["0%", "100%"]);
});
