// b: bytes of a shape in every dtype.
import { bytes, count, facts, h, list, onResize, replace, room, s } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, numbers, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Elements times bytes per element: there is nothing else to it.",
  "A batch of 32 colour images of 224 by 224 is 4.8 million numbers, so 19 MB in float32 and a quarter of that in int8.",
  "Change a dimension and watch which dtype still fits where you need it.",
];
export const source = ["src/core/dtype.cpp", "src/core/allocate.cpp"];

const EXAMPLES = [["32 images", [32, 3, 224, 224]], ["a sentence's embeddings", [1, 512, 768]], ["attention of 2048 tokens", [1, 32, 2048, 2048]], ["one linear layer", [4096, 11008]], ["a scalar", []]];

export function mount(root, state, remember) {
  const now = { shape: EXAMPLES[0][1], ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), summary = h("div", {}), sliders = h("div", { class: "row" });
  const shape = numbers("Shape", now.shape, (v, how) => { now.shape = v; if (how) drawSliders(); else moveSliders(); refresh(); }, { least: 0, most: 1e7, grow: true, fresh: 1 });
  let moves = [];
  const moveSliders = () => moves.forEach((m, i) => m.set(Math.log2(Math.max(1, now.shape[i]))));
  function drawSliders() {
    moves = now.shape.map((n, d) => slider(`dimension ${d}`, { min: 0, max: 14, step: 0.01, value: Math.log2(Math.max(1, n)), show: () => count(now.shape[d] ?? 0) }, (v) => {
      now.shape[d] = Math.round(2 ** v);
      shape.set(now.shape);
      moves[d].set(v);
      refresh();
    }));
    replace(sliders, moves.map((m) => m.element));
  }
  let latest = null;
  function draw(answer) {
    latest = answer;
    const rows = [...answer.dtypes].sort((a, b) => b.element - a.element || a.dtype.localeCompare(b.dtype));
    const most = Math.max(...rows.map((r) => r.bytes), 1);
    const WIDE = room(picture, 720), LEFT = WIDE < 420 ? 134 : 150, ROW = 26;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${rows.length * ROW + 8}`, width: WIDE, height: rows.length * ROW + 8, role: "img", "aria-label": "Bytes in every dtype" });
    rows.forEach((row, i) => {
      const wide = Math.max(2, ((WIDE - LEFT - 84) * row.bytes) / most);
      svg.append(s("g", { transform: `translate(0 ${i * ROW + 4})`, "data-dtype": row.dtype },
        s("text", { x: LEFT - 12, y: 15, "text-anchor": "end" }, row.dtype),
        s("rect", { class: "motion", x: LEFT, y: 3, width: wide, height: ROW - 9, rx: 3, fill: row.dtype === "float32" ? "var(--own)" : "var(--share)" }),
        s("text", { x: LEFT + wide + 10, y: 15, class: "s" }, bytes(row.bytes), s("title", {}, `${count(row.bytes)} bytes`))));
    });
    replace(picture, figure("bytes", svg, "The orange bar is the default, float32."));
    const single = rows.find((r) => r.dtype === "float32");
    replace(summary, facts([["Shape", list(now.shape)], ["Elements", count(answer.numel)], ["Strides", list(answer.strides)], ["float32, exactly", `${count(single.bytes)} bytes`], ["float32", single.readable]]),
      h("p", { class: "readout", css: { marginTop: "16px", fontSize: "14px" } }, `${now.shape.map(count).join(" \u00d7 ") || "1"} \u00d7 4 bytes = `, h("em", {}, bytes(single.bytes))));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("calculator", { shape: now.shape })));
  }
  drawSliders();
  replace(root,
    h("section", { class: "sheet" }, h("div", { class: "row" }, shape.element, h("div", { class: "field" }, h("span", {}, "Examples"), h("div", { class: "row tight" }, EXAMPLES.map(([name, value]) => button(name, () => { now.shape = [...value]; shape.set(now.shape); drawSliders(); refresh(); }))))), h("div", { css: { height: "16px" } }), sliders),
    error,
    h("div", { class: "cols" }, h("section", { class: "sheet" }, h("h2", {}, "Bytes in every dtype"), picture), h("section", { class: "sheet" }, h("h2", {}, "What the engine says"), summary)));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
