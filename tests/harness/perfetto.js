// Perfetto's own trace processor (the WebAssembly of its user interface) in node: loads a trace and answers queries.
// node perfetto.js FOLDER TRACE: FOLDER has engine_bundle.js and the .wasm files; the queries come in as a JSON list, a list of
// {columns, rows, error} goes out. Sources: Perfetto's src/trace_processor/rpc (TraceProcessorRpc and QueryResult in
// protos/perfetto/trace_processor/trace_processor.proto), ui/src/engine/wasm_bridge.ts.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, trace] = process.argv.slice(2);

// ---- the scope of a web worker, in which the bundle finds its files beside it
const bytesOf = (name) => new Uint8Array(fs.readFileSync(path.join(folder, path.basename(name)))).buffer;
class Request {
  open(method, name) { this.name = name; }
  send() { this.status = 200; this.response = bytesOf(this.name); }
}
const scope = {
  TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, console: { log() {}, warn() {}, error() {} },
  XMLHttpRequest: Request, WorkerGlobalScope: Object, importScripts() {}, location: { href: "engine_bundle.js" },
  crypto: globalThis.crypto ?? require("crypto").webcrypto,
  fetch: async (name) => new Response(bytesOf(name), { headers: { "Content-Type": "application/wasm" } }),
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), scope);
const Bytes = vm.runInContext("Uint8Array", scope);  // the scope's own: the bundle asks what it is given of which class it is

// ---- protocol buffers, as far as they are needed
function varint(number) {
  const out = [];
  for (let n = BigInt(number); ; n >>= 7n) {
    if (n < 128n) return [...out, Number(n)];
    out.push(Number(n & 127n) | 128);
  }
}
const number = (field, value) => Buffer.from([...varint(field << 3), ...varint(value)]);
const piece = (field, data) => Buffer.concat([Buffer.from([...varint((field << 3) | 2), ...varint(data.length)]), data]);
function* fieldsOf(data) {
  let at = 0;
  const take = () => {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = data[at++];
      n |= BigInt(byte & 127) << shift;
      if (byte < 128) return n;
    }
  };
  while (at < data.length) {
    const key = Number(take()), kind = key & 7;
    if (kind === 0) yield [key >> 3, take()];
    else if (kind === 2) { const size = Number(take()); yield [key >> 3, data.subarray(at, at + size)]; at += size; }
    else { const size = kind === 1 ? 8 : 4; yield [key >> 3, data.subarray(at, at + size)]; at += size; }
  }
}
function* numbersOf(data) {
  let n = 0n, shift = 0n;
  for (const byte of data) {
    n |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) { yield BigInt.asIntN(64, n); n = shift = 0n; }
  }
}

// ---- requests: TraceProcessorRpc.request is field 2, its arguments 101 (bytes of the trace) and 103 (a query)
const APPEND = 1, FINALIZE = 2, QUERY = 3, MOST = 16 << 20;
let sequence = 0, buffered = Buffer.alloc(0);
const answers = [];
const port = {
  onmessage: null,
  postMessage(data) {  // a stream of messages: one may come in several pieces, and several in one
    buffered = Buffer.concat([buffered, Buffer.from(data)]);
    for (;;) {
      let at = 1, size = 0;
      if (buffered.length < 2) return;
      for (let shift = 0; ; shift += 7) { const byte = buffered[at++]; size += (byte & 127) * 2 ** shift; if (byte < 128) break; }
      if (buffered.length < at + size) return;
      answers.push(buffered.subarray(at, at + size));
      buffered = buffered.subarray(at + size);
    }
  },
};
function ask(method, ...args) {
  answers.length = 0;
  const message = Buffer.concat([number(1, ++sequence), number(2, method), ...args]);
  port.onmessage({ data: Bytes.from(piece(1, message)) });
  for (const answer of answers) for (const [field, value] of fieldsOf(answer)) if (field === 5) throw new Error(`${value}`);
  return answers.slice();
}

function query(text) {
  const columns = [], cells = [];
  let error = "";
  for (const answer of ask(QUERY, piece(103, piece(1, Buffer.from(text))))) {
    for (const [field, result] of fieldsOf(answer)) {
      if (field !== 203) continue;
      for (const [what, value] of fieldsOf(result)) {
        if (what === 1) columns.push(`${value}`);
        else if (what === 2) error = `${value}`;
        else if (what === 3) cells.push(...cellsOf(value));
      }
    }
  }
  const rows = [];
  for (let i = 0; i < cells.length; i += columns.length) rows.push(cells.slice(i, i + columns.length));
  return { columns, rows, error };
}
function cellsOf(batch) {  // CellsBatch: kinds of the cells, and the values of each kind by themselves
  let kinds = [], whole = [], real = [], strings = [];
  for (const [field, value] of fieldsOf(batch)) {
    if (field === 1) kinds = [...value];
    else if (field === 2) whole = [...numbersOf(value)];
    else if (field === 3) for (let i = 0; i < value.length; i += 8) real.push(value.readDoubleLE(i));
    else if (field === 5) strings = `${value}`.split("\0");
  }
  return kinds.map((kind) => (kind === 2 ? Number(whole.shift()) : kind === 3 ? real.shift() : kind === 4 ? strings.shift() : null));
}

async function main() {
  scope.onmessage({ data: port });
  while (port.onmessage === null) await new Promise((go) => setTimeout(go, 10));
  await new Promise((go) => setTimeout(go, 0));
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += MOST) ask(APPEND, piece(101, data.subarray(at, at + MOST)));
  ask(FINALIZE);
  console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, "utf8")).map(query)));
}
main().catch((e) => { console.error(`${e.stack}`); process.exitCode = 1; });
