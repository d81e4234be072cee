// i: fewer numbers, or smaller ones.
import { bytes, facts, h, onResize, replace, room, s, seconds, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, check, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Zeros need not be stored, but each number that is stored then needs its place, sixteen bytes of it in COO.",
  "So a sparse matrix is smaller only when most of it is zero, and faster from a point that depends on the machine: the lines cross where they cross here.",
  "Quantizing keeps every number and makes each one small: a scale, a zero point, and an error of at most half a step.",
];
export const source = ["lab/sparse.cpp"];
export const errata = true;

const COLOURS = { dense: ["ink", "none"], COO: ["own", "6 3"], CSR: ["share", "2 3"], "CSR, int32 indices": ["blue", "8 2 2 2"] };
const HIGH = 280, LEFT = 64, RIGHT = 16;
const percent = (v) => `${(v * 100).toFixed(1)} %`;

export function mount(root, state, remember) {
  const now = { n: 256, columns: 32, bits: 8, outlier: 0, symmetric: false, ...state };
  const error = h("p", { class: "error", role: "alert" }), lost = h("p", { class: "error", role: "alert" });
  const memory = h("div", {}), time = h("div", {}), crossings = h("div", { id: "crossing" }), faster = h("p", { class: "readout", id: "faster" }), histogram = h("div", {}), table = h("div", {});
  const size = slider("Matrix", { min: 5, max: 10, step: 1, value: Math.log2(now.n), show: (v) => `${2 ** v} \u00d7 ${2 ** v}` }, (v) => { now.n = 2 ** v; clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 150); });
  const bits = slider("Bits", { min: 2, max: 8, value: now.bits }, (v) => { now.bits = v; refreshQuantized(); });
  const outlier = slider("One outlier", { min: 0, max: 40, value: now.outlier, show: (v) => (v ? String(v) : "none") }, (v) => { now.outlier = v; refreshQuantized(); });
  const symmetric = check("symmetric", now.symmetric, (v) => { now.symmetric = v; refreshQuantized(); });
  let layouts = null, rows = [], count = 12, quantized = null;

  // The axis is even: zeros from none to all of them.
  function frame(place, label, y, ticks, show) {
    const WIDE = room(place, 460), x = (v) => LEFT + (WIDE - LEFT - RIGHT) * v;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": label });
    for (const t of ticks) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(t), y2: y(t) })), s("text", { class: "s", x: LEFT - 8, y: y(t) + 4, "text-anchor": "end" }, show(t)));
    for (let p = 0; p <= 100; p += 20) svg.append(s("text", { class: "s", x: x(p / 100), y: HIGH - 18, "text-anchor": "middle" }, p));
    svg.append(s("text", { class: "l", x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 3, "text-anchor": "middle" }, "% zeros"));
    return [svg, x];
  }
  const legend = (names) => h("ul", { class: "legend" }, names.map((n) => h("li", {}, h("i", { class: `swatch-${COLOURS[n][0]}` }), n)));
  function drawMemory() {
    const most = 2.2 * layouts.dense_bytes, y = (v) => 10 + (HIGH - 50) * (1 - Math.min(v, most) / most);
    const [svg, x] = frame(memory, "Bytes by the share of zeros", y, [0, layouts.dense_bytes, 2 * layouts.dense_bytes], (v) => bytes(v, 0));
    const path = (name, full, empty) => s("path", { d: `M${x(full > most ? (full - most) / (full - empty) : 0)} ${y(full)}L${x(1)} ${y(empty)}`, fill: "none", stroke: `var(--${COLOURS[name][0]})`, "stroke-width": 2.2, "stroke-dasharray": COLOURS[name][1], "data-line": name });
    svg.append(path("dense", layouts.dense_bytes, layouts.dense_bytes), layouts.layouts.map((l) => path(l.name, l.bytes_full, l.bytes_empty)).reduce((g, p) => (g.append(p), g), s("g")));
    layouts.layouts.forEach((l, k) => svg.append(s("line", { x1: x(l.crossover), x2: x(l.crossover), y1: y(layouts.dense_bytes), y2: HIGH - 40, stroke: `var(--${COLOURS[l.name][0]})`, "stroke-dasharray": "2 3" }), s("circle", { cx: x(l.crossover), cy: y(layouts.dense_bytes), r: 5, fill: `var(--${COLOURS[l.name][0]})`, "data-crossover": l.name }, s("title", {}, `${l.name} is smaller from ${percent(l.crossover)} zeros on`)), s("text", { class: "s halo", x: x(l.crossover), y: y(layouts.dense_bytes) - 10 - 14 * ((k + 1) % 2), "text-anchor": "middle" }, percent(l.crossover))));
    replace(memory, figure("sparse-bytes", svg, "Bytes, float32 values, int64 indices unless said. Dots: where sparse becomes smaller, exactly."), legend(["dense", ...layouts.layouts.map((l) => l.name)]));
    replace(crossings, h("table", {}, h("tbody", {}, layouts.layouts.map((l) => h("tr", { "data-layout": l.name }, h("td", {}, l.name), h("td", {}, l.formula), h("td", { class: "n" }, h("em", { "data-crossover": l.crossover }, `smaller from ${percent(l.crossover)}`)))))));
  }
  function drawTime() {
    if (!rows.length) return;
    const keys = [["dense", "dense_time"], ["COO", "coo_time"], ["CSR", "csr_time"]], values = rows.flatMap((r) => keys.map(([, k]) => r[k]));
    const low = Math.floor(Math.log10(Math.min(...values))), high = Math.ceil(Math.log10(Math.max(...values)));
    const y = (v) => 10 + (HIGH - 50) * (1 - (Math.log10(v) - low) / Math.max(1, high - low));
    const [svg, x] = frame(time, "Time by the share of zeros", y, Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)), seconds);
    for (const [name, key] of keys) {
      svg.append(s("path", { d: rows.map((r, i) => `${i ? "L" : "M"}${x(r.sparsity).toFixed(1)} ${y(r[key]).toFixed(1)}`).join(""), fill: "none", stroke: `var(--${COLOURS[name][0]})`, "stroke-width": 2.2, "stroke-dasharray": COLOURS[name][1], "data-time": name }));
      for (const r of rows) svg.append(s("circle", { cx: x(r.sparsity), cy: y(r[key]), r: 2.5, fill: `var(--${COLOURS[name][0]})` }, s("title", {}, `${name}, ${percent(r.sparsity)} zeros: ${seconds(r[key])}`)));
    }
    replace(time, figure("sparse-time", svg, `Time to multiply by ${now.columns} columns, measured here, logarithmic.`), legend(keys.map(([n]) => n)));
    // Between two measured points the crossing is read off the straight line that is drawn.
    const crossing = (key) => {
      const i = rows.findLastIndex((r) => r[key] >= r.dense_time);
      if (i < 0) return "always";
      if (i === rows.length - 1) return rows.length < count ? "not so far" : "never";
      const gap = (r) => Math.log(r[key] / r.dense_time), [a, b] = [rows[i], rows[i + 1]];
      return `from about ${((a.sparsity + ((b.sparsity - a.sparsity) * gap(a)) / (gap(a) - gap(b))) * 100).toFixed(0)} % zeros on`;
    };
    replace(faster, "Faster than dense here: COO ", h("b", {}, crossing("coo_time")), ", CSR ", h("b", {}, crossing("csr_time")), ".");
  }
  function drawQuantized(a) {
    quantized = a;
    // Above the line what was there, below it the levels that it landed on, each as tall as it is often hit.
    const W = room(histogram, 620), H = 250, half = (H - 30) / 2, step = (W - 20) / a.histogram.length, most = Math.max(...a.histogram, 1), hits = a.hits.filter(([, n]) => n > 0), top = Math.max(...hits.map(([, n]) => n), 1);
    const x = (v) => 10 + ((W - 20) * (v - a.low)) / (a.high - a.low || 1), wide = Math.max(1.5, Math.min(18, ((W - 20) * a.scale) / (a.high - a.low || 1) - 1));
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "Numbers before, and the levels after" });
    a.histogram.forEach((v, i) => svg.append(s("rect", { x: 10 + i * step, y: half - (v / most) * (half - 8), width: Math.max(1, step - 1), height: (v / most) * (half - 8), fill: "var(--share)" })));
    for (const [v, n] of hits) svg.append(s("rect", { x: x(v) - wide / 2, y: half + 4, width: wide, height: Math.max(1, (n / top) * (half - 12)), fill: "var(--own)", "data-level": v }, s("title", {}, `${short(v)}: ${n} numbers`)));
    svg.append(s("g", { class: "axis" }, s("line", { x1: 10, x2: W - 10, y1: half + 2, y2: half + 2 })), s("text", { class: "s", x: 10, y: H - 6 }, short(a.low, 3)), s("text", { class: "s", x: W - 10, y: H - 6, "text-anchor": "end" }, short(a.high, 3)));
    replace(histogram, figure("quantized", svg, "Above: 4096 numbers of a normal distribution. Below: the levels they land on."));
    replace(table, facts([["Scale", short(a.scale, 5)], ["Zero point", short(a.zero_point)], ["Levels used", `${a.levels_used} of ${a.levels}`], ["Worst error", short(a.worst, 4)], ["Root mean square error", short(a.rms, 4)], ["float32", bytes(a.float_bytes)], [`${now.bits} bits`, bytes(a.bytes)]]));
  }
  function refreshQuantized() {
    remember(now);
    return guarded(lost, async () => drawQuantized(await ask("quantize", { bits: now.bits, outlier: now.outlier, symmetric: now.symmetric })));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      layouts = await ask("sparse", { n: now.n, layouts: true }, "layouts");
      drawMemory();
      rows = [];
      for (let row = 0; row < count; row += 1) {
        const answer = await ask("sparse", { n: now.n, columns: now.columns, row });
        count = answer.count;
        rows = [...rows, ...answer.rows];
        drawTime();
      }
    });
  }
  replace(root,
    h("div", { class: "cols even stage" }, h("section", { class: "sheet" }, h("h2", {}, "Memory"), memory), h("section", { class: "sheet" }, h("h2", {}, "Time"), time, faster)), error,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, size.element, button("Measure again", refresh)), h("div", { class: "scroll" }, crossings)),
    h("section", { class: "sheet" }, h("h2", {}, "Quantization"), lost, h("div", { class: "cols" }, histogram, table), h("div", { class: "row", css: { marginTop: "16px" } }, bits.element, outlier.element, symmetric.element)));
  refresh();
  refreshQuantized();
  return onResize(root, () => { if (layouts) drawMemory(); drawTime(); if (quantized) drawQuantized(quantized); });
}
