import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// The server sends the .gz beside a file to whoever accepts it: no compression at request time.
function precompressed(): Plugin {
  let folder = "";
  return {
    name: "precompressed",
    apply: "build",
    configResolved(config) {
      folder = resolve(config.root, config.build.outDir);
    },
    writeBundle() {
      for (const name of readdirSync(join(folder, "assets"))) {
        const path = join(folder, "assets", name);
        if (/\.(js|css|svg)$/.test(name) && statSync(path).size > 1000) {
          writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        }
      }
    },
  };
}

const server = process.env.BENCHMAX_URL ?? "http://127.0.0.1:8321";
// The server answers only requests that come from its own pages.
const proxy = Object.fromEntries(
  ["/v1", "/api", "/login", "/logout"].map((path) => [
    path,
    { target: server, changeOrigin: true, headers: { origin: server } },
  ]),
);

const out = process.env.CONSOLE_OUT ?? "../src/benchmax/platform/server/console";

// The console of a saved run: one script that a page opened from a disk may load, which modules are not.
const saved = defineConfig({
  plugins: [react()],
  base: "./",
  define: { "import.meta.env.VITE_SAVED": "true" },
  build: {
    outDir: `${out}/saved`,
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/static/main.tsx",
      output: {
        format: "iife",
        inlineDynamicImports: true,
        entryFileNames: "console.js",
        assetFileNames: "[name][extname]",
      },
    },
  },
});

const served = defineConfig({
  plugins: [react(), precompressed()],
  define: { "import.meta.env.VITE_SAVED": "false" },
  build: {
    outDir: out,
    emptyOutDir: true,
    // The content policy has no data: sources.
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy },
});

export default process.env.CONSOLE_SAVED ? saved : served;
