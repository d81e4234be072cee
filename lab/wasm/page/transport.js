// How a question reaches the engine: it is in this page, as WebAssembly, in a worker of its own.
export const served = false;
export const sourceOf = (path) => `source/${path}.txt`; // any server shows such a file instead of saving it

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
// The engine is compiled as it arrives, while the worker starts; by its bytes where a server does not know what the file is.
const file = new URL("./lab_engine.wasm", import.meta.url);
const compiled = WebAssembly.compileStreaming(fetch(file)).catch(async () => WebAssembly.compile(await (await fetch(file)).arrayBuffer()));
compiled.then((module) => worker.postMessage(module), (problem) => fail(problem.message));

const waiting = []; // questions that the worker has not been given
let asked = null; // the one that it has

function next() {
  if (asked || !waiting.length) return;
  asked = waiting.shift();
  worker.postMessage([asked.instrument, asked.question]);
}
worker.onmessage = ({ data }) => {
  const { resolve } = asked;
  asked = null;
  next();
  resolve(data);
};
let lost = null; // why there is no engine
function fail(why) {
  lost = new Error(`the engine could not be loaded: ${why}`);
  [asked, ...waiting.splice(0)].forEach((entry) => entry?.reject(lost));
  asked = null;
}
worker.onerror = (event) => fail(event.message || "its worker did not start");

// The status, and the answer's text. A question that nobody waits for any more is not put.
export function carry(instrument, question, signal) {
  return new Promise((resolve, reject) => {
    if (lost) return reject(lost);
    const entry = { instrument, question, resolve, reject };
    signal.addEventListener("abort", () => {
      const at = waiting.indexOf(entry);
      if (at >= 0) waiting.splice(at, 1);
      reject(signal.reason);
    }, { once: true });
    waiting.push(entry);
    next();
  });
}
