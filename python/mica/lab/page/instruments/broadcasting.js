// e: align, pad, stretch, add.
import { bytes, h, list, replace, s, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, numbers, segments } from "../fields.js";
import { sheets } from "../grid.js";
import { figure } from "../save.js";

export const lede = [
  "Shapes are aligned at their right ends; a missing dimension counts as 1; a 1 stretches to whatever it meets.",
  "Stretching is stride 0: the tensor steps along the dimension and stays where it is, so nothing is copied.",
  "Where two sizes differ and neither is 1 there is no result, and one unsqueeze in the right place usually says what you meant.",
];
export const source = ["src/core/geometry.cpp", "src/core/pointwise.cpp", "lab/broadcasting.cpp"];

const EXAMPLES = [["matrix + row", [[3, 4], [4]]], ["column + row", [[3, 1], [1, 4]]], ["matrix + vector, failing", [[3, 4], [3]]], ["images \u00d7 channels", [[2, 3, 4], [3, 1]]], ["three", [[2, 1, 3], [4, 1], [3]]]];
const COLOURS = [["own", "a"], ["share", "b"], ["blue", "c"]];
const STAGES = [["align", "1 align"], ["pad", "2 pad"], ["stretch", "3 stretch"], ["add", "4 add"]];

export function mount(root, state, remember) {
  const now = { shapes: EXAMPLES[0][1], stage: "add", ...state };
  const error = h("p", { class: "error", role: "alert" });
  const fields = h("div", { class: "row" }), alignment = h("div", { class: "scroll" }), pictures = h("div", { class: "tiles" }), mends = h("div", {}), readout = h("p", { class: "readout", id: "sum", "aria-live": "polite" });
  let latest = null, timer = null;
  const level = () => STAGES.findIndex(([id]) => id === now.stage);
  const stage = segments("Stage", STAGES, now.stage, (v) => { stop(); now.stage = v; remember(now); draw(latest); });
  const stop = () => { clearTimeout(timer); timer = null; play.textContent = "Play"; };
  function tick() {
    const next = level() + 1;
    if (next >= STAGES.length) return stop();
    now.stage = STAGES[next][0];
    stage.set(now.stage);
    draw(latest);
    timer = setTimeout(tick, 1100);
  }
  const play = button("Play", () => {
    if (timer) return stop();
    now.stage = "align";
    stage.set(now.stage);
    play.textContent = "Stop";
    draw(latest);
    timer = setTimeout(tick, 1100);
  }, "main", { id: "play" });
  const set = (shapes) => { now.shapes = structuredClone(shapes); controls(); refresh(); };
  function controls() {
    replace(fields, now.shapes.map((shape, i) => numbers(`Shape of ${COLOURS[i][1]}`, shape, (v) => { now.shapes[i] = v; refresh(); }, { least: 0, most: 64, grow: true }).element),
      h("div", { class: "row tight" }, button("Add a third", () => set([...now.shapes, [4]]), "", { disabled: now.shapes.length > 2 }), button("Remove it", () => set(now.shapes.slice(0, -1)), "", { disabled: now.shapes.length < 3 })));
  }
  // The shapes as boxes, right ends together. What is padded slides in, what stretches grows an arrow, what clashes is red.
  function drawAlignment(answer) {
    const at = level(), BOX = 64, TALL = 34, rank = answer.rank, names = [...now.shapes.map((_, i) => COLOURS[i][1]), "result"];
    const wide = 64 + rank * (BOX + 8), high = names.length * (TALL + 8);
    const svg = s("svg", { viewBox: `0 -1 ${wide} ${high + 1}`, width: wide, height: high + 1, role: "img", "aria-label": "The shapes, aligned at their right ends" });
    names.forEach((name, i) => {
      const row = s("g", { "data-tensor": name, transform: `translate(0 ${i * (TALL + 8)})` }, s("text", { x: 50, y: 22, "text-anchor": "end" }, name));
      answer.columns.forEach((c, d) => {
        const of = name === "result" ? null : c.sizes[i], colour = !c.fits ? "limit" : of ? COLOURS[i][0] : "result";
        if (of ? of.padded && at < 1 : at < 3) return;
        const text = !of ? (c.fits ? c.result : "\u2717") : of.padded ? `(${of.size})` : of.size;
        row.append(s("g", { class: "arrive", transform: `translate(${64 + d * (BOX + 8)} 0)` }, s("rect", { width: BOX, height: TALL, rx: 5, fill: `var(--${colour}-wash)`, stroke: `var(--${colour})`, "stroke-width": 1.5, "stroke-dasharray": of?.padded ? "3 3" : "none" }), s("text", { x: BOX / 2, y: 22, "text-anchor": "middle" }, of?.stretched && at > 1 ? `${text} \u2192 ${c.result}` : text)));
      });
      svg.append(row);
    });
    replace(alignment, figure("aligned", svg, ["Right ends together.", "In brackets: a dimension that is missing and counts as 1.", "An arrow: a 1 that stretches, with stride 0.", answer.error ? "\u2717: sizes that differ, and neither is 1." : "The larger of each column."][at]));
  }
  // Cells of a failing tensor beyond what the other one has are red: they would meet nothing.
  function clash(answer, i, k) {
    const { shape } = answer.inputs[i], lost = answer.columns.findIndex((c) => !c.fits), d = lost + shape.length - answer.rank;
    if (lost < 0 || d < 0) return false;
    const least = Math.min(...answer.columns[lost].sizes.map((c) => c.size)), inner = shape.slice(d + 1).reduce((n, m) => n * m, 1);
    return Math.floor(k / inner) % shape[d] >= least;
  }
  function draw(answer) {
    latest = answer;
    if (!answer) return;
    const at = level(), narrow = { size: 38, wide: Math.max(200, (pictures.clientWidth || 640) - 36) };
    drawAlignment(answer);
    error.textContent = answer.error ?? "";
    replace(mends, answer.error && (answer.mends.length ? h("section", { class: "sheet" }, h("h2", {}, "What would make them meet"), h("div", { class: "row tight" }, answer.mends.map((m) => button([m.code, ` \u2192 ${list(m.result)}`], () => { now.shapes[m.tensor] = m.shape; controls(); refresh(); }, "code")))) : h("p", { class: "note" }, "No single unsqueeze makes these shapes meet.")));
    replace(readout, answer.error ? "" : "Point at a number of the result to see where it comes from.");
    const stretched = at > 1 && !answer.error;
    const tiles = answer.inputs.map((input, i) => {
      const [colour, letter] = COLOURS[i], seen = new Set();
      const cell = (k) => {
        const place = stretched ? input.places[k] : k, ghost = stretched && seen.has(place), bad = answer.error && clash(answer, i, k);
        seen.add(place);
        return { text: short(input.values[place]), ghost, faint: ghost, fill: ghost ? "none" : `var(--${bad ? "limit" : colour}-wash)`, stroke: `var(--${bad ? "limit" : colour})`, dash: ghost ? "3 3" : "none" };
      };
      return h("section", { class: "sheet", "data-operand": letter }, h("h2", {}, `${letter}: ${list(input.shape)}`), h("p", { class: "note how" }, stretched ? `seen as ${list(answer.result.shape)}, strides ${list(input.wide_strides)}` : `strides ${list(input.strides)}`),
        figure(letter, sheets(stretched ? answer.result.shape : input.shape, stretched ? input.places.length : input.values.length, cell, narrow), stretched ? `${bytes(input.bytes)} in memory, ${bytes(input.wide_bytes)} as it looks` : `${bytes(input.bytes)} in memory`));
    });
    if (at > 2 && !answer.error) {
      const { shape, values } = answer.result;
      const svg = sheets(shape, values.length, (k) => ({ text: short(values[k]), fill: "var(--result-wash)", stroke: "var(--result)" }), narrow);
      const point = (event) => trace(event.target.closest?.("[data-cell]"));
      svg.addEventListener("pointerover", point);
      svg.addEventListener("click", point);
      tiles.push(h("section", { class: "sheet", "data-operand": "result" }, h("h2", {}, `result: ${list(shape)}`), h("p", { class: "note how" }, "new memory"), figure("result", svg, bytes(answer.result.bytes))));
    }
    replace(pictures, tiles);
  }
  function trace(cell) {
    for (const lit of pictures.querySelectorAll(".lit")) lit.classList.remove("lit");
    if (!cell) return;
    const k = Number(cell.dataset.cell);
    for (const lit of pictures.querySelectorAll(`[data-cell="${k}"]`)) lit.classList.add("lit");
    const index = (shape, i) => { const out = []; for (let d = shape.length - 1; d >= 0; d -= 1) { out.unshift(i % shape[d]); i = Math.floor(i / shape[d]); } return out; };
    replace(readout, "result[", index(latest.result.shape, k).join(", "), "] = ", latest.inputs.map((input, i) => `${COLOURS[i][1]}[${index(input.shape, input.places[k]).join(", ")}]`).join(" + "), " = ", latest.inputs.map((input) => short(input.values[input.places[k]])).join(" + "), " = ", h("em", {}, short(latest.result.values[k])));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => { const answer = await ask("broadcasting", { shapes: now.shapes }); setTimeout(() => draw(answer)); });
  }
  controls();
  replace(root,
    h("section", { class: "sheet stage" }, h("div", { class: "row" }, stage.element, play), alignment, readout), error, mends, pictures,
    h("section", { class: "sheet controls" }, fields, h("div", { class: "row tight" }, EXAMPLES.map(([name, shapes]) => button(name, () => set(shapes))))));
  refresh();
  return stop;
}
