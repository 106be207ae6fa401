/** Write a call as code to copy: Python, curl, command line, MCP JSON. */
import { toJson, visible } from "./text";
import type { Arguments } from "./types";

const ADDRESS = "http://127.0.0.1:8000/mcp";

/** Quote a word. A terminal would obey control characters that are pasted, also within quotes, so that they are escapes. */
function quoteShell(text: string): string {
  const escaped = visible(text.replaceAll("\\", "\\\\").replaceAll("'", "\\'"));
  if (visible(text) !== text) return `$'${escaped}'`;
  return /^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Return JSON data as Python source. */
export function toPython(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(toPython).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, item]) => `${JSON.stringify(key)}: ${toPython(item)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}

/** Return the lines that get the toolbox of a target. */
function importTarget(target: string | null): string[] {
  if (target === null) return ["from toolmason import discover", "", "box = discover()"];
  const colon = target.lastIndexOf(":");
  const [place, name] = colon < 0 ? [target, ""] : [target.slice(0, colon), target.slice(colon + 1)];
  if (place.endsWith(".json"))
    return [
      "from toolmason import Toolbox",
      "from toolmason.mcp import McpServer",
      "",
      `box = Toolbox(*McpServer.from_config(${JSON.stringify(place)}))`,
    ];
  const module = place.replace(/\.py$/, "").split("/").at(-1) ?? place;
  if (!name) return ["from toolmason import Toolbox", `import ${module}`, "", `box = Toolbox(${module})`];
  const [first, ...rest] = name.split(".");
  const value = [first, ...rest].join(".");
  return [`from ${module} import ${first}`, "", ...(value === "box" ? [] : [`box = ${value}`])];
}

export function asPython(target: string | null, name: string, args: Arguments): string {
  // Escapes of hidden characters are those of Python, too.
  return visible([...importTarget(target), `result = box.call_sync(${JSON.stringify(name)}, ${toPython(args)})`, "print(result.text)", ""].join("\n"));
}

export function asCommand(target: string | null, name: string, args: Arguments): string {
  const words = ["toolmason", "call", ...(target === null ? [] : [target]), name, "--arguments", toJson(args, 0)];
  return `${words.map(quoteShell).join(" ")}\n`;
}

const VERSION = "2026-07-28";

/** Return the request of MCP that makes a call without a session. */
function makeRequest(name: string, args: Arguments): object {
  const facts = { protocolVersion: VERSION, clientInfo: { name: "curl", version: "1" }, clientCapabilities: {} };
  const meta = Object.fromEntries(Object.entries(facts).map(([key, value]) => [`io.modelcontextprotocol/${key}`, value]));
  return { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args, _meta: meta } };
}

export function asMcp(name: string, args: Arguments): string {
  return `${toJson(makeRequest(name, args))}\n`;
}

export function asCurl(target: string | null, name: string, args: Arguments): string {
  const serve = ["toolmason", "serve", ...(target === null ? [] : [target]), "--transport", "http"];
  return [
    `# First: ${serve.map(quoteShell).join(" ")}`,
    `curl ${ADDRESS} \\`,
    `  -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \\`,
    `  -H 'mcp-protocol-version: ${VERSION}' -H 'mcp-method: tools/call' -H ${quoteShell(`mcp-name: ${name}`)} \\`,
    `  -d ${quoteShell(toJson(makeRequest(name, args), 0))}`,
    "",
  ].join("\n");
}
