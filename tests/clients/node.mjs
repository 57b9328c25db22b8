// What the TypeScript clients and the Inspector make of the server: `node.mjs CLIENT -- SERVER WORDS...`, or over HTTP
// `node.mjs CLIENT -- URL TOKEN`, prints a JSON line per cell.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [, , client, , command, ...args] = process.argv;
const isHttp = command.startsWith("http");
const calls = JSON.parse(readFileSync(process.env.RINGFENCE_CALLS ?? new URL("calls.json", import.meta.url)));
const home = mkdtempSync(join(tmpdir(), "ringfence-client-"));
const env = { HOME: home, PATH: process.env.PATH, RINGFENCE_STATE_DIR: join(home, "state"), RINGFENCE_LOG: "error" };
const name = "execute_code";

let warned = [];
process.on("warning", (warning) => warned.push(`${warning.name}: ${warning.message}`));
for (const level of ["warn", "error"]) console[level] = (...words) => warned.push(words.join(" "));

async function cell(cell, act, expected) {
  warned = [];
  let text = "";
  let outcome = "ok";
  try {
    text = JSON.stringify(await act());
    const missing = expected.filter((word) => !text.includes(JSON.stringify(word).slice(1, -1)));
    if (missing.length > 0) outcome = `lacks ${missing}: ${text.slice(0, 300)}`;
  } catch (error) {
    outcome = `${error}`.slice(0, 500);
  }
  console.log(JSON.stringify({ cell, outcome, bytes: Buffer.byteLength(text), warnings: warned }));
}

async function connected(Client, Stdio, Http) {
  const session = new Client({ name: "clients", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${args[0]}` } };
  const transport = isHttp ? new Http(new URL(command), { requestInit }) : new Stdio({ command, args, env });
  await session.connect(transport);
  const call = (given) => session.callTool({ name, arguments: given });
  return { list: () => session.listTools(), call, close: () => session.close() };
}

// Each command starts a server of its own, or is a client of its own.
function inspector(...era) {
  const bin = new URL("node_modules/.bin/mcp-inspector", import.meta.url).pathname;
  const run = (...words) => {
    const options = { env, encoding: "utf8", maxBuffer: 1 << 26 };
    const settings = Object.entries(env).flatMap(([key, value]) => ["-e", `${key}=${value}`]);
    const place = isHttp
      ? [command, "--transport", "http", "--header", `Authorization: Bearer ${args[0]}`, ...era]
      : [command, ...args, ...settings];
    const said = spawnSync("node", [bin, "--cli", ...place, ...words], options);
    // 5: the tool said that it is an error, which the answer has.
    if (![0, 5].includes(said.status)) throw new Error(`exit ${said.status}: ${said.stderr}`);
    const lines = said.stderr.split("\n").filter((line) => line && !/ 0 warnings |^\{"error"/.test(line));
    warned.push(...lines);
    return JSON.parse(said.stdout);
  };
  return {
    list: () => run("--method", "tools/list", "--strict"),
    call: (given) => {
      const pairs = Object.entries(given).flatMap(([key, value]) => ["--tool-arg", `${key}=${value}`]);
      return run("--method", "tools/call", "--tool-name", name, ...pairs);
    },
    close: () => {},
  };
}

async function connect() {
  if (client === "inspector") return inspector();
  if (client === "inspector-modern") return inspector("--protocol-era", "modern");
  if (client === "sdk-1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return connected(Client, StdioClientTransport, StreamableHTTPClientTransport);
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  return connected(Client, StdioClientTransport, StreamableHTTPClientTransport);
}

const session = await connect();
await cell("list", session.list, [name, "get_execution"]);
for (const [title, [given, expected]] of Object.entries(calls)) {
  await cell(title, () => session.call(given), expected);
}
await session.close();
rmSync(home, { recursive: true });
