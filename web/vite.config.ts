import { defineConfig } from "vite";

export default defineConfig({
  logLevel: "warn",
  resolve: {
    // The form library is written for React; this is the part of Preact that stands in for it.
    alias: {
      react: "preact/compat",
      "react-dom": "preact/compat",
      "react/jsx-runtime": "preact/jsx-runtime",
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/toolmason/ui/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    license: { fileName: "licenses.md" },
    rolldownOptions: {
      // "use client" of the form library has no meaning in a browser.
      onwarn: (warning, warn) => {
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
});
