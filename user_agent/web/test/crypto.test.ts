import assert from "node:assert/strict";
import { test } from "node:test";
import { concat, toHex, toInteger } from "../src/bytes";
import { cipherSuite, SUITES, type SuiteName, sealContext, sealer } from "../src/crypto/hpke";
import { PendingToken, TokenKey } from "../src/crypto/tokens";
import { ProofError, WireError } from "../src/errors";
import { isConsistent, leafHash, verifyInclusion } from "../src/log/merkle";
import { Placement } from "../src/mechanisms/hashing";
import { hex, vectors } from "./vectors";

test("tokens equal the vectors of RFC 9578", async () => {
  for (const { public_key, cases } of vectors("privacy_tokens")) {
    const key = TokenKey.of(hex(public_key));
    assert.ok(key);
    for (const each of cases) {
      const secrets = concat(hex(each.nonce), hex(each.salt), hex(each.blind));
      const challenge = hex(each.token_challenge);
      const pending = await PendingToken.fromBytes(secrets, key, challenge);
      assert.equal(toHex(await pending.blinded()), each.token_request.slice(-512));
      const signature = hex(each.token_response);
      assert.equal(toHex(await pending.finalize(signature)), each.token);
      signature[9] = (signature[9] ?? 0) ^ 1;
      await assert.rejects(pending.finalize(signature), ProofError);
      assert.deepEqual(pending.toBytes(), secrets);
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
  test(`the ciphertexts of the vectors open: ${name}`, async () => {
    const suite = await cipherSuite(name);
    const { cases } = vectors(
      name.endsWith("gcm") ? "hpke-x25519-hkdf-sha256-aes128gcm" : "hpke",
    ) as { cases: Record<string, string & number>[] };
    let opened = 0;
    for (const each of cases) {
      if (each["sender"] !== 1 || !each["plaintext"]) continue;
      const key = await suite.kem.deserializePrivateKey(hex(each["private_key"] ?? ""));
      const sealed = hex(each["sealed"] ?? "");
      const info = sealContext(each["recipient"] ?? 0, hex(each["task_digest"] ?? ""));
      const enc = sealed.slice(0, 32);
      const recipient = await suite.createRecipientContext({ recipientKey: key, enc, info });
      const plaintext = new Uint8Array(await recipient.open(sealed.slice(32)));
      assert.equal(toHex(plaintext), each["plaintext"]);
      opened += 1;
    }
    assert.ok(opened > 0);
  });

  test(`nothing is sealed to a point of small order: ${name}`, async () => {
    for (const point of [0n, 1n]) {
      const key = hex(point.toString(16).padStart(2, "0").padEnd(64, "0"));
      const seal = await sealer(name, key, sealContext(2, new Uint8Array(32)));
      await assert.rejects(seal(new Uint8Array(3)), WireError);
    }
  });
}

test("integers are read big-endian", () => assert.equal(toInteger(hex("0102")), 258n));
