// Questions to the engine. A newer question on the same channel makes the older one's answer moot.
const latest = new Map();

export class Refused extends Error {}

export async function ask(instrument, question, channel = instrument) {
  latest.get(channel)?.abort();
  const controller = new AbortController();
  latest.set(channel, controller);
  const response = await fetch(`api/${instrument}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
    signal: controller.signal,
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const answer = await response.json();
  // At most one answer a frame is drawn: of those that come faster, the last.
  await new Promise(requestAnimationFrame);
  controller.signal.throwIfAborted();
  if (!answer.ok) throw new Refused(answer.error);
  return answer.value;
}

// Runs `work`, shows the engine's refusal in `place`, and forgets answers that came too late.
export async function guarded(place, work) {
  try {
    await work();
    place.textContent = "";
  } catch (problem) {
    if (problem.name === "AbortError") return;
    place.textContent = problem.message;
    if (!(problem instanceof Refused)) console.error(problem);
  }
}

let facts;
export const engine = () => (facts ??= ask("engine", {}));
