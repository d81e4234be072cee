// k: operations under the roof of this machine.
import { bytes, h, list, onResize, replace, room, s, seconds } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "An operation waits for memory, for arithmetic, or for the call itself.",
  "The roof is what this machine can do: the slope is its memory, the flat part its arithmetic, and a dot under it is an operation as it was measured.",
  "mica.inspect.roofline() says the same of every line of a program, and how long its training will take.",
];
export const source = ["lab/roofline.cpp", "python/mica/inspect/_roofline.py"];

const COLOURS = { memory: "own", arithmetic: "share", overhead: "result" };

export function mount(root, state, remember) {
  const now = { elements: 1 << 20, ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), table = h("div", { class: "scroll" }), said = h("p", { class: "readout", id: "roof" });
  const size = slider("Numbers in a tensor", { min: 6, max: 22, step: 1, value: Math.log2(now.elements), show: (v) => (2 ** v).toLocaleString("en-US") }, (v) => { now.elements = 2 ** v; clearTimeout(refresh.timer); refresh.timer = setTimeout(() => refresh(), 150); });
  let latest = null;
  const speed = (v) => (v >= 1e12 ? `${(v / 1e12).toPrecision(3)} TFLOP/s` : v >= 1e9 ? `${(v / 1e9).toPrecision(3)} GFLOP/s` : `${(v / 1e6).toPrecision(3)} MFLOP/s`);
  const many = (n) => (n >= 999.5e6 ? `${(n / 1e9).toPrecision(3)} G` : `${(n / 1e6).toPrecision(3)} M`);
  function draw(answer) {
    latest = answer;
    const m = answer.machine, W = room(picture), H = W < 520 ? 260 : 340, LEFT = 86, BOTTOM = 40;
    const dots = answer.rows.filter((r) => r.operations > 0), xs = [-2, Math.max(3, Math.ceil(Math.log10(Math.max(...dots.map((r) => r.intensity)))))], top = Math.ceil(Math.log10(Math.max(m.flops, ...dots.map((r) => r.speed)))), low = Math.min(top - 4, Math.floor(Math.log10(Math.min(...dots.map((r) => r.speed)))));
    const x = (v) => LEFT + ((W - LEFT - 12) * (Math.log10(v) - xs[0])) / (xs[1] - xs[0]), y = (v) => 12 + ((H - BOTTOM - 12) * (top - Math.log10(v))) / (top - low);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "The roofline" });
    for (let p = low; p <= top; p += 1) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: W - 12, y1: y(10 ** p), y2: y(10 ** p) })), s("text", { class: "s", x: LEFT - 8, y: y(10 ** p) + 4, "text-anchor": "end" }, speed(10 ** p).replace(/\.0+ /, " ")));
    for (let p = xs[0]; p <= xs[1]; p += 1) svg.append(s("text", { class: "s", x: x(10 ** p), y: H - 22, "text-anchor": "middle" }, p < 0 ? String(10 ** p) : 10 ** p));
    svg.append(s("text", { class: "l", x: (LEFT + W) / 2, y: H - 5, "text-anchor": "middle" }, "operations for each byte that moves"));
    const start = Math.max(10 ** xs[0], 10 ** low / m.bandwidth);
    svg.append(s("path", { d: `M${x(start)} ${y(start * m.bandwidth)}L${x(m.ridge)} ${y(m.flops)}H${W - 12}`, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5, "data-ridge": m.ridge }));
    const near = Math.max(10 ** xs[0], 10 ** low / m.cache_bandwidth);
    svg.append(s("path", { d: `M${x(near)} ${y(near * m.cache_bandwidth)}L${x(m.flops / m.cache_bandwidth)} ${y(m.flops)}`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "5 4", "data-cache": m.cache_bandwidth }));
    // A name stands beside its dot, above or below it: where it covers no other name, no dot and not the roof.
    const taken = [[x(m.ridge), y(m.flops) - 2, W, 4], ...dots.map((r) => [x(r.intensity) - 7, y(r.speed) - 7, 14, 14])], free = ([l, t, w, h_]) => l > LEFT && l + w < W && t > 0 && !taken.some(([a, b, c, d]) => l < a + c && a < l + w && t < b + d && b < t + h_);
    for (const r of dots) {
      const cx = x(r.intensity), cy = y(r.speed), w = r.name.length * 7.1;
      const ways = [[cx + 10, cy - 7], [cx - 10 - w, cy - 7], ...[9, -22, 23, -36, 37].flatMap((down) => [cx - w / 2, cx + 4, cx - 4 - w].map((left) => [left, cy + down]))].map(([l, t]) => [l, t, w, 14]);
      const place = ways.find(free) ?? ways[cx > W - 150 ? 1 : 0];
      taken.push(place);
      svg.append(s("circle", { cx: x(r.intensity), cy: y(r.speed), r: 6, fill: `var(--${COLOURS[r.bound]})`, "data-kernel": r.name, "data-bound": r.bound }, s("title", {}, `${r.python}: ${speed(r.speed)}, ${bytes(r.moved)}/s`)), s("text", { class: "s halo", x: place[0], y: place[1] + 11 }, r.name));
    }
    replace(picture, figure("roofline", svg, `Both scales are logarithmic. ${m.measured ? "Measured on this machine, in float32." : "A page cannot measure its machine: this is a model, in float32."} Dashed: numbers that lie in a cache, up to ${bytes(m.cache_bytes, 0)}.`), h("ul", { class: "legend" }, Object.entries(COLOURS).map(([k, c]) => h("li", {}, h("i", { class: `swatch-${c}` }), `bound by ${k}`))));
    replace(said, m.measured ? "This machine moves " : `${m.name[0].toUpperCase()}${m.name.slice(1)} moves `, h("em", {}, `${bytes(m.bandwidth, 1)}/s`), " and computes ", h("em", {}, speed(m.flops)), `; a call costs ${seconds(m.overhead)}. From ${m.ridge.toPrecision(3)} operations a byte on, arithmetic is the limit.${m.measured ? ` The best of ${m.rounds} rounds${m.disturbed ? "; the machine has other work, so measure again" : ""}.` : " `mica lab` measures yours."}`);
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["operation", "shape", "operations", "bytes", m.measured ? "time" : "at least", "bound by", "of the roof"].map((t, i) => h("th", { class: i > 1 && i !== 5 ? "n" : "" }, t)))), h("tbody", {}, answer.rows.map((r) => h("tr", { "data-row": r.name }, h("td", { class: "m" }, r.python), h("td", { class: "m" }, list(r.shape)), h("td", { class: "n" }, r.operations ? many(r.operations) : "0"), h("td", { class: "n" }, bytes(r.bytes)), h("td", { class: "n" }, seconds(r.seconds)), h("td", {}, r.bound === "memory" && r.cached ? "memory, from a cache" : r.bound), h("td", { class: "n" }, m.measured ? `${(100 * r.reached).toFixed(0)} %` : "\u2013"))))));
  }
  function refresh(again = false) {
    remember(now);
    if (!latest) replace(said, "This machine is being measured \u2026");
    return guarded(error, async () => draw(await ask("roofline", { ...now, again })));
  }
  replace(root, h("section", { class: "sheet stage" }, picture, said), error, h("section", { class: "sheet controls" }, h("div", { class: "row" }, size.element, button("Measure again", () => refresh(true)))), h("section", { class: "sheet" }, table));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
