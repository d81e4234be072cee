// g: copy or compute.
import { bytes, h, onResize, replace, room, s, seconds } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, segments, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Moving a matrix takes time that grows with its n\u00b2 numbers; multiplying it takes time that grows with n\u00b3.",
  "Below the crossing the bus decides how long you wait, above it the arithmetic does, and pinned memory with streams hides the shorter one behind the longer.",
  "What this machine has is measured when you ask; rows marked as modelled follow from the bandwidths that their names stand for.",
];
export const source = ["lab/transfer.cpp", "backends/cpu/gemm/gemm.cpp"];

export function mount(root, state, remember) {
  const now = { n: 512, dtype: "float32", ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), table = h("div", { class: "scroll" }), note = h("p", { class: "note" });
  const size = slider("Matrix", { min: 4, max: 12, step: 0.25, value: Math.log2(now.n), show: (v) => `${Math.round(2 ** v)} \u00d7 ${Math.round(2 ** v)}` }, (v) => { now.n = Math.round(2 ** v); clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 120); });
  const dtype = segments("dtype", ["float32", "float16", "bfloat16"], now.dtype, (v) => { now.dtype = v; refresh(); });
  let latest = null;
  const speed = (flops) => (flops >= 1e12 ? `${(flops / 1e12).toPrecision(3)} TFLOP/s` : `${(flops / 1e9).toPrecision(3)} GFLOP/s`);
  function draw(answer) {
    latest = answer;
    const bars = [];
    for (const row of answer.rows) {
      bars.push([row, row.name, [["transfer", row.transfer, "own"], ["compute", row.compute, "share"]]]);
      if (row.pinned) bars.push([row, "", [["pinned, overlapped", row.overlapped, "result"]]]);
    }
    const WIDE = room(picture), narrow = WIDE < 620, LEFT = narrow ? 0 : 150, RIGHT = narrow ? 96 : 190, HEAD = narrow ? 20 : 0;
    // Times span five powers of ten: the scale is logarithmic, and says so.
    const times = bars.flatMap(([, , parts]) => parts.map(([, t]) => t));
    const least = Math.floor(Math.log10(Math.min(...times))), most = Math.ceil(Math.log10(Math.max(...times)));
    const x = (t) => LEFT + ((WIDE - LEFT - RIGHT) * (Math.log10(t) - least)) / Math.max(1, most - least);
    const below = ([, name]) => (name ? HEAD : 0);
    const height = bars.reduce((sum, bar, i) => sum + bar[2].length * 17 + below(bar) + (bars[i + 1]?.[1] === "" ? 0 : 14), 44);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Time to transfer and to compute" });
    for (let power = least; power <= most; power += 1) if (!narrow || (power - least) % 2 === 0) svg.append(s("g", { class: "grid" }, s("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: height - 20 })), s("text", { class: "s", x: x(10 ** power), y: height - 4, "text-anchor": power === least && narrow ? "start" : "middle" }, seconds(10 ** power)));
    let y = 12;
    bars.forEach((bar, i) => {
      const [row, name, parts] = bar;
      if (name && narrow) svg.append(s("text", { x: 0, y: y + 13 }, name, s("tspan", { class: "s", dx: 8, fill: "var(--soft)" }, row.kind)));
      else if (name) svg.append(s("text", { x: LEFT - 12, y: y + 12, "text-anchor": "end" }, name.length > 18 ? `${name.slice(0, 17)}\u2026` : name, s("title", {}, name)), s("text", { class: "s", x: LEFT - 12, y: y + 28, "text-anchor": "end" }, row.kind));
      y += below(bar);
      parts.forEach(([what, t, colour], k) => svg.append(s("rect", { x: LEFT, y: y + k * 17, width: Math.max(2, x(t) - LEFT), height: 14, rx: 3, fill: `var(--${colour})`, opacity: row.kind === "measured" ? 1 : 0.62, "data-row": row.name, "data-what": what }, s("title", {}, `${row.name}: ${what} ${seconds(t)}`)), s("text", { class: "s", x: x(t) + 8, y: y + k * 17 + 11 }, narrow ? seconds(t) : `${what} ${seconds(t)}`)));
      y += parts.length * 17 + (bars[i + 1]?.[1] === "" ? 0 : 14);
    });
    replace(picture, figure("transfer", svg, "Logarithmic. Solid: measured here. Pale: modelled."), h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch-own" }), "transfer"), h("li", {}, h("i", { class: "swatch-share" }), "compute"), h("li", {}, h("i", { class: "swatch-result" }), "both at once, from pinned memory")));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["machine", "way", "transfer", "pinned", "compute", "longer than transfer"].map((t, i) => h("th", { class: i > 1 ? "n" : "" }, t)))), h("tbody", {}, answer.rows.map((row) => h("tr", {}, h("td", {}, row.name, h("small", {}, row.kind)), h("td", {}, row.what), h("td", { class: "n" }, seconds(row.transfer), h("small", {}, `${bytes(row.bandwidth, 0)}/s`)), h("td", { class: "n" }, row.pinned ? seconds(row.pinned) : "\u2013"), h("td", { class: "n" }, seconds(row.compute), h("small", {}, speed(row.flops))), h("td", { class: "n" }, row.crossover ? `from n = ${Math.max(1, Math.round(row.crossover))}` : "\u2013"))))));
    note.textContent = `${bytes(answer.bytes)} a matrix, ${(answer.operations / 1e9).toPrecision(3)} billion operations a product.`;
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      draw(await ask("transfer", { ...now, measure: false }));
      note.textContent = "This machine is being measured \u2026";
      draw(await ask("transfer", now));
    });
  }
  replace(root, h("section", { class: "sheet" }, h("div", { class: "row" }, size.element, dtype.element, button("Measure again", refresh))), error, h("section", { class: "sheet" }, picture, note), h("section", { class: "sheet" }, table));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
