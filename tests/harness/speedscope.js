// speedscope's own importers in node: reads files as its page does when they are dropped on it.
// node speedscope.js FOLDER FILE...: FOLDER has speedscope's release (index.html, speedscope-*.js); a list of
// {name, profiles: [{name, unit, total, calls}]} or {error} goes out, `calls` being {function: weight in it and what it calls}.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, ...files] = process.argv.slice(2);

// The page is one script: its last statements draw. What loads a file is named where its page offers it to scripts.
const bundle = fs.readdirSync(folder).find((name) => /^speedscope-.*\.js$/.test(name));
const code = fs.readFileSync(path.join(folder, bundle), "utf8");
const [, loads] = /loadFileFromBase64:\(\w+,\w+\)=>\{this\.loadProfile\(\(\)=>(\w+)\(/.exec(code);
const drawing = code.lastIndexOf("console.log(`speedscope v");
const importer = `${code.slice(0, drawing)}globalThis.loads=${loads}})();`;

// A page that answers every question with something that may be asked, called and made.
const anything = new Proxy(function () {}, {
  get: (_, name) => (name === Symbol.toPrimitive ? () => "" : name === Symbol.iterator ? [][Symbol.iterator].bind([]) : anything),
  set: () => true, apply: () => anything, construct: () => anything,
});
const scope = {
  window: anything, document: anything, navigator: anything, location: anything, localStorage: anything, history: anything,
  TextDecoder, TextEncoder, URL, atob, btoa, performance, setTimeout, clearTimeout, WebAssembly,
  console: { log() {}, warn() {}, error() {} },
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(importer, scope);

function profileOf(profile) {
  const calls = {}, open = [];
  profile.forEachCall(
    (node, value) => { open.push([node.frame.name, value]); },
    (node, value) => {
      const [name, began] = open.pop();
      if (!open.some(([other]) => other === name)) calls[name] = (calls[name] ?? 0) + value - began;
    },
  );
  return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), calls };
}

async function read(file) {
  try {
    const found = await scope.loads(path.basename(file), fs.readFileSync(file).toString("base64"));
    return found ? { name: found.name, profiles: found.profiles.map(profileOf) } : { error: "no format that speedscope knows" };
  } catch (e) {
    return { error: `${e.message}` };
  }
}
Promise.all(files.map(read)).then((found) => console.log(JSON.stringify(found)));
