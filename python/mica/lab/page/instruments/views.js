// d: boxes on storages.
import { bytes, h, list, replace, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button } from "../fields.js";
import { appender } from "../chain.js";

export const lede = [
  "A view is another way to look at memory that somebody else owns; a copy owns its own.",
  "Write into one tensor and every tensor on the same storage changes with it, while copies stay as they were.",
  "reshape gives a view where the strides allow it and a copy where they do not, and says nothing; here it has to say why.",
];
export const source = ["src/composite/copy.cpp", "src/inspect/copies.cpp", "lab/programs.cpp"];

const START = [{ op: "arange", on: [], args: { end: 12 } }, { op: "reshape", on: [0], args: { shape: [3, 4] } }];
const QUICK = [["t()", { op: "t" }], ["reshape(-1)", { op: "reshape", args: { shape: [-1] } }], ["x[1]", { op: "select", args: { dim: 0, index: 1 } }], ["x[::2]", { op: "slice", args: { dim: 0, start: 0, stop: 99, step: 2 } }], ["x[[0, 2]]", { op: "rows", args: { index: [0, 2] } }], ["x[x > 5]", { op: "mask", args: { above: 5 } }], ["expand(2, \u2026)", null], ["clone()", { op: "clone" }], ["contiguous()", { op: "contiguous" }], ["+ 0", { op: "add number", args: { value: 0 } }], ["to(float16)", { op: "to", args: { dtype: "float16" } }]];

export function mount(root, state, remember) {
  const now = { steps: structuredClone(START), writes: [], value: 99, chosen: 1, ...state };
  if (!Array.isArray(now.steps) || !Array.isArray(now.writes)) throw new TypeError("steps and writes are lists");
  const error = h("p", { class: "error", role: "alert" });
  const board = h("div", { id: "board" }), form = h("div", {});
  let answer = null, add = null;
  const names = () => now.steps.map((_, i) => `x${i}`);
  const push = (step) => { now.steps.push(step); now.chosen = now.steps.length - 1; refresh(); };
  function quick(step) {
    const on = [now.chosen];
    if (!step) { const shape = answer.steps[now.chosen].shape; return push({ op: "expand", on, args: { shape: [2, ...shape] } }); }
    push({ args: {}, ...structuredClone(step), on });
  }
  // What is written stays written: later copies take it with them, earlier ones never saw it.
  const write = (tensor, element) => { now.writes.push({ tensor, element, value: now.value, after: now.steps.length }); refresh(); };
  const typed = h("input", { type: "number", step: "any", value: now.value, "aria-label": "Number to write", css: { width: "88px" }, oninput: () => { if (typed.value.trim() !== "" && Number.isFinite(Number(typed.value))) now.value = Number(typed.value); remember(now); } });
  function cells(step, i, owns) {
    const changed = new Set(step.changed), [rows, columns] = step.shape.length > 1 ? step.shape.slice(-2) : [1, step.shape[0] ?? 1];
    const shown = step.values.slice(0, 96).map((value, k) => h("button", { type: "button", class: `value${changed.has(k) ? " changed" : owns ? " owns" : ""}`, "data-tensor": i, "data-element": k, "aria-label": `write into x${i}, element ${k}`, onclick: () => write(i, k) }, short(value, 3)));
    // The last two dimensions make a sheet; the others lay sheets side by side.
    const each = Math.max(1, rows * columns), sheets = [];
    for (let k = 0; k < shown.length; k += each) sheets.push(h("div", { class: step.shape.length > 1 ? "leaf" : "leaf line", css: { gridTemplateColumns: `repeat(${columns}, max-content)` } }, shown.slice(k, k + each)));
    return h("div", { class: "scroll leaves" }, sheets, step.values.length === 0 && step.numel > 0 && h("p", { class: "note" }, `on ${step.device}: a shape without numbers`), step.numel > 96 && h("p", { class: "note" }, `96 of ${step.numel}`));
  }
  function card(step, i) {
    const owns = !step.shares;
    return h("section", { class: "sheet step", "data-step": i, "data-storage": step.storage.id, "data-shares": String(step.shares), css: { borderLeftColor: `var(--${owns ? "own" : "share"})`, outline: i === now.chosen ? "2px solid var(--blue)" : "none" } },
      h("div", { class: "row tight", css: { justifyContent: "space-between" } },
        h("button", { class: "button small", type: "button", "aria-pressed": i === now.chosen, onclick: () => { now.chosen = i; draw(); } }, `x${i}`), h("code", { css: { font: "13px var(--mono)", overflowWrap: "anywhere", flex: 1 } }, step.call), h("span", { class: "note", css: { color: `var(--${owns ? "own" : "share"})`, fontWeight: 600 } }, owns ? "owns" : "shares")),
      h("p", { class: "note", css: { margin: "8px 0" } }, `shape ${list(step.shape)}, strides ${list(step.strides)}, offset ${step.offset}${step.contiguous ? "" : ", not contiguous"}`),
      cells(step, i, owns),
      step.copies.filter((c) => c.hidden || owns).map((c) => h("p", { class: "note", css: { margin: "8px 0 0", color: c.hidden ? "var(--own)" : "" } }, c.why)));
  }
  function draw() {
    const groups = new Map();
    answer.steps.forEach((step, i) => { if (!groups.has(step.storage.id)) groups.set(step.storage.id, []); groups.get(step.storage.id).push([step, i]); });
    replace(board, [...groups.entries()].map(([id, steps]) => h("div", { class: "storage", "data-storage-group": id }, h("h2", {}, `Storage ${id}: ${bytes(steps[0][0].storage.bytes)}, ${steps.length === 1 ? "one tensor" : `${steps.length} tensors`}`), steps.map(([step, i]) => card(step, i)))));
    error.textContent = answer.error;
    add?.update();
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      answer = await ask("views", { steps: now.steps, writes: now.writes });
      if (answer.error) { now.steps = now.steps.slice(0, answer.steps.length); now.chosen = Math.min(now.chosen, now.steps.length - 1); }
      setTimeout(draw);
    });
  }
  const drop = () => { now.writes = now.writes.filter((w) => w.after <= now.steps.length); now.chosen = now.steps.length - 1; refresh(); };
  replace(root,
    h("div", { class: "stage" }, board), error,
    h("section", { class: "sheet controls" }, h("div", { class: "row tight" }, QUICK.map(([label, step]) => button(label, () => quick(step), "code")), h("span", { class: "pair" }, button("Undo", () => { if (now.steps.length > 1) { now.steps.pop(); drop(); } }), button("Reset", () => { now.steps = structuredClone(START); now.writes = []; now.chosen = 1; refresh(); }))),
      form, h("div", { class: "row", css: { gap: "8px" } }, h("label", { class: "field" }, h("span", {}, "Click a number to write"), typed), button("Take the writing back", () => { now.writes.pop(); refresh(); }))),
    h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch-share" }), "shares memory with an earlier tensor"), h("li", {}, h("i", { class: "swatch-own" }), "owns its memory"), h("li", {}, h("i", { class: "swatch-result" }), "changed by what was written"), h("li", {}, "blue outline: the tensor that operations apply to")));
  appender(names, push, ["view", "copy", "math", "reduce", "in place"]).then((made) => { add = made; replace(form, made.element); });
  refresh();
}
