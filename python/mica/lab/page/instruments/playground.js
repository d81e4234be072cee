// h: a chain of operations, every step laid open.
import { bytes, codeline, h, list, replace, say, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button } from "../fields.js";
import { appender } from "../chain.js";

export const lede = [
  "A program is a chain of tensors; this shows all of them at once.",
  "Each step has its shape, strides, storage and values, and says whether it moved any bytes to get there.",
  "The same chain stands below as Python and as C++, and the address of this page is the chain: send it to somebody.",
];
export const source = ["lab/operations.cpp", "lab/evaluate.cpp", "ops/views.toml"];

const START = [{ op: "arange", on: [], args: { end: 12 } }, { op: "reshape", on: [0], args: { shape: [3, 4] } }, { op: "transpose", on: [1], args: { dim0: 0, dim1: 1 } }];
const EXPERIMENTS = [
  ["transpose, then flatten", [...START, { op: "reshape", on: [2], args: { shape: [-1] } }]],
  ["view of a transpose", [...START, { op: "view", on: [2], args: { shape: [12] } }]],
  ["expand costs nothing", [{ op: "arange", on: [], args: { end: 4 } }, { op: "expand", on: [0], args: { shape: [3, 4] } }, { op: "contiguous", on: [1], args: {} }]],
  ["softmax by hand", [{ op: "randn", on: [], args: { shape: [2, 5] } }, { op: "amax", on: [0], args: { dim: 1, keepdim: true } }, { op: "sub", on: [0, 1], args: {} }, { op: "exp", on: [2], args: {} }, { op: "sum over", on: [3], args: { dim: 1, keepdim: true } }, { op: "div", on: [3, 4], args: {} }]],
];

export function mount(root, state, remember) {
  const now = { steps: structuredClone(START), ...state };
  if (!Array.isArray(now.steps)) throw new TypeError("steps are a list");
  const redo = [];
  const error = h("p", { class: "error", role: "alert" });
  const chain = h("div", { id: "chain" }), code = h("div", {}), form = h("div", {});
  let add = null;
  const names = () => now.steps.map((_, i) => `x${i}`);
  const push = (step) => { now.steps.push(step); redo.length = 0; refresh(); };
  const undo = () => { if (now.steps.length) { redo.push(now.steps.pop()); refresh(); } };
  function values(step) {
    const columns = step.shape.at(-1) ?? 1, rows = step.shape.length > 1 ? step.shape.at(-2) : 1;
    const shown = step.values.slice(0, Math.min(step.values.length, columns * Math.min(rows, 8)));
    const grid = h("div", { css: { display: "grid", gridTemplateColumns: `repeat(${Math.min(columns, 16)}, max-content)`, gap: "0 14px", font: "12.5px/20px var(--mono)", fontVariantNumeric: "tabular-nums" } }, shown.filter((_, k) => k % columns < 16).map((v) => h("span", { css: { textAlign: "right" } }, short(v))));
    return h("div", { class: "scroll" }, grid, step.numel > shown.length && h("span", { class: "note" }, `\u2026 ${step.numel} in all`));
  }
  function draw(answer) {
    replace(chain, answer.steps.map((step, i) => {
      const moved = step.copies.length > 0 || !step.shares;
      return h("section", { class: "sheet", "data-step": i, css: { borderLeft: `4px solid var(--${step.shares ? "share" : "own"})`, marginBottom: "12px", padding: "16px 20px" } },
        h("div", { class: "row tight", css: { justifyContent: "space-between" } }, h("code", { css: { font: "600 14px var(--mono)", overflowWrap: "anywhere" } }, `x${i} = ${step.call}`), h("span", { class: "note" }, step.shares ? `view of storage ${step.storage.id}` : `storage ${step.storage.id}, ${bytes(step.storage.bytes)}`)),
        h("p", { class: "note", css: { margin: "6px 0 10px" }, "data-facts": i }, `${step.dtype} ${list(step.shape)} \u00b7 strides ${list(step.strides)} \u00b7 offset ${step.offset} \u00b7 ${step.contiguous ? "contiguous" : "not contiguous"} \u00b7 ${bytes(step.bytes)}`),
        values(step), step.copies.filter((c) => c.hidden).map((c) => h("p", { class: "note", css: { margin: "8px 0 0", color: "var(--own)" } }, c.why)), moved ? null : null);
    }));
    if (answer.error) chain.append(h("section", { class: "sheet", "data-failed": true, css: { borderLeft: "4px solid var(--limit)", padding: "16px 20px" } }, h("code", { css: { font: "600 14px var(--mono)" } }, `x${answer.failed.step} = ${answer.failed.call}`), h("p", { class: "error", css: { margin: "10px 0 0" } }, answer.error), button("Take it back", undo, "", { css: { marginTop: "12px" } })));
    replace(code, h("h2", {}, "The same chain as code"), codeline("Python", answer.python), codeline("C++", answer.cpp));
    add?.update();
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("playground", { steps: now.steps })));
  }
  const share = async () => { try { await navigator.clipboard.writeText(location.href); say("link copied"); } catch { say("the link is in the address bar"); } };
  replace(root,
    h("section", { class: "sheet" }, form, h("div", { class: "row tight", css: { marginTop: "16px" } }, button("Undo", undo), button("Redo", () => { if (redo.length) { now.steps.push(redo.pop()); refresh(); } }), button("Clear", () => { now.steps = []; refresh(); }), button("Copy the link", share)),
      h("div", { class: "field", css: { marginTop: "16px" } }, h("span", {}, "Experiments"), h("div", { class: "row tight" }, EXPERIMENTS.map(([name, steps]) => button(name, () => { now.steps = structuredClone(steps); redo.length = 0; refresh(); }))))),
    error, chain, h("section", { class: "sheet" }, code));
  appender(names, push).then((made) => { add = made; replace(form, made.element); });
  refresh();
}
