// e: align, pad, stretch.
import { bytes, h, list, replace, s, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, check, numbers } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Shapes are aligned at their right ends; a missing dimension counts as 1; a 1 stretches to whatever it meets.",
  "Stretching is stride 0: the tensor steps along the dimension and stays where it is, so nothing is copied.",
  "Where two sizes differ and neither is 1 there is no result, and one unsqueeze in the right place usually says what you meant.",
];
export const source = ["src/core/geometry.cpp", "src/core/pointwise.cpp", "lab/broadcasting.cpp"];

const EXAMPLES = [["matrix + row", [[3, 4], [4]]], ["column + row", [[3, 1], [1, 4]]], ["matrix + vector, failing", [[3, 4], [3]]], ["images \u00d7 channels", [[2, 3, 4], [3, 1]]], ["three", [[2, 1, 3], [4, 1], [3]]]];
const COLOURS = [["own", "a"], ["share", "b"], ["blue", "c"]];
const CELL = 40, GAP = 3;

// A tensor as sheets of its last two dimensions. `ghost` says which cells are repetitions.
function sheets(shape, cells, colour) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, shape[0] ?? 1];
  const each = rows * columns, many = Math.max(1, Math.round(cells.length / Math.max(1, each)));
  const wide = columns * (CELL + GAP) + 14, across = Math.max(1, Math.min(many, Math.floor(640 / wide)));
  const width = Math.max(CELL, across * wide - 14), height = Math.max(CELL, Math.ceil(many / across) * (rows * (CELL + GAP) + 14) - 14);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  cells.forEach(({ value, ghost }, i) => {
    const sheet = Math.floor(i / each), inside = i % each;
    const x = (sheet % across) * wide + (inside % columns) * (CELL + GAP), y = Math.floor(sheet / across) * (rows * (CELL + GAP) + 14) + Math.floor(inside / columns) * (CELL + GAP);
    svg.append(s("g", { transform: `translate(${x} ${y})`, class: ghost ? "ghost" : "" },
      s("rect", { width: CELL, height: CELL, rx: 4, fill: ghost ? "none" : `var(--${colour}-wash)`, stroke: `var(--${colour})`, "stroke-width": ghost ? 1 : 1.5, "stroke-dasharray": ghost ? "3 3" : "none" }),
      s("text", { x: CELL / 2, y: CELL / 2 + 4.5, "text-anchor": "middle", opacity: ghost ? 0.6 : 1 }, short(value))));
  });
  return svg;
}

export function mount(root, state, remember) {
  const now = { shapes: EXAMPLES[0][1], stretch: true, ...state };
  const error = h("p", { class: "error", role: "alert" });
  const fields = h("div", { class: "row" }), alignment = h("div", { class: "scroll" }), pictures = h("div", { class: "tiles" }), mends = h("div", {});
  function controls() {
    replace(fields, now.shapes.map((shape, i) => numbers(`Shape of ${COLOURS[i][1]}`, shape, (v) => { now.shapes[i] = v; refresh(); }, { least: 0, most: 64, grow: true }).element),
      h("div", { class: "row tight" }, button("Add a third", () => { now.shapes.push([4]); controls(); refresh(); }, "", { disabled: now.shapes.length > 2 }), button("Remove it", () => { now.shapes.pop(); controls(); refresh(); }, "", { disabled: now.shapes.length < 3 })));
  }
  function draw(answer) {
    const table = h("table", { class: "narrow" }, h("tbody", {}, now.shapes.map((shape, i) => h("tr", { "data-tensor": COLOURS[i][1] }, h("td", {}, COLOURS[i][1]), answer.columns.map((c) => {
      const { size, padded, stretched } = c.sizes[i];
      return h("td", { class: "n", css: { color: padded ? "var(--faint)" : c.fits ? "" : "var(--limit)", fontWeight: c.fits ? "" : "700" } }, padded ? `(${size})` : size, stretched ? ` \u2192 ${c.result}` : "");
    }))), h("tr", { "data-tensor": "result" }, h("td", {}, "a + b" + (now.shapes.length > 2 ? " + c" : "")), answer.columns.map((c) => h("td", { class: "n", css: { color: c.fits ? "var(--result)" : "var(--limit)", fontWeight: 700 } }, c.fits ? c.result : "\u2717"))))) ;
    replace(alignment, table);
    error.textContent = answer.error ?? "";
    replace(mends, answer.error && (answer.mends.length ? [h("h2", {}, "What would make them meet"), h("div", { class: "row tight" }, answer.mends.map((m) => button([m.code, ` \u2192 ${list(m.result)}`], () => { now.shapes[m.tensor] = m.shape; controls(); refresh(); }, "code")))] : h("p", { class: "note" }, "No single unsqueeze makes these shapes meet.")));
    if (answer.error) return replace(pictures);
    const shape = answer.result.shape;
    const drawing = (values) => values.map((value) => ({ value, ghost: false }));
    replace(pictures, answer.inputs.map((input, i) => {
      const [colour, letter] = COLOURS[i];
      const seen = new Set();
      const wide = input.places.map((place) => { const ghost = seen.has(place); seen.add(place); return { value: input.values[place], ghost }; });
      return h("section", { class: "sheet", "data-operand": letter }, h("h2", {}, `${letter}: ${list(input.shape)}`), h("p", { class: "note how" }, now.stretch ? `seen as ${list(shape)}, strides ${list(input.wide_strides)}` : `strides ${list(input.strides)}`),
        figure(letter, now.stretch ? sheets(shape, wide, colour) : sheets(input.shape, drawing(input.values), colour), now.stretch ? `${bytes(input.bytes)} in memory, ${bytes(input.wide_bytes)} as it looks` : `${bytes(input.bytes)} in memory`));
    }), h("section", { class: "sheet", "data-operand": "result" }, h("h2", {}, `result: ${list(shape)}`), h("p", { class: "note how" }, "new memory"), figure("result", sheets(shape, drawing(answer.result.values), "result"), bytes(answer.result.bytes))));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => { const answer = await ask("broadcasting", { shapes: now.shapes }); setTimeout(() => draw(answer)); });
  }
  controls();
  replace(root,
    h("section", { class: "sheet" }, fields, h("div", { class: "row tight", css: { marginTop: "20px" } }, EXAMPLES.map(([name, shapes]) => button(name, () => { now.shapes = structuredClone(shapes); controls(); refresh(); })), check("show them stretched", now.stretch, (v) => { now.stretch = v; refresh(); }).element)),
    h("section", { class: "sheet" }, h("h2", {}, "Aligned, padded, stretched"), alignment, h("p", { class: "note" }, "In brackets: a dimension that is missing and counts as 1. An arrow: a 1 that stretches.")), error, mends, pictures);
  refresh();
}
