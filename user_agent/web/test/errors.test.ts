import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import words from "../page/words.json";
import { ForkError, PeerRefusalError, ProofError, sentence, TaskError } from "../src/errors";
import messages from "../src/messages.json";
import { parseTask } from "../src/task/task";

function sources(folder: string): string {
  return readdirSync(folder, { withFileTypes: true })
    .map((each) => {
      const path = join(folder, each.name);
      if (each.isDirectory()) return sources(path);
      return path.endsWith(".ts") ? readFileSync(path, "utf8") : "";
    })
    .join("\n");
}

test("every sentence is used, and every parameter of it is given", () => {
  const code = sources("src") + sources("page");
  for (const [key, text] of Object.entries(messages)) {
    const wanted = Array.from(text.matchAll(/\{(\w+)\}/g), ([, name = ""]) => name);
    assert.doesNotMatch(text.replace(/\{\w+\}/g, ""), /[{}]/);
    const uses = [
      ...code.matchAll(
        new RegExp(`(?:\\(|[^"],|\\?\\?)\\s*"${key}"(?:,\\s*(\\{[^}]*\\}|\\w+))?`, "g"),
      ),
    ];
    assert.ok(code.includes(`"${key}"`) && uses.length >= Math.sign(wanted.length), key);
    for (const [use, given = ""] of uses) {
      const defined = new RegExp(`\\b${given}\\b[^=\\n]*= \\[?(\\{[^}]*\\})`).exec(code)?.[1];
      const literal = wanted.length > 0 && /^\w/.test(given) ? (defined ?? "") : given;
      for (const name of wanted) assert.match(literal, new RegExp(`\\b${name}\\b`), use);
    }
  }
});

test("every word of the page is used", () => {
  const code = sources("page");
  for (const key of Object.keys(words)) {
    assert.ok(code.includes(`"${key}"`) || /^(state|text|report|plain) /.test(key), key);
  }
});

test("errors keep the names and statuses of the Python device", () => {
  const fork = new ForkError("log_forked", { size: 1, old: 2 });
  assert.deepEqual([fork.name, fork.status], ["ForkError", "FAILED_PRECONDITION"]);
  assert.ok(fork instanceof ProofError);
  assert.ok(!(fork instanceof TaskError));
  const refusal = new PeerRefusalError("the shuffler", "ALREADY_EXISTS", "again");
  assert.equal(refusal.message, "the shuffler refused the call (ALREADY_EXISTS)");
  assert.equal(refusal.reason, "again");
  assert.equal(refusal.status, "ALREADY_EXISTS");
  assert.equal(sentence("deadline_passed"), "the task's deadline has passed");
});

test("huge and deep texts are refused at once", () => {
  const encode = (text: string) => new TextEncoder().encode(text);
  const start = process.cpuUsage();
  for (const text of [
    "9".repeat(2e6),
    `"${"a".repeat(2e6)}"`,
    "[".repeat(2e6),
    '{"a":'.repeat(3e5),
    `{"${'\\"'.repeat(1e5)}`,
  ]) {
    assert.throws(() => parseTask(encode(text)), TaskError);
  }
  assert.throws(() => parseTask(encode(`${" ".repeat(3e6)}`)), TaskError);
  assert.ok(process.cpuUsage(start).user < 2e6);
});
