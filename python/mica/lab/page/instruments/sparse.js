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

const LINES = [["dense", "ink", "none"], ["coo", "own", "6 3"], ["csr", "share", "2 3"]];
const HIGH = 260, LEFT = 64, RIGHT = 52;

export function mount(root, state, remember) {
  const now = { n: 256, columns: 32, bits: 8, outlier: 0, symmetric: false, ...state };
  const error = h("p", { class: "error", role: "alert" }), lost = h("p", { class: "error", role: "alert" });
  const memory = h("div", {}), time = h("div", {}), crossings = h("p", { class: "readout", id: "crossing" }), histogram = h("div", {}), table = h("div", {});
  const size = slider("Matrix", { min: 5, max: 10, step: 1, value: Math.log2(now.n), show: (v) => `${2 ** v} \u00d7 ${2 ** v}` }, (v) => { now.n = 2 ** v; clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 150); });
  const bits = slider("Bits", { min: 2, max: 8, value: now.bits }, (v) => { now.bits = v; refreshQuantized(); });
  const outlier = slider("One outlier", { min: 0, max: 40, value: now.outlier, show: (v) => (v ? String(v) : "none") }, (v) => { now.outlier = v; refreshQuantized(); });
  const symmetric = check("symmetric", now.symmetric, (v) => { now.symmetric = v; refreshQuantized(); });

  function plot(place, name, { rows, count }, key, show, caption) {
    const WIDE = room(place, 460);
    const values = rows.flatMap((r) => LINES.map(([l]) => r[`${l}_${key}`]));
    const low = Math.floor(Math.log10(Math.max(Math.min(...values), 1e-9))), high = Math.ceil(Math.log10(Math.max(...values)));
    const x = (i) => LEFT + ((WIDE - LEFT - RIGHT) * i) / (count - 1), y = (v) => 10 + (HIGH - 46) * (1 - (Math.log10(Math.max(v, 1e-9)) - low) / Math.max(1, high - low));
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": caption });
    for (let p = low; p <= high; p += 1) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(10 ** p), y2: y(10 ** p) })), s("text", { class: "s", x: LEFT - 8, y: y(10 ** p) + 4, "text-anchor": "end" }, show(10 ** p)));
    // Labels from the right, where they matter most, as far as they leave each other room.
    let taken = Infinity;
    [...rows.keys()].reverse().forEach((i) => {
      const r = rows[i];
      if (x(i) > taken - 34) return;
      taken = x(i);
      svg.append(s("text", { class: "s", x: x(i), y: HIGH - 16, "text-anchor": "middle" }, `${(r.sparsity * 100).toFixed(r.sparsity > 0.99 ? 1 : 0)}`));
    });
    svg.append(s("text", { class: "l", x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 1, "text-anchor": "middle" }, "% zeros"));
    const ends = LINES.map(([l]) => y(rows.at(-1)[`${l}_${key}`]));
    LINES.forEach(([line, colour, dash], k) => {
      svg.append(s("path", { d: rows.map((r, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(r[`${line}_${key}`]).toFixed(1)}`).join(""), fill: "none", stroke: `var(--${colour})`, "stroke-width": 2.2, "stroke-dasharray": dash, "data-line": line }));
      const nudge = ends.some((e, j) => j < k && Math.abs(e - ends[k]) < 12) ? 14 : 0;
      svg.append(s("text", { class: "s", x: WIDE - RIGHT + 6, y: ends[k] + 4 + nudge }, line === "dense" ? "dense" : line.toUpperCase()));
    });
    return figure(name, svg, caption);
  }
  const crossing = (rows, line, key) => rows.find((r) => r[`${line}_${key}`] < r[`dense_${key}`]);
  let latest = null, latestQuantized = null;
  function draw(answer) {
    latest = answer;
    replace(memory, plot(memory, "sparse-bytes", answer, "bytes", (v) => bytes(v, 0), "Bytes, logarithmic."));
    replace(time, plot(time, "sparse-time", answer, "time", seconds, `Time to multiply by ${answer.columns} columns, measured here, logarithmic.`));
    // Rows arrive one at a time, from dense to sparse: before the last one, nothing is known to come never.
    const otherwise = answer.rows.length < answer.count ? "not so far" : "never";
    const percent = (r) => (r ? `from ${(r.sparsity * 100).toFixed(1)} % zeros on` : otherwise);
    replace(crossings, "COO is smaller ", h("em", {}, percent(crossing(answer.rows, "coo", "bytes"))), ", CSR ", h("em", {}, percent(crossing(answer.rows, "csr", "bytes"))), "; faster: COO ", h("b", {}, percent(crossing(answer.rows, "coo", "time"))), ", CSR ", h("b", {}, percent(crossing(answer.rows, "csr", "time"))), ".");
  }
  function drawQuantized(a) {
    latestQuantized = a;
    const W = room(histogram, 620), H = 220, most = Math.max(...a.histogram, ...a.quantized, 1), step = (W - 20) / a.histogram.length;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "Histogram before and after" });
    a.histogram.forEach((v, i) => svg.append(s("rect", { x: 10 + i * step, y: H - 30 - (v / most) * (H - 50), width: Math.max(1, step - 1), height: (v / most) * (H - 50), fill: "var(--share-wash)", stroke: "var(--share)", "stroke-width": 0.8 })));
    a.quantized.forEach((v, i) => { if (v) svg.append(s("line", { x1: 10 + (i + 0.5) * step, x2: 10 + (i + 0.5) * step, y1: H - 30, y2: H - 30 - (v / most) * (H - 50), stroke: "var(--own)", "stroke-width": 2.2 })); });
    svg.append(s("text", { class: "s", x: 10, y: H - 10 }, short(a.low, 3)), s("text", { class: "s", x: W - 10, y: H - 10, "text-anchor": "end" }, short(a.high, 3)));
    replace(histogram, figure("quantized", svg, "Teal: 4096 numbers of a normal distribution. Orange: the levels they land on."));
    replace(table, facts([["Scale", short(a.scale, 5)], ["Zero point", short(a.zero_point)], ["Levels used", `${a.levels_used} of ${a.levels}`], ["Worst error", short(a.worst, 4)], ["Root mean square error", short(a.rms, 4)], ["float32", bytes(a.float_bytes)], [`${now.bits} bits`, bytes(a.bytes)]]));
  }
  function refreshQuantized() {
    remember(now);
    return guarded(lost, async () => drawQuantized(await ask("quantize", { bits: now.bits, outlier: now.outlier, symmetric: now.symmetric })));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      let rows = [];
      for (let row = 0, count = 1; row < count; row += 1) {
        const answer = await ask("sparse", { n: now.n, columns: now.columns, row });
        count = answer.count;
        rows = [...rows, ...answer.rows];
        draw({ ...answer, rows });
      }
    });
  }
  replace(root,
    h("section", { class: "sheet" }, h("div", { class: "row" }, size.element, button("Measure again", refresh))), error,
    h("div", { class: "cols even" }, h("section", { class: "sheet" }, h("h2", {}, "Memory"), memory), h("section", { class: "sheet" }, h("h2", {}, "Time"), time)),
    h("section", { class: "sheet" }, crossings),
    h("section", { class: "sheet" }, h("h2", {}, "Quantization"), lost, h("div", { class: "row" }, bits.element, outlier.element, symmetric.element), h("div", { css: { height: "16px" } }), h("div", { class: "cols" }, histogram, table)));
  refresh();
  refreshQuantized();
  return onResize(root, () => { if (latest) draw(latest); if (latestQuantized) drawQuantized(latestQuantized); });
}
