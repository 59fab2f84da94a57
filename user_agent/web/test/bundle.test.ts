import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const CORE_BYTES = 62_000;
const FILES = new Map(
  readdirSync("dist").map((name) => [name, readFileSync(`dist/${name}`, "utf8")]),
);

/** Return a file, and all files that it imports at once. */
function loaded(name: string): Set<string> {
  const found = new Set([name]);
  for (const each of found) {
    for (const [, next = ""] of (FILES.get(each) ?? "").matchAll(/(?:from|import)"\.\/([^"]+)"/g)) {
      found.add(next);
    }
  }
  return found;
}

test("the core is small without its sentences, and loads ChaCha20-Poly1305 only when it is named", () => {
  const core = loaded("shuffledp.js");
  const sentences = loaded("messages.js");
  const bytes = [...core]
    .filter((name) => !sentences.has(name))
    .map((name) => FILES.get(name) ?? "");
  const size = bytes.reduce((total, text) => total + Buffer.byteLength(text), 0);
  assert.ok(size <= CORE_BYTES, `${size} bytes`);
  const lazy = [...FILES.keys()].filter((name) => name.startsWith("mod-"));
  assert.equal(lazy.length, 1);
  assert.ok(!core.has(lazy[0] ?? ""));
});

test("nothing in the bundle runs text as code, or writes to the console", () => {
  for (const [name, text] of FILES) {
    assert.doesNotMatch(text, /\beval\(|\bnew Function\b|\bFunction\(|\bconsole\./, name);
  }
});
