// Tests the TypeScript clients and the Inspector against the server: `node.mjs CLIENT -- SERVER WORDS...`, or over HTTP
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
// Time in which a cancelled program must end.
const PATIENCE_MS = 20_000;

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

// Runs until it is cancelled.
const ENDLESS = "import time\nprint('first', flush=True)\nwhile True: time.sleep(0.02)";

// `on` registers the handler of elicitations; `tool` calls a tool with options.
async function connected(Client, Stdio, Http, on, tool) {
  const session = new Client({ name: "clients", version: "1" }, { capabilities: { elicitation: {} } });
  const questions = [];
  on(session, ({ params }) => {
    questions.push(params.message);
    return { action: "accept", content: { decision: "once" } };
  });
  const requestInit = { headers: { authorization: `Bearer ${args[0]}` } };
  const transport = isHttp ? new Http(new URL(command), { requestInit }) : new Stdio({ command, args, env });
  await session.connect(transport);
  const call = (given) => session.callTool({ name, arguments: given });
  const facts = async (name, given, options) =>
    (await tool(session, { name, arguments: given }, options)).structuredContent;

  async function cancelled() {
    const stop = new AbortController();
    const heard = [];
    const onprogress = ({ message }) => {
      heard.push(message);
      if (message?.includes("first")) stop.abort();
    };
    const ended = await facts(name, { code: ENDLESS }, { onprogress, signal: stop.signal }).then(
      () => "answered",
      () => "given up",
    );
    // The server receives the cancellation in a separate message.
    for (const until = Date.now() + PATIENCE_MS; Date.now() < until; ) {
      const { executions } = await facts("list_executions", { limit: 1 });
      if (executions[0].verdict !== "running") return { heard, ended, verdict: executions[0].verdict };
    }
    throw new Error("the program still runs");
  }

  async function asked() {
    const { approved } = await facts("request_egress", { domain: "docs.example.com", reason: "to read" });
    return { approved: `approved: ${approved}`, questions };
  }

  return {
    list: () => session.listTools(),
    call,
    resources: () => session.readResource({ uri: "sandbox://status" }),
    cancelled,
    asked,
    close: () => session.close(),
  };
}

// Each command of the Inspector starts its own server, or is a client of its own.
function inspector(...era) {
  const bin = new URL("node_modules/.bin/mcp-inspector", import.meta.url).pathname;
  const run = (...words) => {
    const options = { env, encoding: "utf8", maxBuffer: 1 << 26 };
    const settings = Object.entries(env).flatMap(([key, value]) => ["-e", `${key}=${value}`]);
    const place = isHttp
      ? [command, "--transport", "http", "--header", `Authorization: Bearer ${args[0]}`, ...era]
      : [command, ...args, ...settings];
    const said = spawnSync("node", [bin, "--cli", ...place, ...words], options);
    // 5: the tool returned an error, which is in the answer.
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
    resources: () => run("--method", "resources/read", "--uri", "sandbox://status"),
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
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const on = (session, answer) => session.setRequestHandler(ElicitRequestSchema, answer);
    const tool = (session, params, options) => session.callTool(params, undefined, options);
    return connected(Client, StdioClientTransport, StreamableHTTPClientTransport, on, tool);
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const on = (session, answer) => session.setRequestHandler("elicitation/create", answer);
  const tool = (session, params, options) => session.callTool(params, options);
  return connected(Client, StdioClientTransport, StreamableHTTPClientTransport, on, tool);
}

const session = await connect();
await cell("list", session.list, [name, "get_execution"]);
for (const [title, [given, expected]] of Object.entries(calls)) {
  const all = async () => {
    const answers = [];
    for (const one of [given].flat()) answers.push(await session.call(one));
    return answers;
  };
  await cell(title, all, expected);
}
// Calls from RINGFENCE_CALLS run without the features.
const features = process.env.RINGFENCE_CALLS ? {} : session;
if (features.resources) await cell("resource", session.resources, ["queue"]);
if (features.cancelled) await cell("progress, cancel", session.cancelled, ["first", "given up", "cancelled"]);
if (features.asked) await cell("question", session.asked, ["approved: true", "docs.example.com"]);
await session.close();
rmSync(home, { recursive: true });
