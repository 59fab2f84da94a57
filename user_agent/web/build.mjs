// Bundle the device for browsers and Node, or with --tests its tests; into a folder, if one is given.
import { readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const [folder] = process.argv.slice(2).filter((each) => !each.startsWith("--"));
const common = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };
if (process.argv.includes("--tests")) {
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  const contents = tests
    .filter((name) => name !== "browser.test.ts")
    .map((name) => `import "./test/${name}";`)
    .join("\n");
  const outdir = folder ?? "build";
  const node = { ...common, platform: "node" };
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ ...node, stdin, outfile: `${outdir}/tests.mjs` });
  const entryPoints = {
    browser: "test/browser.test.ts",
    draws: "test/draws.ts",
    people: "test/people.ts",
  };
  await build({ ...node, entryPoints, outdir, outExtension: { ".js": ".mjs" } });
} else {
  const outdir = folder ?? "dist";
  rmSync(outdir, { recursive: true, force: true });
  await build({
    ...common,
    entryPoints: { shuffledp: "src/index.ts", messages: "src/messages.ts" },
    outdir,
    splitting: true,
    chunkNames: "[name]-[hash]",
    minify: true,
    legalComments: "none",
    charset: "utf8",
  });
}
