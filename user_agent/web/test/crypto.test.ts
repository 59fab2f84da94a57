import assert from "node:assert/strict";
import { test } from "node:test";
import { concat, toHex, toInteger } from "../src/bytes";
import { SUITES, type SuiteName, sealContext, sealer } from "../src/crypto/hpke";
import { PendingToken, TokenKey } from "../src/crypto/tokens";
import { ProofError, WireError } from "../src/errors";
import { isConsistent, leafHash, verifyInclusion } from "../src/log/merkle";
import { Placement } from "../src/mechanisms/hashing";
import { open, pairOf } from "./hpke_core";
import { hex, vectors } from "./vectors";

test("tokens equal the vectors of RFC 9578", async () => {
  for (const { public_key, cases } of vectors("privacy_tokens")) {
    const key = TokenKey.of(hex(public_key));
    assert.ok(key);
    for (const each of cases) {
      const secrets = concat(hex(each.nonce), hex(each.salt), hex(each.blind));
      const challenge = hex(each.token_challenge);
      const pending = new PendingToken(key, challenge, secrets);
      assert.throws(() => new PendingToken(key, challenge, secrets.slice(1)), WireError);
      assert.equal(toHex(await pending.blinded()), each.token_request.slice(-512));
      const signature = hex(each.token_response);
      assert.equal(toHex(await pending.finalize(signature)), each.token);
      signature[9] = (signature[9] ?? 0) ^ 1;
      await assert.rejects(pending.finalize(signature), ProofError);
    }
  }
});

test("a token key has one encoding", () => {
  const [{ public_key }] = vectors("privacy_tokens");
  for (const at of [0, 20, 70, 340, 341]) {
    const changed = hex(public_key);
    changed[at] = (changed[at] ?? 0) ^ 1;
    assert.equal(TokenKey.of(changed), null);
  }
});

test("items are placed as in the vectors", async () => {
  for (const { size, nonce, items, points } of vectors("placement")) {
    const placement = await Placement.of(BigInt(size), hex(nonce));
    assert.deepEqual(
      items.map((item: number) => Number(placement.point(BigInt(item)))),
      points,
    );
  }
});

test("the log's proofs equal the tree of the vectors", async () => {
  const { entries, nodes, roots } = vectors("merkle");
  const leaves = await Promise.all(entries.map((entry: string) => leafHash(hex(entry))));
  const path = [nodes.b, nodes.h, nodes.l ?? nodes.j].map(hex);
  assert.deepEqual(toHex(leaves[0]), nodes.a);
  const proof = [nodes.b, nodes.h].map(hex);
  await verifyInclusion(leaves[0], 0n, 4n, proof, hex(roots[4]));
  await assert.rejects(verifyInclusion(leaves[0], 1n, 4n, proof, hex(roots[4])), ProofError);
  await assert.rejects(verifyInclusion(leaves[0], 0n, 4n, path, hex(roots[4])), ProofError);
  const consistent = [nodes.c, nodes.d, nodes.g].map(hex);
  assert.ok(await isConsistent(3n, hex(roots[3]), 4n, hex(roots[4]), consistent));
  assert.ok(!(await isConsistent(3n, hex(roots[4]), 4n, hex(roots[4]), consistent)));
});

for (const name of Object.keys(SUITES) as SuiteName[]) {
  test(`what this device seals opens elsewhere, once each: ${name}`, async () => {
    const [raw, digest] = [new Uint8Array(32).fill(7), new Uint8Array(32).fill(9)];
    const { publicKey } = await pairOf(raw);
    const key = new Uint8Array(await crypto.subtle.exportKey("raw", publicKey));
    const seal = sealer(name, key, sealContext(3, digest));
    const seen = new Set<string>();
    for (const length of [0, 1, 12, 5000]) {
      const plaintext = crypto.getRandomValues(new Uint8Array(length));
      const sealed = await seal(plaintext);
      assert.equal(sealed.length, length + SUITES[name].overheadBytes);
      assert.deepEqual(await open(name, raw, sealContext(3, digest), sealed), plaintext);
      await assert.rejects(open(name, raw, sealContext(2, digest), sealed));
      seen.add(toHex(sealed.slice(0, 32)));
    }
    assert.equal(seen.size, 4);
  });

  test(`nothing is sealed to a point of small order: ${name}`, async () => {
    for (const point of [0n, 1n]) {
      const key = hex(point.toString(16).padStart(2, "0").padEnd(64, "0"));
      const seal = sealer(name, key, sealContext(2, new Uint8Array(32)));
      await assert.rejects(seal(new Uint8Array(3)), WireError);
    }
  });
}

test("integers are read big-endian", () => assert.equal(toInteger(hex("0102")), 258n));
