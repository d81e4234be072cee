// The engine: lab/ and the library, compiled by emscripten. One question at a time.
// The page has fetched and compiled it meanwhile, and sends it as its first message.
import make from "./lab_engine.js";

let arrived;
const compiled = new Promise((resolve) => (arrived = resolve));

async function load() {
  const module = await compiled;
  const instantiateWasm = (imports, done) => (WebAssembly.instantiate(module, imports).then((made) => done(made, module)), {});
  return make({ instantiateWasm });
}
let engine = load();

function ask(module, instrument, question) {
  const texts = [instrument, question].map((text) => {
    const size = module.lengthBytesUTF8(text) + 1, place = module._malloc(size);
    module.stringToUTF8(text, place, size);
    return place;
  });
  const told = module.UTF8ToString(module._mica_lab_ask(...texts));
  texts.forEach((place) => module._free(place));
  return [Number(told.slice(0, 3)), told.slice(3)];
}

onmessage = async ({ data }) => {
  if (data instanceof WebAssembly.Module) return arrived(data);
  try {
    postMessage(ask(await engine, ...data));
  } catch (problem) {
    // The engine stopped, for want of memory or of a kernel that is not in this page: the next question finds a new one.
    engine = load();
    const error = `the engine in this page stopped (${problem.message ?? problem}); \`mica lab\`, on a machine of your own, has all of it`;
    postMessage([200, JSON.stringify({ ok: false, error })]);
  }
};
