// A program of the reader's own, run by the engine in a process of its own; each of its tensors opens elsewhere.
import { bytes, h, list, replace, short } from "./dom.js";
import { ask, guarded } from "./engine.js";
import { button } from "./fields.js";
import { served } from "./transport.js";

const START = "import torch\n\nx = torch.arange(12.).reshape(3, 4)\ny = x.t()\nz = y.reshape(-1)\nw = torch.randn(4, 2, requires_grad=True)\nloss = (x @ w).tanh().mean()\nprint(z, loss.item())\n";
const link = (letter, state, words) => h("a", { class: "button small", href: `#${letter}?${encodeURIComponent(JSON.stringify(state))}` }, words);
const DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "bool"];

export function mount(place, error) {
  if (!served) return replace(place, h("h2", {}, "Your own program"), h("p", { class: "note", id: "needs" }, "This page has no Python. ", h("code", {}, "mica lab"), ", on a machine of your own, runs your programs and opens their tensors here."));
  const area = h("textarea", { rows: 12, "aria-label": "Program", spellcheck: "false", autocapitalize: "off", id: "program" });
  area.value = START;
  const results = h("div", { id: "made" });
  const picker = h("input", { type: "file", accept: ".py,text/x-python", "aria-label": "A Python program", onchange: async () => { if (picker.files[0]) area.value = await picker.files[0].text(); } });
  // Where a tensor can be looked at: its geometry, its storage with the others on it, its backward graph.
  function ways(t, all) {
    const small = t.strides && t.elements >= 1 && t.elements <= 256 && t.bytes <= 1024 * 256;
    const chain = (one, on) => ({ op: "as_strided", on: [on], args: { size: one.shape, stride: one.strides, offset: one.offset } });
    const group = small ? all.filter((o) => o.storage === t.storage && o.strides) : [];
    return [small && DTYPES.includes(t.dtype) && link("c", { shape: t.shape, strides: t.strides, offset: t.offset, elements: t.elements, dtype: t.dtype }, "c"),
      small && link("d", { steps: [{ op: "arange", on: [], args: { end: t.elements } }, ...group.slice(0, 20).map((o) => chain(o, 0))], chosen: 1 + Math.min(19, group.indexOf(t)) }, "d"),
      t.graph && link("j", { graph: t.graph, view: "graph" }, "j")];
  }
  function draw(answer) {
    replace(results,
      answer.error && h("p", { class: "error", "data-line": answer.error.line }, `${answer.error.line ? `line ${answer.error.line}: ` : ""}${answer.error.kind}: ${answer.error.message}`),
      answer.printed && h("pre", { class: "codeline", id: "printed" }, answer.printed),
      answer.tensors.length > 0 && h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["line", "made by", "tensor", "strides", "memory", "values", "open in"].map((t) => h("th", {}, t)))), h("tbody", {}, answer.tensors.map((t) => h("tr", { "data-made": t.operation, "data-line": t.line }, h("td", { class: "n" }, t.line), h("td", { class: "m" }, t.operation), h("td", { class: "m whole" }, `${t.dtype} ${list(t.shape)}`), h("td", { class: "m whole" }, t.strides ? list(t.strides) : "\u2013"), h("td", { css: { color: `var(--${t.shares ? "share" : "own"})` } }, t.strides ? `${t.shares ? "view of" : "storage"} ${t.storage}, ${bytes(t.bytes)}` : "\u2013"), h("td", { class: "m" }, t.values ? `${t.values.slice(0, 4).map((v) => short(v, 3)).join(", ")}${t.values.length > 4 ? " \u2026" : ""}` : ""), h("td", { class: "whole" }, ways(t, answer.tensors))))))),
      answer.more > 0 && h("p", { class: "note" }, `${answer.more} more tensors are not shown.`),
      h("p", { class: "note" }, `Ran in a process of its own: five seconds, 2 GB, no network${answer.kernel.network ? "" : " (by Python's audit hook alone)"}, no files but a folder that is gone now${answer.kernel.files ? "" : " (by Python's audit hook alone)"}.`));
  }
  const go = button("Run", () => guarded(error, async () => {
    go.disabled = true;
    replace(results, h("p", { class: "note" }, "running \u2026"));
    try { draw(await ask("execute", { source: area.value })); } catch (problem) { replace(results); throw problem; } finally { go.disabled = false; }
  }), "main", { id: "go" });
  replace(place, h("h2", {}, "Your own program"), area, h("div", { class: "row tight" }, go, h("label", { class: "button small file" }, "open a file", picker), h("span", { class: "note" }, "`torch` means Mica here.")), results);
  area.focus();
}
