// How a question reaches the engine: over HTTP, to the one that serves this page. lab/wasm/page has another of these.
export const served = true;
export const sourceOf = (path) => `source/${path}`;

// The status, and the answer's text.
export async function carry(instrument, question, signal) {
  const response = await fetch(`api/${instrument}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: question, signal });
  return [response.status, await response.text()];
}
