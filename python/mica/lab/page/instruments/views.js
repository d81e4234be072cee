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
export const source = ["src/composite/copy.cpp", "src/inspect/copies.cpp", "src/views/views.cpp"];

const START = [{ op: "arange", on: [], args: { end: 12 } }, { op: "reshape", on: [0], args: { shape: [3, 4] } }];
const QUICK = [["t()", { op: "t" }], ["reshape(-1)", { op: "reshape", args: { shape: [-1] } }], ["select(0, 1)", { op: "select", args: { dim: 0, index: 1 } }], ["expand(2, \u2026)", null], ["clone()", { op: "clone" }], ["contiguous()", { op: "contiguous" }], ["+ 0", { op: "add number", args: { value: 0 } }], ["to(float16)", { op: "to", args: { dtype: "float16" } }]];

export function mount(root, state, remember) {
  const now = { steps: structuredClone(START), write: null, chosen: 1, ...state };
  if (!Array.isArray(now.steps)) throw new TypeError("steps are a list");
  const error = h("p", { class: "error", role: "alert" });
  const board = h("div", { id: "board" }), form = h("div", {});
  let answer = null, add = null;
  const names = () => now.steps.map((_, i) => `x${i}`);
  const push = (step) => { now.steps.push(step); now.write = null; now.chosen = now.steps.length - 1; refresh(); };
  function quick(step) {
    const on = [now.chosen];
    if (!step) { const shape = answer.steps[now.chosen].shape; return push({ op: "expand", on, args: { shape: [2, ...shape] } }); }
    push({ args: {}, ...structuredClone(step), on });
  }
  function card(step, i) {
    const owns = !step.shares;
    const changed = new Set(step.changed ?? []);
    const columns = step.shape.at(-1) ?? 1;
    const cells = step.values.slice(0, 96).map((value, k) => h("button", { type: "button", class: "value", "data-tensor": i, "data-element": k, "aria-label": `write into x${i}, element ${k}`,
      css: { background: changed.has(k) ? "var(--own)" : owns ? "var(--own-wash)" : "var(--share-wash)", color: changed.has(k) ? "var(--on)" : "inherit", border: "0", borderRadius: "4px", minWidth: "34px", height: "28px", font: "12.5px var(--mono)", cursor: "pointer", padding: "0 4px" },
      onclick: () => { now.write = { tensor: i, element: k, value: 99 }; refresh(); } }, short(value, 3)));
    return h("section", { class: "sheet", "data-step": i, "data-storage": step.storage.id, "data-shares": String(step.shares), css: { borderLeft: `4px solid var(--${owns ? "own" : "share"})`, outline: i === now.chosen ? "2px solid var(--blue)" : "none", marginBottom: "12px", padding: "16px" } },
      h("div", { class: "row tight", css: { justifyContent: "space-between" } },
        h("button", { class: "button small", type: "button", "aria-pressed": i === now.chosen, onclick: () => { now.chosen = i; draw(); } }, `x${i}`), h("code", { css: { font: "13px var(--mono)", overflowWrap: "anywhere", flex: 1 } }, step.call), h("span", { class: "note", css: { color: `var(--${owns ? "own" : "share"})`, fontWeight: 600 } }, owns ? "owns" : "shares")),
      h("p", { class: "note", css: { margin: "8px 0" } }, `shape ${list(step.shape)}, strides ${list(step.strides)}, offset ${step.offset}${step.contiguous ? "" : ", not contiguous"}`),
      h("div", { class: "scroll" }, h("div", { css: { display: "grid", gridTemplateColumns: `repeat(${columns}, max-content)`, gap: "3px" } }, cells)),
      step.copies.filter((c) => c.hidden || owns).map((c) => h("p", { class: "note", css: { margin: "8px 0 0", color: c.hidden ? "var(--own)" : "" } }, c.why)));
  }
  function draw() {
    const groups = new Map();
    answer.steps.forEach((step, i) => { if (!groups.has(step.storage.id)) groups.set(step.storage.id, []); groups.get(step.storage.id).push([step, i]); });
    replace(board, [...groups.entries()].map(([id, steps]) => h("div", { class: "storage", "data-storage-group": id }, h("h2", {}, `Storage ${id}: ${bytes(steps[0][0].storage.bytes)}, ${steps.length === 1 ? "one tensor" : `${steps.length} tensors`}`), steps.map(([step, i]) => card(step, i)))));
    board.style.display = "grid";
    board.style.gridTemplateColumns = "repeat(auto-fit, minmax(min(100%, 320px), 1fr))";
    board.style.gap = "24px";
    error.textContent = answer.error;
    add?.update();
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      answer = await ask("views", { steps: now.steps, write: now.write });
      if (answer.error) { now.steps = now.steps.slice(0, answer.steps.length); now.chosen = Math.min(now.chosen, now.steps.length - 1); }
      setTimeout(draw);
    });
  }
  replace(root,
    h("section", { class: "sheet" }, h("div", { class: "row tight" }, QUICK.map(([label, step]) => button(label, () => quick(step), "code")), h("span", { class: "pair" }, button("Undo", () => { if (now.steps.length > 1) { now.steps.pop(); now.write = null; now.chosen = now.steps.length - 1; refresh(); } }), button("Reset", () => { now.steps = structuredClone(START); now.write = null; now.chosen = 1; refresh(); }))),
      h("div", { css: { height: "16px" } }), form),
    h("p", { class: "note" }, "Operations apply to the tensor with the blue outline. Click a number to write 99 into it."),
    error, board,
    h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch-share" }), "shares memory with an earlier tensor"), h("li", {}, h("i", { class: "swatch-own" }), "owns its memory")));
  appender(names, push, ["view", "copy", "math", "reduce", "in place"]).then((made) => { add = made; replace(form, made.element); });
  refresh();
}
