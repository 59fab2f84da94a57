// Bundle the device for browsers and Node; with --tests, the tests for node --test.
import { readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };
if (process.argv.includes("--tests")) {
  rmSync("build", { recursive: true, force: true });
  await build({
    ...common,
    entryPoints: readdirSync("test")
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => `test/${name}`),
    outdir: "build",
    outExtension: { ".js": ".mjs" },
    platform: "node",
    packages: "external",
  });
} else {
  rmSync("dist", { recursive: true, force: true });
  await build({
    ...common,
    entryPoints: {
      shuffledp: "src/index.ts",
      node: "src/node.ts",
      messages: "src/messages.ts",
      page: "page/main.ts",
      style: "page/page.css",
      index: "page/index.html",
    },
    external: ["node:*", "./constants.js"], // the publisher writes the constants
    loader: { ".html": "copy" },
    outdir: "dist",
    splitting: true,
    chunkNames: "[name]-[hash]",
    minify: true,
    legalComments: "none",
    charset: "utf8",
  });
}
