// b: bytes of a shape in every dtype.
import { bytes, count, facts, h, list, onResize, replace, room, s } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, numbers, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Elements times bytes per element: there is nothing else to it.",
  "A batch of 32 colour images of 224 by 224 is 4.8 million numbers, so 19 MB in float32 and a quarter of that in int8.",
  "Dtypes of one width cost the same, so they share a bar.",
];
export const source = ["src/core/dtype.cpp", "lab/calculator.cpp"];

const EXAMPLES = [["32 images", [32, 3, 224, 224]], ["a sentence's embeddings", [1, 512, 768]], ["attention of 2048 tokens", [1, 32, 2048, 2048]], ["one linear layer", [4096, 11008]], ["a scalar", []]];
const FIRST = ["float32", "float16", "bfloat16", "int8"];

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
    const of = (name) => answer.dtypes.find((r) => r.dtype === name);
    // The four of every day by themselves, then one bar for all dtypes of a width.
    const rows = [...FIRST.map((name) => [name, of(name), "own"]), ...answer.widths.map((w) => [`${w.element} byte${w.element > 1 ? "s" : ""}`, w, "share"])];
    const most = Math.max(...rows.map(([, r]) => r.bytes), 1);
    const WIDE = room(picture, 720), LEFT = 92, ROW = 26, TALL = 44;
    // The names of a width's dtypes take the lines that they need.
    const letters = Math.floor((WIDE - LEFT) / 7.1), lines = (names) => names.reduce((done, name, i) => {
      const word = i < names.length - 1 ? `${name},` : name, last = done.at(-1);
      return last && last.length + 1 + word.length <= letters ? [...done.slice(0, -1), `${last} ${word}`] : [...done, word];
    }, []);
    const height = FIRST.length * ROW + answer.widths.reduce((sum, w) => sum + TALL + 15 * (lines(w.dtypes).length - 1), 0) + 20;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Bytes in every dtype" });
    let y = 4;
    rows.forEach(([label, row, colour], i) => {
      if (i === FIRST.length) y += 12;
      const wide = Math.max(2, ((WIDE - LEFT - 84) * row.bytes) / most), names = row.dtypes ? lines(row.dtypes) : [];
      svg.append(s("g", { transform: `translate(0 ${y})`, "data-dtype": row.dtypes ? false : row.dtype, "data-width": row.dtypes ? row.element : false },
        s("text", { x: LEFT - 12, y: 15, "text-anchor": "end" }, label),
        s("rect", { x: LEFT, y: 3, width: wide, height: ROW - 9, rx: 3, fill: `var(--${colour})` }),
        s("text", { x: LEFT + wide + 10, y: 15, class: "s" }, bytes(row.bytes), s("title", {}, `${count(row.bytes)} bytes`)),
        names.map((line, k) => s("text", { x: LEFT, y: 34 + 15 * k, class: "s names" }, line))));
      y += row.dtypes ? TALL + 15 * (names.length - 1) : ROW;
    });
    replace(picture, figure("bytes", svg, "Orange: the four dtypes of every day. Teal: all dtypes of a width."));
    const single = of("float32");
    replace(summary, facts([["Shape", list(now.shape)], ["Elements", count(answer.numel)], ["Strides", list(answer.strides)], ["float32, exactly", `${count(single.bytes)} bytes`]]),
      h("p", { class: "readout", css: { margin: "12px 0", fontSize: "14px" } }, `${now.shape.map(count).join(" \u00d7 ") || "1"} \u00d7 4 bytes = `, h("em", {}, bytes(single.bytes))),
      h("p", { class: "note" }, "1 MB is 1\u2009000\u2009000 bytes here, everywhere. Tools that say MiB count 1\u2009048\u2009576, and show a number 5 % smaller for the same memory."));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("calculator", { shape: now.shape })));
  }
  drawSliders();
  replace(root,
    h("div", { class: "cols stage" }, h("section", { class: "sheet" }, picture), h("section", { class: "sheet" }, h("h2", {}, "What the engine says"), summary)), error,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, shape.element, h("div", { class: "field" }, h("span", {}, "Examples"), h("div", { class: "row tight" }, EXAMPLES.map(([name, value]) => button(name, () => { now.shape = [...value]; shape.set(now.shape); drawSliders(); refresh(); }))))), sliders));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
