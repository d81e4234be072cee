// j: what autograd keeps, and a training as it runs.
import { bytes, codeline, h, list, onResize, replace, room, s, seconds, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, segments } from "../fields.js";
import { appender } from "../chain.js";
import { figure } from "../save.js";
import { drawRanks } from "../ranks.js";
import { served } from "../transport.js";

export const lede = [
  "While the forward pass runs, autograd writes down its mirror image.",
  "It has one node for each operation, with the tensors that its derivative will need: they are why training takes more memory than inference.",
  "mica.lab.watch(model) in a program shows the same of a training while it runs.",
];
export const errata = true;
export const source = ["src/autograd/engine.cpp", "src/autograd/saved_tensor.cpp", "lab/programs.cpp"];

const START = [{ op: "randn", on: [], args: { shape: [3, 4] } }, { op: "requires_grad_", on: [0], args: {} }, { op: "randn", on: [], args: { shape: [4, 2] } }, { op: "matmul", on: [1, 2], args: {} }, { op: "tanh", on: [3], args: {} }, { op: "mean", on: [4], args: {} }];
const KINDS = [["parameters", "share"], ["buffers", "faint"], ["gradients", "own"], ["optimizer state", "result"], ["activations", "blue"], ["temporaries", "edge"], ["other", "soft"]];

export function mount(root, state, remember) {
  const now = { steps: structuredClone(START), view: "graph", ...state };
  if (!Array.isArray(now.steps)) throw new TypeError("steps are a list");
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), table = h("div", { class: "scroll" }), code = h("div", {}), form = h("div", {}), live = h("div", {}), total = h("p", { class: "readout" });
  let add = null;
  const push = (step) => { delete now.graph; now.steps.push(step); refresh(); };

  function draw(answer) {
    // Depth: the longest way from a node that nothing follows.
    const depth = new Array(answer.nodes.length).fill(0);
    for (let round = 0; round < answer.nodes.length; round += 1) for (const { from, to } of answer.edges) depth[to] = Math.max(depth[to], depth[from] + 1);
    const rows = [];
    depth.forEach((d, i) => (rows[d] ??= []).push(i));
    const W = 176, H = 44, GX = 20, GY = 36;
    const wide = Math.max(1, ...rows.map((r) => r.length)), width = wide * (W + GX) - GX, height = Math.max(H, rows.length * (H + GY) - GY);
    const at = {};
    rows.forEach((row, d) => row.forEach((node, k) => (at[node] = [(width - (row.length * (W + GX) - GX)) / 2 + k * (W + GX), d * (H + GY)])));
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "The backward graph, the loss on top" }, s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0 8 4 0 8Z", fill: "var(--soft)" }))));
    for (const { from, to } of answer.edges) svg.append(s("path", { d: `M${at[from][0] + W / 2} ${at[from][1] + H}C${at[from][0] + W / 2} ${at[from][1] + H + 20} ${at[to][0] + W / 2} ${at[to][1] - 20} ${at[to][0] + W / 2} ${at[to][1] - 2}`, fill: "none", stroke: "var(--soft)", "stroke-width": 1.5, "marker-end": "url(#tip)" }));
    answer.nodes.forEach((node, i) => svg.append(s("g", { transform: `translate(${at[i][0]} ${at[i][1]})`, "data-node": node.name }, s("rect", { width: W, height: H, rx: 6, fill: node.leaf ? "var(--own-wash)" : "var(--share-wash)", stroke: node.leaf ? "var(--own)" : "var(--share)", "stroke-width": 1.5 }), s("text", { x: W / 2, y: 19, "text-anchor": "middle" }, node.name), s("text", { class: "s", x: W / 2, y: 35, "text-anchor": "middle" }, node.step === null ? "" : `of x${node.step}`))));
    replace(picture, answer.nodes.length ? figure("graph", svg) : h("p", { class: "note" }, "Nothing requires a gradient: apply requires_grad_ to a tensor."));
    if (now.graph) replace(total, "the graph of a tensor of your program");
    else replace(total, "kept for the backward pass: ", h("em", { id: "saved-bytes" }, bytes(answer.saved_bytes)));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["", "step", "shape", "node", "saved for backward", "gradient"].map((t) => h("th", {}, t)))), h("tbody", {}, answer.steps.map((step, i) => h("tr", { "data-step": i }, h("td", { class: "m" }, `x${i}`), h("td", { class: "m" }, step.call), h("td", { class: "m whole" }, list(step.shape)), h("td", { class: "m whole" }, step.grad_fn || (step.requires_grad ? "leaf" : "")), h("td", { class: "m whole" }, step.saved.map((k) => `${k.of === null ? "" : `x${k.of} `}${list(k.shape)} ${bytes(k.bytes)}${k.counts ? "" : " (kept already)"}`).join("; ")), h("td", { class: "m" }, step.grad ? `${list(step.grad.shape)}: ${step.grad.values.slice(0, 4).map((v) => short(v, 3)).join(", ")}${step.grad.values.length > 4 ? " \u2026" : ""}` : ""))))));
    error.textContent = answer.error ? `${answer.failed ? `x${answer.failed.step} = ${answer.failed.call}\n` : ""}${answer.error}` : "";
    replace(code, answer.python && codeline("Python", answer.python));
    add?.update();
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => { const answer = now.graph ? { steps: [], python: "", error: "", ...now.graph } : await ask("graph", { steps: now.steps }); setTimeout(() => draw(answer)); });
  }

  // ---- a running program
  let latest = null;
  function drawRun(report) {
    latest = report;
    if (!report) return replace(live, h("p", { class: "note" }, "No program is being watched. Write ", h("code", {}, "mica.lab.watch(model)"), " before its loop, or start it with ", h("code", {}, "mica trace --lab train.py"), " (", h("code", {}, "--ranks 4"), " for several processes); then its memory, its hidden copies and its slowest lines are drawn here as it runs.", !served && " A page alone cannot watch one: this is the part that needs Mica on a machine of your own."));
    if (report.ranks) return drawRanks(live, report);
    const WIDE = room(live, 940), HIGH = 220, LEFT = 70;
    const moments = report.timeline, most = Math.max(1, ...moments.map(([, held]) => KINDS.reduce((sum, [k]) => sum + (held[k] ?? 0), 0))), span = moments.at(-1)?.[0] || 1;
    const x = (t) => LEFT + ((WIDE - LEFT - 8) * t) / span, y = (v) => 8 + (HIGH - 30) * (1 - v / most);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": "Memory of the running program" });
    let below = moments.map(() => 0);
    for (const [kind, colour] of KINDS) {
      const above = moments.map(([, held], i) => below[i] + (held[kind] ?? 0));
      if (above.some((v, i) => v !== below[i])) {
        let path = `M${x(moments[0][0])} ${y(above[0])}`;
        moments.forEach(([t], i) => { if (i) path += `H${x(t).toFixed(1)}V${y(above[i]).toFixed(1)}`; });
        for (let i = moments.length - 1; i > 0; i -= 1) path += `V${y(below[i]).toFixed(1)}H${x(moments[i][0]).toFixed(1)}`;
        svg.append(s("path", { d: `${path}V${y(below[0])}Z`, fill: `var(--${colour})` }, s("title", {}, kind)));
      }
      below = above;
    }
    svg.append(s("text", { class: "s", x: LEFT - 8, y: 16, "text-anchor": "end" }, bytes(most, 0)), s("text", { class: "s", x: LEFT - 8, y: HIGH - 22, "text-anchor": "end" }, "0"));
    // The axis of time: four marks, from the beginning of the program.
    for (let k = 0; k <= 4; k += 1) svg.append(s("g", { class: "axis" }, s("line", { x1: x((span * k) / 4), x2: x((span * k) / 4), y1: HIGH - 22, y2: HIGH - 17 })), s("text", { class: "s", "data-tick": (span * k) / 4, x: x((span * k) / 4), y: HIGH - 4, "text-anchor": k === 4 ? "end" : k ? "middle" : "start" }, k ? seconds((span * k) / 4) : "0 s"));
    const rows = (title, header, lines, cells) => lines?.length ? [h("h2", { css: { marginTop: "24px" } }, title), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, header.map((t) => h("th", {}, t)))), h("tbody", {}, lines.slice(0, 8).map((l) => h("tr", {}, cells(l).map((c) => h("td", { class: "m" }, c)))))))] : null;
    replace(live, h("p", { class: "readout" }, report.state, " \u00b7 peak ", h("em", { id: "run-peak" }, bytes(report.peak)), " \u00b7 ", h("em", { id: "run-steps" }, `${report.step} steps`)), figure("run", svg),
      h("ul", { class: "legend" }, KINDS.filter(([k]) => report.at_peak[k]).map(([k, c]) => h("li", {}, h("i", { css: { background: `var(--${c})` } }), `${k} ${bytes(report.at_peak[k])}`))),
      rows("Lines that hold most", ["line", "code", "bytes"], report.lines, (l) => [l.line, l.code, bytes(l.bytes)]),
      rows("Hidden copies", ["line", "why", "bytes"], report.copies, (l) => [l.line, l.why, bytes(l.bytes)]),
      rows("Held and never let go", ["line", "code", "tensors", "bytes"], report.leaks, (l) => [l.line, l.code, l.blocks, bytes(l.bytes)]),
      rows("Slowest lines", ["line", "code", "time"], report.slowest, (l) => [l.line, l.code, `${(l.seconds * 1e3).toFixed(1)} ms`]));
  }
  let stopped = false;
  async function poll() {
    if (stopped) return;
    if (!served) return drawRun(null);
    try {
      const report = await ask("run", {});
      // A program that is being watched is what one came to see.
      if (report && !("view" in state) && latest === null) turn("run");
      drawRun(report);
    } catch { /* the program has ended, or the page is being left */ }
    if (!stopped) setTimeout(poll, 1000);
  }

  const graph = h("div", {}, h("section", { class: "sheet stage" }, picture, total), error,
    h("section", { class: "sheet controls" }, form, h("div", { class: "row tight" }, button("Undo", () => { now.steps.pop(); refresh(); }), button("Reset", () => { delete now.graph; now.steps = structuredClone(START); refresh(); }))),
    h("section", { class: "sheet" }, table, code));
  const run = h("section", { class: "sheet stage" }, live);
  const view = segments("View", [["graph", "The backward graph"], ["run", "A running program"]], now.view, (v) => { turn(v); remember(now); });
  function turn(v) {
    now.view = v === "run" ? "run" : "graph";
    view.set(now.view);
    graph.hidden = now.view !== "graph";
    run.hidden = now.view !== "run";
    if (!run.hidden) drawRun(latest);
  }
  replace(root, h("div", { class: "row", css: { marginBottom: "8px" } }, view.element), graph, run);
  turn(now.view);
  appender(() => now.steps.map((_, i) => `x${i}`), push).then((made) => { add = made; replace(form, made.element); });
  refresh();
  poll();
  const ended = onResize(root, () => latest && drawRun(latest));
  return () => { stopped = true; ended(); };
}
