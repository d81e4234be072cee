// g: copy or compute.
import { bytes, h, replace, s, seconds } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, segments, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Moving a matrix takes time that grows with its n\u00b2 numbers; multiplying it takes time that grows with n\u00b3.",
  "Below the crossing the bus decides how long you wait, above it the arithmetic does, and pinned memory with streams hides the shorter one behind the longer.",
  "The first row is measured on this machine when you ask; rows marked as modelled follow from the bandwidths that their names stand for.",
];
export const source = ["lab/transfer.cpp", "backends/cpu/gemm/gemm.cpp"];

export function mount(root, state, remember) {
  const now = { n: 512, dtype: "float32", ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), table = h("div", { class: "scroll" }), note = h("p", { class: "note" });
  const size = slider("Matrix", { min: 4, max: 12, step: 0.25, value: Math.log2(now.n), show: (v) => `${Math.round(2 ** v)} \u00d7 ${Math.round(2 ** v)}` }, (v) => { now.n = Math.round(2 ** v); clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 120); });
  const dtype = segments("dtype", ["float32", "float16", "bfloat16"], now.dtype, (v) => { now.dtype = v; refresh(); });
  function draw(answer) {
    const bars = [];
    for (const row of answer.rows) {
      bars.push([row, `${row.name}`, [["transfer", row.transfer, "own"], ["compute", row.compute, "share"]]]);
      if (row.pinned) bars.push([row, "  pinned, overlapped", [["the longer of both", row.overlapped, "result"]]]);
    }
    const LEFT = 190, WIDE = 940, ROW = 34, RIGHT = 180;
    // Times span five powers of ten: the scale is logarithmic, and says so.
    const times = bars.flatMap(([, , parts]) => parts.map(([, t]) => t));
    const least = Math.floor(Math.log10(Math.min(...times))), most = Math.ceil(Math.log10(Math.max(...times)));
    const x = (t) => LEFT + ((WIDE - LEFT - RIGHT) * (Math.log10(t) - least)) / Math.max(1, most - least);
    const height = bars.reduce((sum, [, , parts]) => sum + parts.length * 16 + 18, 34);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Time to transfer and to compute" });
    for (let power = least; power <= most; power += 1) svg.append(s("g", { class: "grid" }, s("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 16, y2: height - 18 })), s("text", { class: "s", x: x(10 ** power), y: height - 4, "text-anchor": "middle" }, seconds(10 ** power)));
    let y = 18;
    for (const [row, name, parts] of bars) {
      svg.append(s("text", { x: LEFT - 12, y: y + 13, "text-anchor": "end" }, name));
      if (!name.startsWith(" ")) svg.append(s("text", { class: "s", x: LEFT - 12, y: y + 29, "text-anchor": "end" }, row.kind));
      parts.forEach(([what, t, colour], i) => svg.append(s("rect", { x: LEFT, y: y + i * 17, width: Math.max(2, x(t) - LEFT), height: 14, rx: 3, fill: `var(--${colour})`, opacity: row.kind === "measured" ? 1 : 0.62, "data-row": row.name, "data-what": what }), s("text", { class: "s", x: x(t) + 8, y: y + i * 17 + 11 }, `${what} ${seconds(t)}`)));
      y += parts.length * 16 + 18;
    }
    replace(picture, figure("transfer", svg, "Logarithmic. Solid: measured here. Pale: modelled."));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["machine", "", "way", "transfer", "compute", "product wins from"].map((t, i) => h("th", { class: i > 2 ? "n" : "" }, t)))), h("tbody", {}, answer.rows.map((row) => h("tr", {}, h("td", {}, row.name), h("td", {}, row.kind), h("td", {}, row.what), h("td", { class: "n" }, `${seconds(row.transfer)}, ${bytes(row.bandwidth, 0)}/s`), h("td", { class: "n" }, `${seconds(row.compute)}, ${(row.flops / 1e9).toPrecision(3)} GFLOP/s`), h("td", { class: "n" }, row.crossover ? `n = ${Math.round(row.crossover)}` : "\u2013"))))));
    note.textContent = `${bytes(answer.bytes)} a matrix, ${(answer.operations / 1e9).toPrecision(3)} billion operations a product.`;
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("transfer", now)));
  }
  replace(root, h("section", { class: "sheet" }, h("div", { class: "row" }, size.element, dtype.element, button("Measure again", refresh))), error, h("section", { class: "sheet" }, picture, note), h("section", { class: "sheet" }, table));
  refresh();
}
