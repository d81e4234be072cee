// Questions to the engine. A newer question on the same channel makes the older one's answer moot.
import { carry } from "./transport.js";

const latest = new Map();

export class Refused extends Error {}

export async function ask(instrument, question, channel = instrument) {
  latest.get(channel)?.abort();
  const controller = new AbortController();
  latest.set(channel, controller);
  const [status, text] = await carry(instrument, JSON.stringify(question), controller.signal);
  if (status !== 200) throw new Error(`${status}: ${text}`);
  const answer = JSON.parse(text);
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
