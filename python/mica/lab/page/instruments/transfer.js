// g: copy or compute.
import { bytes, h, onResize, replace, room, s, seconds } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, check, choice, segments, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Moving a matrix takes time that grows with its n\u00b2 numbers; multiplying it takes time that grows with n\u00b3.",
  "Below the crossing the bus decides how long you wait, above it the arithmetic does; pinned memory moves at full speed, and the next batch arrives while the last one is computed with.",
  "An elementwise operation never catches up: there the bus always decides.",
];
export const errata = true;
export const source = ["lab/transfer.cpp", "backends/cpu/gemm/gemm.cpp"];

export function mount(root, state, remember) {
  const now = { n: 512, dtype: "float32", operation: "matmul", machine: "A100", pinned: false, ...state };
  const error = h("p", { class: "error", role: "alert" });
  const lanes = h("div", {}), picture = h("div", {}), table = h("div", { class: "scroll" }), note = h("p", { class: "note" }), said = h("p", { class: "readout", id: "lanes-said" }), machine = h("div", {});
  const size = slider("Matrix", { min: 4, max: 12, step: 0.25, value: Math.log2(now.n), show: (v) => `${Math.round(2 ** v)} \u00d7 ${Math.round(2 ** v)}` }, (v) => { now.n = Math.round(2 ** v); clearTimeout(refresh.timer); refresh.timer = setTimeout(refresh, 120); });
  const dtype = segments("dtype", ["float32", "float16", "bfloat16"], now.dtype, (v) => { now.dtype = v; refresh(); });
  const operation = segments("Operation", [["matmul", "a @ b"], ["add", "a + b"]], now.operation, (v) => { now.operation = v; refresh(); });
  const pinned = check("pinned memory, and a stream of its own", now.pinned, (v) => { now.pinned = v; remember(now); draw(latest); });
  let latest = null;
  const speed = (flops) => (flops >= 1e12 ? `${(flops / 1e12).toPrecision(3)} TFLOP/s` : `${(flops / 1e9).toPrecision(3)} GFLOP/s`);
  // Six batches: when each is on the bus and when it is computed with.
  function drawLanes(answer) {
    const row = answer.rows.find((r) => r.name === now.machine) ?? answer.rows[0];
    const plan = now.pinned && row.overlapped ? row.overlapped : row.one_by_one, whole = Math.max(row.one_by_one.seconds, plan.seconds);
    const W = room(lanes), LEFT = 72, H = 112, x = (t) => LEFT + ((W - LEFT - 8) * t) / whole;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "Six batches over time" });
    [["transfer", 8, "own"], ["compute", 46, "share"]].forEach(([lane, y, colour]) => {
      svg.append(s("text", { class: "s", x: LEFT - 8, y: y + 20, "text-anchor": "end" }, lane), s("g", { class: "grid" }, s("line", { x1: LEFT, x2: W - 8, y1: y + 32, y2: y + 32 })));
      for (const b of plan.batches) {
        const wide = Math.max(1, x(b[lane][1]) - x(b[lane][0]) - 1);
        svg.append(s("g", {}, s("rect", { x: x(b[lane][0]), y, width: wide, height: 28, rx: 3, fill: `var(--${colour})`, "data-lane": lane, "data-batch": b.batch }, s("title", {}, `batch ${b.batch}: ${lane} from ${seconds(b[lane][0])} to ${seconds(b[lane][1])}`)), wide > 14 && s("text", { class: "s on", x: x(b[lane][0]) + wide / 2, y: y + 18, "text-anchor": "middle" }, b.batch)));
      }
    });
    const ticks = W < 520 ? 2 : 4;
    for (let k = 0; k <= ticks; k += 1) svg.append(s("text", { class: "s", x: x((whole * k) / ticks), y: H - 8, "text-anchor": k === ticks ? "end" : k ? "middle" : "start" }, k ? seconds((whole * k) / ticks) : "0"));
    replace(lanes, figure("timeline", svg));
    const busy = plan.batches.reduce((sum, b) => sum + b.compute[1] - b.compute[0], 0);
    replace(said, `Six batches on ${row.name}: `, h("em", { "data-seconds": plan.seconds }, seconds(plan.seconds)), `, computing ${((100 * busy) / plan.seconds).toPrecision(3)} % of the time`, now.pinned && !row.overlapped ? "; here memory is one, and nothing is pinned." : ".");
  }
  function draw(answer) {
    latest = answer;
    if (!answer) return;
    replace(machine, choice("Machine", answer.rows.map((r) => r.name), answer.rows.some((r) => r.name === now.machine) ? now.machine : answer.rows[0].name, (v) => { now.machine = v; remember(now); drawLanes(latest); }).element);
    drawLanes(answer);
    const bars = answer.rows.map((row) => [row, [["transfer", now.pinned && row.pinned ? row.pinned : row.transfer, "own"], ["compute", row.compute, "share"]]]);
    const WIDE = room(picture), narrow = WIDE < 620, LEFT = narrow ? 0 : 150, RIGHT = narrow ? 96 : 150, HEAD = narrow ? 20 : 0;
    // Times span five powers of ten: the scale is logarithmic, and says so.
    const times = bars.flatMap(([, parts]) => parts.map(([, t]) => t));
    const least = Math.floor(Math.log10(Math.min(...times))), most = Math.ceil(Math.log10(Math.max(...times)));
    const x = (t) => LEFT + ((WIDE - LEFT - RIGHT) * (Math.log10(t) - least)) / Math.max(1, most - least);
    const height = bars.length * (2 * 17 + 14 + HEAD) + 32;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Time to transfer and to compute" });
    for (let power = least; power <= most; power += 1) if (!narrow || (power - least) % 2 === 0) svg.append(s("g", { class: "grid" }, s("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: height - 20 })), s("text", { class: "s", x: x(10 ** power), y: height - 4, "text-anchor": power === least && narrow ? "start" : "middle" }, seconds(10 ** power)));
    let y = 12;
    for (const [row, parts] of bars) {
      if (narrow) svg.append(s("text", { x: 0, y: y + 13 }, row.name, s("tspan", { class: "s", dx: 8, fill: "var(--soft)" }, row.kind)));
      else svg.append(s("text", { x: LEFT - 12, y: y + 12, "text-anchor": "end" }, row.name.length > 18 ? `${row.name.slice(0, 17)}\u2026` : row.name, s("title", {}, row.name)), s("text", { class: "s", x: LEFT - 12, y: y + 28, "text-anchor": "end" }, row.kind));
      y += HEAD;
      parts.forEach(([what, t, colour], k) => svg.append(s("rect", { x: LEFT, y: y + k * 17, width: Math.max(2, x(t) - LEFT), height: 14, rx: 3, fill: `var(--${colour})`, opacity: row.kind === "measured" ? 1 : 0.62, "data-row": row.name, "data-what": what, "data-seconds": t }, s("title", {}, `${row.name}: ${what} ${seconds(t)}`)), s("text", { class: "s", x: x(t) + 8, y: y + k * 17 + 11 }, narrow ? seconds(t) : `${what} ${seconds(t)}`)));
      y += 2 * 17 + 14;
    }
    replace(picture, figure("transfer", svg, answer.measures ? "Logarithmic. Solid: measured here. Pale: modelled from the figures of the makers." : "Logarithmic. Modelled from the figures of the makers."), h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch-own" }), now.pinned ? "transfer, from pinned memory" : "transfer, from pageable memory"), h("li", {}, h("i", { class: "swatch-share" }), "compute")));
    const timed = (t, b) => (t ? [seconds(t), h("small", {}, `${bytes(b, b < 1e11 ? 1 : 0)}/s`)] : "\u2013");
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["machine", "way", "pageable", "pinned", "compute", "compute takes longer"].map((t, i) => h("th", { class: i > 1 ? "n" : "" }, t)))), h("tbody", {}, answer.rows.map((row) => h("tr", { "data-machine": row.name }, h("td", {}, row.name, h("small", {}, row.kind)), h("td", {}, row.what), h("td", { class: "n" }, timed(row.transfer, row.bandwidth)), h("td", { class: "n" }, timed(row.pinned, row.pinned_bandwidth)), h("td", { class: "n" }, seconds(row.compute), h("small", {}, speed(row.flops))), h("td", { class: "n" }, row.crossover ? `from n = ${Math.max(1, Math.round(row.crossover))}` : row.ratio > 1 ? "never" : "always"))))));
    const here = answer.rows.find((r) => r.samples);
    note.textContent = `${bytes(answer.bytes)} a matrix, ${(answer.operations / 1e9).toPrecision(3)} billion operations.${here ? ` Measured: the median of ${here.samples} run${here.samples > 1 ? "s" : ""} after a warm-up.` : answer.measures ? "" : " A page cannot measure a transfer: these are models. `mica lab` measures your machine."}`;
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      const question = { n: now.n, dtype: now.dtype, operation: now.operation };
      draw(await ask("transfer", { ...question, measure: false }));
      if (!latest.measures) return;
      note.textContent = "This machine is being measured \u2026";
      draw(await ask("transfer", question));
    });
  }
  replace(root, h("section", { class: "sheet stage" }, lanes, said), error,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, machine, operation.element, dtype.element, pinned.element), h("div", { class: "row" }, size.element, button("Measure again", refresh))),
    h("section", { class: "sheet" }, picture, note), h("section", { class: "sheet" }, table));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
