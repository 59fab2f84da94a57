/** The committed bundle in Chromium: storage, lock, and an answer; skipped where there is none. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { Parties } from "./parties";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];
const CHROMIUM = (process.env["PATH"] ?? "")
  .split(delimiter)
  .flatMap((folder) => NAMES.map((name) => join(folder, name)))
  .find((path) => existsSync(path));

/** Run in the page; SHOWN is a transcript. It sends what it found to /found. */
const SCRIPT = `
import * as m from "/shuffledp.js";
const found = { errors: [] };
try {
  const order = [];
  const stores = await Promise.all([m.IndexedDbStore.open("a"), m.IndexedDbStore.open("a")]);
  await Promise.all([0, 1, 0].map((which, at) => stores[which].locked(async (records) => {
    order.push(at);
    await new Promise((resolve) => setTimeout(resolve, 30));
    await records.put("key " + at, { at });
    order.push(at);
  })));
  found.order = order;
  found.kept = (await stores[1].locked((records) => records.all("key "))).length;
  const { pins } = SHOWN;
  const policy = {
    analyzer: m.Identity.fromHex(pins.analyzer),
    shuffler: m.Identity.fromHex(pins.shuffler),
    issuer: m.Identity.fromHex(pins.issuer),
    allowTasksWithoutTokens: true,
    localEpsilonCap: 4,
    totalLocalEpsilonCap: 20,
    totalCentralEpsilonCap: 20,
    totalDeltaCap: 1e-4,
    checkingQuorum: 0,
  };
  const witnesses = await Promise.all(pins.witnesses.map((key) => m.NoteKey.parse(key)));
  const log = new m.WitnessPolicy(await m.NoteKey.ofLog(policy.analyzer), witnesses, pins.quorum);
  const device = async () => new m.Device({
    policy, log, store: await m.IndexedDbStore.open("b"), shufflerUrl: location.origin,
    issuerUrl: location.origin, now: () => SHOWN.now,
  });
  const digest = m.fromHex(SHOWN.digest);
  const tabs = await Promise.all([device(), device()]);
  const outcomes = await Promise.all(tabs.map((tab, at) => tab.contribute(digest, at)));
  found.repeated = outcomes.map((one) => one.isRepeated).sort();
  const later = await device();
  found.answers = (await later.account.answers()).map(({ state, receipt }) => [state, receipt.length]);
  found.evidence = (await later.log.evidence()).length;
} catch (error) {
  found.errors.push(String(error.stack ?? error));
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
`;

test("two tabs share one account, and give one answer", { skip: !CHROMIUM }, async () => {
  const parties = new Parties("grr");
  const submitted = new Set<string>();
  let finish: (found: string) => void = () => undefined;
  const finished = new Promise<string>((resolve) => {
    finish = resolve;
  });
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const path = request.url ?? "/";
    const method = parties.shuffler.methods.get(path);
    response.setHeader("content-type", path === "/" ? "text/html" : "text/javascript");
    if (path === "/found") finish(body);
    if (path.endsWith("/Submit")) submitted.add(body);
    if (path === "/") response.end('<!doctype html><script type="module" src="/page.js"></script>');
    else if (path === "/page.js") {
      response.end(`const SHOWN = ${JSON.stringify(parties.shown)};${SCRIPT}`);
    } else if (readdirSync("dist").includes(path.slice(1)))
      response.end(readFileSync(`dist${path}`));
    else if (method) response.end(JSON.stringify(method(JSON.parse(body))?.[1]));
    else response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const profile = mkdtempSync(join(tmpdir(), "profile-"));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const options = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`];
  const child = spawn(CHROMIUM ?? "", [...options, url], { stdio: "ignore", detached: true });
  const closed = new Promise((resolve) => child.on("close", resolve));
  const late = setTimeout(() => finish('{"errors":["no answer in a minute"]}'), 60_000);
  try {
    const found = JSON.parse(await finished);
    assert.deepEqual(found.errors, []);
    assert.deepEqual(found.order, [0, 0, 1, 1, 2, 2]);
    assert.deepEqual([found.kept, found.evidence], [3, 1]);
    assert.deepEqual(found.repeated, [false, true]);
    assert.deepEqual(found.answers, [["arrived", 88]]);
    assert.equal(submitted.size, 1);
  } finally {
    clearTimeout(late);
    // The whole group: Chromium's other processes would go on writing into the profile.
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    await closed;
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
});
