/** A shuffler and an issuer on loopback, which answer from a transcript; and a device that calls them. */

import { createHash, createPrivateKey, type KeyObject, sign } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Bytes, concat, knownBase64, knownHex, toBase64, utf8 } from "../src/bytes";
import { Identity } from "../src/crypto/signing";
import { Device, type DeviceSettings } from "../src/device";
import { NoteKey } from "../src/log/checkpoint";
import { WitnessPolicy } from "../src/log/device_log";
import type { Policy } from "../src/policy";
import { MemoryStore } from "../src/store/store";
import { vectors } from "./vectors";

/** An answer of a party: a status and a body. */
export type Reply = readonly [number, unknown, Record<string, string>?];
export const FORESEEN = { "shuffledp-foreseen": "1" };

// biome-ignore lint/suspicious/noExplicitAny: a file of the vectors
type Transcript = any;

function privateKey(seed: number): KeyObject {
  const raw = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, seed)]); // biome-ignore format: one key
  return createPrivateKey({ key: raw, format: "der", type: "pkcs8" });
}

/** Sign as the party of this seed: 1 is the analyzer, 2 the shuffler. */
export function signedBy(seed: number, message: Uint8Array): string {
  return toBase64(new Uint8Array(sign(null, message, privateKey(seed))));
}

/** A party that answers by a table of methods, and keeps every request. */
export class Party {
  readonly requests: { method: string; body: string }[] = [];
  readonly methods = new Map<string, (request: Transcript) => Reply | null>();
  private readonly server = createServer(
    (request, response) => void this.answer(request, response),
  );

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  get count(): number {
    return this.requests.length;
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    for await (const part of request) body += part;
    const method = request.url ?? "";
    this.requests.push({ method, body });
    const reply = this.methods.get(method)?.(JSON.parse(body));
    if (reply === null) {
      response.destroy();
      return;
    }
    const [status, answer, headers] = reply ?? [404, "no such page"];
    const text = typeof answer === "string" ? answer : JSON.stringify(answer);
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(text);
  }
}

/** The parties of one transcript. */
export class Parties {
  readonly shown: Transcript;
  readonly shuffler = new Party();
  readonly issuer = new Party();
  now: number;

  constructor(name: string) {
    this.shown = vectors(`transcript-${name}`);
    this.now = this.shown.now;
    const { methods } = this.shuffler;
    methods.set("/shuffledp.v1.Shuffler/FetchTask", ({ logSize }) => [200, this.fetched(logSize)]);
    const collecting = { state: "BATCH_STATE_COLLECTING", nMin: "2" };
    methods.set("/shuffledp.v1.Shuffler/GetBatchStatus", () => [200, collecting]);
    methods.set("/shuffledp.v1.Shuffler/GetInclusion", () => [200, this.shown.inclusion]);
    methods.set("/shuffledp.v1.Shuffler/Submit", ({ taskDigest, envelope }) => [
      200,
      { repeated: false, receipt: this.receipt(taskDigest, envelope) },
    ]);
  }

  get digest(): Bytes {
    return knownHex(this.shown.digest);
  }

  /** Return the task, with the proof for a device whose last checkpoint has this size. */
  fetched(logSize: string): Transcript {
    const { consistency, ...logProof } = this.shown.fetch.logProof;
    return {
      ...this.shown.fetch,
      logProof: logSize === "3" ? { ...logProof, consistency } : logProof,
    };
  }

  async start(): Promise<void> {
    await this.shuffler.start();
    await this.issuer.start();
  }

  stop(): void {
    this.shuffler.stop();
    this.issuer.stop();
  }

  receipt(taskDigest: string, envelope: string): string {
    const bytes = (text: string) => knownBase64(text);
    const hash = createHash("sha256").update(bytes(envelope)).digest();
    const message = concat(utf8("shuffledp v1 receipt"), bytes(taskDigest), hash);
    return signedBy(2, message);
  }

  /** Answer every call of a method so. */
  reply(method: string, answer: (request: Transcript) => Reply | null): void {
    const party = method === "IssueToken" ? this.issuer : this.shuffler;
    const service = method === "IssueToken" ? "Issuer" : "Shuffler";
    party.methods.set(`/shuffledp.v1.${service}/${method}`, answer);
  }

  /** Return the bodies of the calls of a method. */
  bodies(method: string): string[] {
    const all = [...this.shuffler.requests, ...this.issuer.requests];
    return all.filter((request) => request.method.endsWith(`/${method}`)).map(({ body }) => body);
  }

  async policy(changes: Partial<Policy> = {}): Promise<Policy> {
    const { pins, policy } = this.shown;
    return {
      analyzer: Identity.fromHex(pins.analyzer),
      shuffler: Identity.fromHex(pins.shuffler),
      issuer: Identity.fromHex(pins.issuer),
      allowTasksWithoutTokens: policy.allow_tasks_without_tokens,
      localEpsilonCap: Number(String(policy.local_epsilon_cap).replace("inf", "Infinity")),
      totalLocalEpsilonCap: Number.POSITIVE_INFINITY,
      totalCentralEpsilonCap: 20,
      totalDeltaCap: 1e-4,
      checkingQuorum: 0,
      ...changes,
    };
  }

  /** Build a device that pins these parties. */
  async device(changes: Partial<DeviceSettings> = {}): Promise<Device> {
    const { pins } = this.shown;
    const log = await NoteKey.ofLog(Identity.fromHex(pins.analyzer));
    const witnesses = await Promise.all(pins.witnesses.map(NoteKey.parse) as Promise<NoteKey>[]);
    return new Device({
      policy: await this.policy(),
      store: new MemoryStore(),
      shufflerUrl: this.shuffler.url,
      issuerUrl: this.issuer.url,
      credential: utf8("credential"),
      log: new WitnessPolicy(log, witnesses, pins.quorum),
      now: () => this.now,
      checkSeconds: 0,
      ...changes,
    });
  }
}

/** Start the parties of a transcript for one test. */
export async function withParties(
  name: string,
  work: (parties: Parties) => Promise<void>,
): Promise<void> {
  const parties = new Parties(name);
  await parties.start();
  try {
    await work(parties);
  } finally {
    parties.stop();
  }
}
