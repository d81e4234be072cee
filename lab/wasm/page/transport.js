// How a question reaches the engine: it is in this page, as WebAssembly, in a worker of its own.
export const served = false;
export const sourceOf = (path) => `source/${path}.txt`; // any server shows such a file instead of saving it

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
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
worker.onerror = (event) => {
  asked?.reject(new Error(event.message || "the engine could not be loaded"));
  asked = null;
  next();
};

// The status, and the answer's text. A question that nobody waits for any more is not put.
export function carry(instrument, question, signal) {
  return new Promise((resolve, reject) => {
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
