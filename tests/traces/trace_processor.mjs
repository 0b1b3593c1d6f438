// Ask Perfetto's trace_processor: node tests/traces/trace_processor.mjs TRACE QUERY… prints the rows of each query as a line of JSON.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runInThisContext } from "node:vm";

const FOLDER = new URL("../../.cache/trace-processor/", import.meta.url);
const { EngineBase } = await import(new URL("engine.mjs", FOLDER));

// What it is compiled for: a worker of a browser, whose messages come by a port.
globalThis.self = globalThis;
globalThis.location = { href: FOLDER.href };
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {
  open(_method, name) {
    this.url = new URL(name, FOLDER);
  }

  send() {
    this.response = new Uint8Array(readFileSync(this.url)).buffer;
  }
};
console.warn = () => {}; // of calls of the system that a browser has not

class Engine extends EngineBase {
  mode = "WASM";
  id = "test";

  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (message) => this.onRpcResponseBytes(message.data);
  }

  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

function started() {
  const source = readFileSync(new URL("engine_bundle.node.js", FOLDER), "utf8");
  // The package has the WebAssembly of 32 bits alone; a Node.js that knows 64 would look for the other one.
  const probe = "this.useMemory64 = hasMemory64Support();";
  if (!source.includes(probe)) throw new Error(`engine_bundle.node.js has no ${probe}`);
  runInThisContext(source.replace(probe, "this.useMemory64 = false;"), fileURLToPath(FOLDER));
  const { port1, port2 } = new MessageChannel();
  globalThis.onmessage({ data: port1 });
  return new Engine(port2);
}

// Nanoseconds are more than a number of JavaScript holds: they come as BigInt, which JSON.stringify() refuses.
const json = (value) => (typeof value === "bigint" ? String(value) : JSON.stringify(value));

function rowsOf(result) {
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(`[${columns.map((name) => json(row.get(name))).join()}]`);
  }
  return `[${rows.join()}]`;
}

const [file, ...queries] = process.argv.slice(2);
const engine = started();
await engine.parse(new Uint8Array(readFileSync(file)));
await engine.notifyEof();
for (const query of queries) console.log(rowsOf(await engine.query(query)));
engine.port.close();
