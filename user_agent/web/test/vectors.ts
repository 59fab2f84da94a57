/** Files of tests/vectors. */

import { readdirSync, readFileSync } from "node:fs";
import { type Bytes, fromHex } from "../src/bytes";

const FOLDER = "../../tests/vectors";

/** With SHUFFLEDP_VECTORS_STEP=3 each third vector is tested, where there are many. */
const STEP = Number(process.env["SHUFFLEDP_VECTORS_STEP"] ?? 1);
export const isTested = (_: unknown, at: number): boolean => at % STEP === 0;

// biome-ignore lint/suspicious/noExplicitAny: files of many forms
export function vectors(name: string): any {
  return JSON.parse(readFileSync(`${FOLDER}/${name}.json`, "utf8"));
}

/** Names of the files that start with a prefix. */
export function vectorNames(prefix: string): string[] {
  return readdirSync(FOLDER)
    .filter((name) => name.startsWith(prefix) && name.endsWith(".json"))
    .map((name) => name.slice(0, -5))
    .sort();
}

export function hex(text: string): Bytes {
  const bytes = fromHex(text);
  if (bytes === null) throw new TypeError("not hexadecimal");
  return bytes;
}
