// The start page's small pictures: each is drawn from an answer of its instrument.
import { s, short } from "./dom.js";
import { ask } from "./engine.js";

const W = 320, H = 96;
const svg = (...parts) => s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H }, parts);
const rect = (x, y, width, height, colour) => s("rect", { x, y, width: Math.max(1, width), height, rx: 2, fill: `var(--${colour})` });
const text = (x, y, words) => s("text", { class: "s", x, y, "text-anchor": "middle" }, words);
const chain = [{ op: "arange", args: { end: 12 } }, { op: "reshape", on: [0], args: { shape: [3, 4] } }, { op: "t", on: [1] }, { op: "reshape", on: [2], args: { shape: [-1] } }];
const grid = (shape, values, x0, colour, size = 24) => values.map((v, i) => s("g", { transform: `translate(${x0 + (i % shape[1]) * (size + 2)} ${6 + Math.floor(i / shape[1]) * (size + 2)})` }, rect(0, 0, size, size, `${colour}-wash`), text(size / 2, size / 2 + 4, short(v, 3))));

const THUMBS = {
  a: ["fit", { parameters: 6738.4e6, layers: 32, width: 4096, heads: 32, length: 2048 }, (a) => [a.rows.slice(0, 5).map((r, i) => r.parts.reduce(([x, list], p) => { const w = (p.bytes / 32e9) * W; return [x + w, [...list, rect(x, 6 + i * 17, w - 1, 12, p.name === "weights" ? "share" : "own")]]; }, [0, []])[1]), s("line", { x1: (24 / 32) * W, x2: (24 / 32) * W, y1: 0, y2: H, stroke: "var(--limit)", "stroke-width": 2 })].flat(2)],
  b: ["calculator", { shape: [32, 3, 224, 224] }, (a) => a.widths.map((w, i) => [rect(60, 6 + i * 18, (w.bytes / a.widths[0].bytes) * (W - 64), 12, "share"), s("text", { class: "s", x: 52, y: 16 + i * 18, "text-anchor": "end" }, `${w.element} B`)]).flat()],
  c: ["strides", { shape: [4, 3], strides: [1, 4], offset: 0, elements: 12 }, (a) => [grid(a.shape, a.values, 0, "share", 20), a.tape.map((v, i) => [rect(100 + i * 18, 38, 16, 22, i === 6 ? "share" : "share-wash"), text(108 + i * 18, 53, i === 6 ? "" : v)])].flat(2)],
  d: ["views", { steps: chain, writes: [{ tensor: 1, element: 5, value: 99, after: 4 }] }, (a) => [grid([3, 4], a.steps[1].values, 0, "share"), grid([3, 4], a.steps[3].values, 130, "own")].flat()],
  e: ["broadcasting", { shapes: [[3, 1], [1, 4]] }, (a) => [grid([3, 1], a.inputs[0].values, 0, "own"), text(38, 46, "+"), grid([1, 4], a.inputs[1].values, 50, "share"), text(168, 46, "="), grid([3, 4], a.result.values, 182, "result")].flat()],
  f: ["precision", { curve: "sine", amplitude: 70000, dtypes: ["float16"], points: 129 }, (a) => { const x = (i) => (i / 128) * W, y = (v) => H / 2 - (v / 80000) * (H / 2); return [...a.rows[0].values.map((v, i) => typeof v !== "number" && rect(x(i) - 1, 0, 3.5, H, "limit-wash")), s("path", { d: a.exact.map((v, i) => `${i ? "L" : "M"}${x(i)} ${y(v)}`).join(""), fill: "none", stroke: "var(--faint)" }), s("path", { d: a.rows[0].values.map((v, i) => (typeof v === "number" ? `${typeof a.rows[0].values[i - 1] === "number" ? "L" : "M"}${x(i)} ${y(v)}` : "")).join(""), fill: "none", stroke: "var(--own)", "stroke-width": 2 })]; }],
  g: ["transfer", { n: 4096, dtype: "float16", measure: false }, (a) => { const r = a.rows.find((m) => m.name === "A100").overlapped, x = (t) => (t / r.seconds) * W; return r.batches.map((b) => [rect(x(b.transfer[0]), 14, x(b.transfer[1]) - x(b.transfer[0]) - 2, 26, "own"), rect(x(b.compute[0]), 52, x(b.compute[1]) - x(b.compute[0]) - 2, 26, "share")]).flat(); }],
  h: ["playground", { steps: chain }, (a) => a.steps.map((t, i) => [rect(i * 80, 30, 66, 36, t.shares ? "share-wash" : "own-wash"), text(i * 80 + 33, 52, `(${t.shape})`), i > 0 && s("line", { x1: i * 80 - 13, x2: i * 80 - 1, y1: 48, y2: 48, stroke: "var(--soft)" })]).flat()],
  i: ["sparse", { n: 256, layouts: true }, (a) => { const y = (b) => H - 4 - (b / (2 * a.dense_bytes)) * (H - 8); return [s("line", { x1: 0, x2: W, y1: y(a.dense_bytes), y2: y(a.dense_bytes), stroke: "var(--ink)", "stroke-width": 2 }), a.layouts.slice(0, 2).map((l, k) => [s("line", { x1: 0, x2: W, y1: y(l.bytes_full), y2: y(l.bytes_empty), stroke: `var(--${k ? "share" : "own"})`, "stroke-width": 2 }), s("circle", { cx: l.crossover * W, cy: y(a.dense_bytes), r: 5, fill: `var(--${k ? "share" : "own"})` })])].flat(2); }],
  j: ["graph", { steps: [{ op: "randn", args: { shape: [3, 4] } }, { op: "requires_grad_", on: [0] }, { op: "exp", on: [1] }, { op: "mean", on: [2] }] }, (a) => a.nodes.map((n, i) => [rect(i * 108, 32, 100, 32, n.leaf ? "own-wash" : "share-wash"), s("text", { class: "s", x: i * 108 + 50, y: 52, "text-anchor": "middle" }, n.name.replace(/Backward0|Grad$/, "")), i > 0 && s("line", { x1: i * 108 - 8, x2: i * 108, y1: 48, y2: 48, stroke: "var(--soft)" })]).flat()],
  l: ["einsum", { equation: "ik,kj->ij" }, (a) => [grid(a.inputs[0].shape, a.inputs[0].values, 0, "own", 22), grid(a.inputs[1].shape, a.inputs[1].values, 90, "share", 22), grid(a.result.shape, a.result.values, 210, "result", 26)].flat()],
  m: ["quiz", { number: 1003 }, (a) => [...a.before.map((b, i) => [rect(0, 8 + i * 26, 150, 22, "share-wash"), text(75, 23 + i * 26, `(${b.shape})`)]), [rect(170, 34, 140, 30, "result-wash"), text(240, 53, "?")]].flat()],
  // It measures the machine, which takes longest.
  k: ["roofline", { elements: 65536 }, (a) => { const x = (v) => ((Math.log10(v) + 2) / 5) * W, y = (v) => H - 4 - ((Math.log10(v) - 7) / (Math.log10(a.machine.flops) - 7)) * (H - 12); return [s("path", { d: `M0 ${y(a.machine.bandwidth / 100)}L${x(a.machine.ridge)} ${y(a.machine.flops)}H${W}`, fill: "none", stroke: "var(--ink)", "stroke-width": 2 }), ...a.rows.filter((r) => r.operations).map((r) => s("circle", { cx: x(r.intensity), cy: Math.min(H - 4, y(r.speed)), r: 4, fill: "var(--share)" })), s("line", { x1: x(a.machine.ridge), x2: x(a.machine.ridge), y1: y(a.machine.flops), y2: H, stroke: "var(--edge)" }), s("line", { x1: 0, x2: W, y1: H - 1, y2: H - 1, stroke: "var(--edge)" })]; }],
};

export async function draw(page) {
  for (const [letter, [name, question, picture]] of Object.entries(THUMBS)) {
    const place = page.querySelector(`[data-thumb=${letter}]`);
    if (!place?.isConnected) return;
    try { place.replaceChildren(svg(picture(await ask(name, question, `thumb-${letter}`)))); } catch { /* a card without a picture still leads there */ }
  }
}
