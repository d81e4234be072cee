// h: a chain of operations, every step laid open.
import { bytes, codeline, h, list, onResize, replace, room, say } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button } from "../fields.js";
import { appender, editor, without } from "../chain.js";
import { layout } from "../grid.js";

export const lede = [
  "A program is a chain of tensors; this shows all of them at once.",
  "Each step has its grid and its tape, its address, strides and device, and says whether it moved any bytes to get there.",
  "Any step can be changed or taken out; the same chain stands below as Python and as C++, and the address of this page is the chain: send it to somebody.",
];
export const source = ["lab/operations.cpp", "lab/evaluate.cpp", "ops/views.toml"];

const START = [{ op: "arange", on: [], args: { end: 12 } }, { op: "reshape", on: [0], args: { shape: [3, 4] } }, { op: "transpose", on: [1], args: { dim0: 0, dim1: 1 } }];
const EXPERIMENTS = [
  ["transpose, then flatten", [...START, { op: "reshape", on: [2], args: { shape: [-1] } }]],
  ["view of a transpose", [...START, { op: "view", on: [2], args: { shape: [12] } }]],
  ["expand costs nothing", [{ op: "arange", on: [], args: { end: 4 } }, { op: "expand", on: [0], args: { shape: [3, 4] } }, { op: "contiguous", on: [1], args: {} }]],
  ["every second, and a list", [...START.slice(0, 2), { op: "slice", on: [1], args: { dim: 1, start: 0, stop: 4, step: 2 } }, { op: "rows", on: [1], args: { index: [0, 2] } }]],
  ["channels last", [{ op: "arange", on: [], args: { end: 24 } }, { op: "reshape", on: [0], args: { shape: [1, 2, 3, 4] } }, { op: "channels_last", on: [1], args: {} }]],
  ["softmax by hand", [{ op: "randn", on: [], args: { shape: [2, 5] } }, { op: "amax", on: [0], args: { dim: 1, keepdim: true } }, { op: "sub", on: [0, 1], args: {} }, { op: "exp", on: [2], args: {} }, { op: "sum over", on: [3], args: { dim: 1, keepdim: true } }, { op: "div", on: [3, 4], args: {} }]],
];

export function mount(root, state, remember) {
  const now = { steps: structuredClone(START), ...state };
  if (!Array.isArray(now.steps)) throw new TypeError("steps are a list");
  let past = [], redo = [];
  const error = h("p", { class: "error", role: "alert" });
  const chain = h("div", { id: "chain" }), code = h("div", {}), form = h("div", {}), total = h("p", { class: "readout", id: "memory" });
  let add = null, latest = null;
  const names = () => now.steps.map((_, i) => `x${i}`);
  // Every change of the chain goes through here, so that every one can be undone.
  const set = (steps) => { past.push(now.steps); redo = []; now.steps = steps; refresh(); };
  const undo = () => { if (past.length) { redo.push(now.steps); now.steps = past.pop(); refresh(); } };
  async function edit(i, place) {
    replace(place, await editor(now.steps[i], i, (step) => (step ? set(now.steps.map((old, k) => (k === i ? step : old))) : replace(place))));
    place.querySelector("input, select")?.focus();
  }
  function tools(i, place) {
    return h("span", { class: "pair" }, (now.steps[i].on?.length || Object.keys(now.steps[i].args ?? {}).length) ? button("Edit", () => edit(i, place), "small", { "aria-label": `Edit x${i}` }) : null, button("Remove", () => set(without(now.steps, i)), "small", { "aria-label": `Remove x${i}` }));
  }
  function draw(answer) {
    latest = answer;
    const wide = Math.min(560, room(chain, 560, 240) - 48);
    replace(total, "Memory in all: ", h("em", { "data-bytes": answer.memory }, bytes(answer.memory)), ` in ${answer.storages} storage${answer.storages === 1 ? "" : "s"} for ${answer.steps.length} tensor${answer.steps.length === 1 ? "" : "s"}.`);
    replace(chain, answer.steps.map((step, i) => {
      const place = h("div", {}), [grid, tape, some, places] = layout(step, wide);
      return h("section", { class: "sheet step", "data-step": i, css: { borderLeftColor: `var(--${step.shares ? "share" : "own"})` } },
        h("div", { class: "row tight", css: { justifyContent: "space-between" } }, h("code", { css: { font: "600 14px var(--mono)", overflowWrap: "anywhere", flex: "1 1 160px" } }, `x${i} = ${step.call}`), tools(i, place)),
        place,
        h("p", { class: "note", css: { margin: "6px 0 2px" }, "data-facts": i }, `${step.dtype} ${list(step.shape)} \u00b7 strides ${list(step.strides)} \u00b7 offset ${step.offset} \u00b7 ${step.contiguous ? "contiguous" : "not contiguous"} \u00b7 ${bytes(step.bytes)}`),
        h("p", { class: "note", css: { margin: "0 0 10px" }, "data-pointer": i }, `on ${step.device}, data at ${step.data_ptr}, ${step.shares ? `a view of storage ${step.storage.id}` : `storage ${step.storage.id} of its own, ${bytes(step.storage.bytes)}`}`),
        h("div", { class: "scroll" }, grid), h("div", { class: "scroll", css: { marginTop: "12px" } }, tape), h("p", { class: "note" }, some, places),
        step.copies.filter((c) => c.hidden).map((c) => h("p", { class: "note", css: { margin: "8px 0 0", color: "var(--own)" } }, c.why)));
    }));
    if (answer.error) {
      const place = h("div", {}), at = answer.failed.step;
      chain.append(h("section", { class: "sheet step", "data-failed": true, css: { borderLeftColor: "var(--limit)" } }, h("div", { class: "row tight", css: { justifyContent: "space-between" } }, h("code", { css: { font: "600 14px var(--mono)", overflowWrap: "anywhere", flex: "1 1 160px" } }, `x${at} = ${answer.failed.call}`), tools(at, place)), place, h("p", { class: "error", css: { margin: "10px 0 0" } }, answer.error), button("Take it back", () => set(now.steps.slice(0, at)), "", { css: { marginTop: "12px" } })));
    }
    replace(code, h("h2", {}, "The same chain as code"), codeline("Python", answer.python), codeline("C++", answer.cpp));
    add?.update();
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("playground", { steps: now.steps })));
  }
  const share = async () => { try { await navigator.clipboard.writeText(location.href); say("link copied"); } catch { say("the link is in the address bar"); } };
  replace(root,
    h("div", { class: "stage" }, total, chain), error, h("section", { class: "sheet dock" }, form),
    h("section", { class: "sheet controls" }, h("div", { class: "row tight" }, button("Undo", undo), button("Redo", () => { if (redo.length) { past.push(now.steps); now.steps = redo.pop(); refresh(); } }), button("Clear", () => set([])), button("Copy the link", share)),
      h("div", { class: "field" }, h("span", {}, "Experiments"), h("div", { class: "row tight" }, EXPERIMENTS.map(([name, steps]) => button(name, () => set(structuredClone(steps))))))),
    h("section", { class: "sheet" }, code));
  // A program of one's own: the module is loaded when somebody wants it, and nothing runs before its button is pressed.
  const own = h("section", { class: "sheet controls" }, h("h2", {}, "Your own program"), button("Write or open one", async () => { const { mount: open } = await import("../program.js"); open(own, error); }, "", { id: "own" }));
  root.append(own);
  appender(names, (step) => set([...now.steps, step])).then((made) => { add = made; replace(form, made.element); });
  refresh();
  return onResize(root, () => latest && draw(latest));
}
