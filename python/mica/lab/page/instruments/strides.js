// c: the grid and the tape.
import { bytes, codeline, facts, h, list, replace, s, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, choice, numbers } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Memory is a tape; a tensor is a way to walk along it.",
  "The element at [i, j] lies at offset + i \u00d7 stride\u2080 + j \u00d7 stride\u2081, and nothing else decides where.",
  "Transposing, slicing, reversing and stretching write other numbers here and leave every byte where it is.",
];
export const errata = true;
export const source = ["src/core/geometry.cpp", "src/views/views.cpp", "lab/strides.cpp"];

const CELL = 46, GAP = 4, TAPE = 34;
const START = { shape: [3, 4], strides: [4, 1], offset: 0, elements: 12, dtype: "float32", pick: 0 };

// Where element `i` of a shape is drawn: the last two dimensions make a sheet, the others lay sheets side by side.
function spot(shape, i, columnsOfSheets) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, shape[0] ?? 1];
  const sheet = Math.floor(i / (rows * columns)), inside = i % (rows * columns);
  const sx = sheet % columnsOfSheets, sy = Math.floor(sheet / columnsOfSheets);
  return [sx * (columns * (CELL + GAP) + 20) + (inside % columns) * (CELL + GAP), sy * (rows * (CELL + GAP) + 20) + Math.floor(inside / columns) * (CELL + GAP)];
}
function indexOf(shape, i) {
  const index = [];
  for (let d = shape.length - 1; d >= 0; d -= 1) { index.unshift(i % shape[d]); i = Math.floor(i / shape[d]); }
  return index;
}

export function mount(root, state, remember) {
  const now = { ...START, ...state };
  const past = [];
  let answer = null;
  const grid = h("div", { tabindex: 0, role: "application", "aria-label": "The tensor's elements; arrow keys move", class: "plate" });
  const tape = h("div", { class: "below" });
  const error = h("p", { class: "error", role: "alert" });
  const readout = h("p", { class: "readout", id: "readout", "aria-live": "polite" });
  const table = h("div", {}), code = h("div", {}), heading = h("h2", {});
  const undo = button("Undo", () => { if (past.length) { Object.assign(now, past.pop()); sync(); refresh(); } }, "", { disabled: true });

  function edit(change) {
    past.push(structuredClone({ shape: now.shape, strides: now.strides, offset: now.offset, elements: now.elements, dtype: now.dtype, pick: now.pick }));
    Object.assign(now, change);
    refresh();
  }
  // A dimension more or less lays the tensor out afresh, and the tape grows with it.
  const shape = numbers("Shape", now.shape, (v, how) => (how ? layOut("row-major", v) : edit({ shape: v })), { least: 0, most: 64, grow: true, fresh: 2 });
  const strides = numbers("Strides", now.strides, (v) => edit({ strides: v }), { least: -999 });
  const offset = numbers("Offset", [now.offset], ([v]) => edit({ offset: v }));
  const elements = numbers("Tape", [now.elements], ([v]) => edit({ elements: v }), { least: 1, most: 256 });
  const dtype = choice("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "bool"], now.dtype, (v) => edit({ dtype: v }));
  function sync() {
    shape.set(now.shape); strides.set(now.strides); offset.set([now.offset]); elements.set([now.elements]); dtype.set(now.dtype);
  }

  const last = () => now.shape.length - 1;
  const operations = [
    ["x.t()", () => ({ op: "transpose", dim0: Math.max(last() - 1, 0), dim1: Math.max(last(), 0) })],
    ["x[1:]", () => ({ op: "slice", dim: 0, start: 1 })],
    ["x[:, ::2]", () => ({ op: "slice", dim: last(), step: 2 })],
    ["x[::-1]", () => ({ op: "reverse", dim: 0 })],
    ["x[0]", () => ({ op: "select", dim: 0, index: 0 })],
    ["x.unsqueeze(0)", () => ({ op: "unsqueeze", dim: 0 })],
    ["x.expand(3, \u2026)", () => ({ op: "expand", shape: [3, ...(now.shape[0] === 1 ? now.shape.slice(1) : now.shape)] })],
    ["x.view(-1)", () => ({ op: "view", shape: [-1] })],
  ];
  const layOut = (op, sizes) => guarded(error, async () => {
    await drawn;
    try {
      const made = await ask("strides", { ...question(), shape: sizes, strides: sizes.map(() => 0), offset: 0, apply: { op } });
      edit({ shape: made.shape, strides: made.strides, offset: 0, elements: Math.max(now.elements, made.numel), pick: 0 });
    } finally { sync(); }
  });
  // A newer question would end the one that is being answered: an operation that is refused would leave an old picture.
  let drawn = Promise.resolve();
  const apply = (step) => guarded(error, async () => {
    await drawn;
    const made = await ask("strides", { ...question(), apply: step });
    edit({ shape: made.shape, strides: made.strides, offset: made.offset, pick: 0 });
    sync();
  });
  const question = () => ({ shape: now.shape, strides: now.strides, offset: now.offset, elements: now.elements, dtype: now.dtype });

  function pick(i) {
    now.pick = Math.max(0, Math.min(i, answer.places.length - 1));
    remember(now);
    draw();
  }
  grid.addEventListener("keydown", (event) => {
    // A step that would leave the tensor stays where it is.
    const [back, by] = { ArrowRight: [1, 1], ArrowLeft: [1, -1], ArrowDown: [2, 1], ArrowUp: [2, -1], PageDown: [3, 1], PageUp: [3, -1], Home: [0, 0], End: [0, 1] }[event.key] ?? [];
    if (back === undefined || !answer) return;
    event.preventDefault();
    if (back === 0) return pick(by ? answer.places.length - 1 : 0);
    const dim = answer.shape.length - back, index = indexOf(answer.shape, now.pick);
    if (dim < 0 || index[dim] + by < 0 || index[dim] + by >= answer.shape[dim]) return;
    pick(now.pick + by * answer.shape.slice(dim + 1).reduce((n, m) => n * m, 1));
  });

  const cells = new Map();
  let gridSvg = null, tapeSvg = null, from = null, to = null;
  const thread = s("svg", { class: "thread", "aria-hidden": true }, s("path", { class: "guide" }));
  // A line from the chosen cell to its place on the tape.
  function drawThread() {
    thread.firstChild.setAttribute("d", "");
    if (!from || !to) return;
    const frame = thread.parentNode.getBoundingClientRect(), g = gridSvg.getBoundingClientRect(), t = tapeSvg.getBoundingClientRect();
    const kg = g.width / (gridSvg.viewBox.baseVal.width || 1), kt = t.width / (tapeSvg.viewBox.baseVal.width || 1);
    const gx = g.left - frame.left, gy = g.top - frame.top, tx = t.left - frame.left, ty = t.top - frame.top, bottom = gy + g.height, middle = (bottom + ty) / 2;
    // It runs in the gaps between cells, so that it crosses no number: down beside the column, and down the tape's lines.
    const lowest = from[1] + CELL >= gridSvg.viewBox.baseVal.height - 1, x1 = gx + (lowest ? from[0] + CELL / 2 : from[0] + CELL + GAP / 2) * kg;
    const x2 = tx + (to[1] ? to[0] - 1 : to[0] + TAPE / 2) * kt, y = gy + (from[1] + CELL - 8) * kg;
    const start = lowest ? `M${x1} ${bottom}` : `M${gx + (from[0] + CELL) * kg} ${y}Q${x1} ${y} ${x1} ${y + 6}V${bottom}`;
    const end = to[1] ? `V${ty + to[1] * kt + 6}H${tx + to[0] * kt}` : "";
    thread.firstChild.setAttribute("d", `${start}C${x1} ${middle} ${x2} ${middle} ${x2} ${ty}${end}`);
  }
  function drawGrid() {
    const { shape: sizes, places } = answer;
    const [rows, columns] = sizes.length > 1 ? sizes.slice(-2) : [1, sizes[0] ?? 1];
    const sheets = Math.max(1, Math.round(places.length / Math.max(1, rows * columns)));
    const room = Math.max(1, Math.floor((grid.clientWidth || 600) / (columns * (CELL + GAP) + 20)));
    const across = Math.min(sheets, room);
    const width = Math.max(CELL, across * (columns * (CELL + GAP) + 20) - 20), height = Math.max(CELL, Math.ceil(sheets / across) * (rows * (CELL + GAP) + 20) - 20);
    if (!gridSvg) replace(grid, figure("strides", (gridSvg = s("svg", { role: "img", "aria-label": "Elements as a grid" }))));
    gridSvg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    gridSvg.setAttribute("width", width);
    gridSvg.setAttribute("height", height);
    // A cell is the place it shows: when an operation moves the element elsewhere, its cell travels there.
    const seen = new Map();
    places.forEach((place, i) => {
      const turn = (seen.get(place) ?? 0) + 1;
      seen.set(place, turn);
      const key = `${place}/${turn}`;
      const [x, y] = spot(sizes, i, across);
      let cell = cells.get(key);
      if (!cell) {
        cell = s("g", { class: "cell motion", "data-place": place }, s("rect", { width: CELL, height: CELL, rx: 5 }), s("text", { x: CELL / 2, y: CELL / 2 + 1, "text-anchor": "middle" }), s("text", { class: "s", x: CELL / 2, y: CELL - 7, "text-anchor": "middle" }, `@${place}`));
        cell.addEventListener("click", () => { grid.focus({ preventScroll: true }); pick(cell.index); });
        cells.set(key, cell);
        gridSvg.append(cell);
      }
      cell.index = i;
      cell.children[1].textContent = answer.values ? short(answer.values[i]) : "";
      if (i === now.pick) from = [x, y];
      cell.used = true;
      cell.style.transform = `translate(${x}px, ${y}px)`;
      cell.setAttribute("class", `cell motion${i === now.pick ? " pick" : ""}${place < 0 || place >= now.elements ? " out" : ""}`);
    });
    for (const [key, cell] of cells) {
      if (!cell.used) { cell.remove(); cells.delete(key); }
      cell.used = false;
    }
  }
  function drawTape() {
    const { places, lowest, highest } = answer;
    const first = Math.min(0, places.length ? Math.max(lowest, -64) : 0), end = Math.max(now.elements - 1, places.length ? Math.min(highest, now.elements + 64) : 0);
    const times = new Map();
    for (const place of places) times.set(place, (times.get(place) ?? 0) + 1);
    const across = Math.max(4, Math.floor(((tape.clientWidth || 640) + 2) / (TAPE + 2)));
    const total = end - first + 1, wide = Math.min(total, across), lines = Math.ceil(total / wide);
    const height = lines * (TAPE + 22);
    const svg = s("svg", { viewBox: `0 0 ${wide * (TAPE + 2)} ${height}`, width: wide * (TAPE + 2), height, role: "img", "aria-label": "The tape of memory" });
    const here = places[now.pick];
    for (let place = first; place <= end; place += 1) {
      const at = place - first, x = (at % wide) * (TAPE + 2), y = Math.floor(at / wide) * (TAPE + 22);
      const kind = `place${times.has(place) ? " reach" : ""}${(times.get(place) ?? 0) > 1 ? " many" : ""}${place < 0 || place >= now.elements ? " ghost" : ""}${place === here ? " here" : ""}`;
      const box = s("g", { class: kind, transform: `translate(${x} ${y})`, "data-place": place }, s("rect", { width: TAPE, height: TAPE, rx: 4 }), place >= 0 && place < now.elements && s("text", { x: TAPE / 2, y: TAPE / 2 + 4.5, "text-anchor": "middle" }, short(answer.tape[place], 3)), s("text", { class: `s${place === here ? " share" : ""}`, x: TAPE / 2, y: TAPE + 13, "text-anchor": "middle" }, place));
      if (place === here) to = [x, y];
      if (times.has(place)) { box.style.cursor = "pointer"; box.addEventListener("click", () => pick(places.indexOf(place))); }
      svg.append(box);
    }
    tapeSvg = svg;
    const missing = [places.length && lowest < first && `${first - lowest} places before ${first}`, places.length && highest > end && `${highest - end} places after ${end}`].filter(Boolean);
    replace(tape, figure("tape", svg, missing.length ? `Not drawn: ${missing.join(" and ")}.` : undefined));
  }
  function draw() {
    const { places } = answer;
    heading.textContent = `The tensor: shape ${list(answer.shape)}, strides ${list(answer.strides)}, offset ${answer.offset}`;
    from = to = null;
    drawGrid();
    drawTape();
    drawThread();
    if (places.length) {
      const index = indexOf(answer.shape, now.pick), place = places[now.pick];
      const terms = index.map((n, d) => `${n}\u2009\u00d7\u2009${answer.strides[d]}`);
      const outside = place < 0 || place >= now.elements;
      replace(readout, "x[", index.join(", "), "]  =  ", [answer.offset, ...terms].join(" + "), "  =  place ", h("em", {}, place), outside ? h("b", {}, "  out of range") : `  =  byte ${answer.addresses[now.pick]}`, answer.values ? `, holds ${short(answer.values[now.pick])}` : "");
    } else replace(readout, "no elements: a size is 0");
    const row = answer.formats[0];
    replace(table, facts([
      ["Elements", answer.numel],
      ["Bytes of the tensor", bytes(answer.bytes)],
      ["Bytes on the tape", bytes(answer.storage_bytes)],
      ["Places reached", `${answer.reached} of ${now.elements}`],
      answer.outside && ["and outside of the tape", answer.outside, "bad"],
      ["In range", answer.inside ? "yes" : "no", answer.inside ? "yes" : "bad"],
      ["Elements share a place", answer.overlaps ? "yes" : "no", answer.overlaps ? "no" : ""],
      ["Contiguous", row.holds ? "yes" : "no", row.holds ? "yes" : "no"],
      !row.holds && ["", `dimension ${row.dimension} steps by ${row.found}, not ${row.expected}`],
    ]));
    replace(code, codeline("Python", answer.python), codeline("C++", answer.cpp), answer.refused && h("p", { class: "error", css: { marginTop: "12px" } }, answer.refused));
  }
  function refresh() {
    undo.disabled = past.length === 0;
    remember(now);
    drawn = guarded(error, async () => {
      answer = await ask("strides", question());
      now.pick = Math.min(now.pick, Math.max(0, answer.places.length - 1));
      draw();
    });
  }

  const plate = h("section", { class: "sheet plate" }, heading, grid, tape, readout, thread,
    h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch-share" }), "the place of the chosen element"), h("li", {}, h("i", { class: "swatch-share-wash" }), "reached"), h("li", {}, h("i", { class: "swatch-hair" }), "not reached"), h("li", {}, h("i", { class: "swatch-own" }), "outlined: reached more than once")));
  replace(root,
    h("div", { class: "cols stage" }, plate, h("section", { class: "sheet" }, h("h2", {}, "What the engine says"), table)), error,
    h("section", { class: "sheet controls" },
      h("div", { class: "row tight" }, operations.map(([name, step]) => button(name, () => apply(step()), "code")), h("span", { class: "pair" }, undo, button("Reset", () => { edit(structuredClone(START)); sync(); }))),
      h("div", { class: "row" }, shape.element, strides.element, offset.element, elements.element, dtype.element,
        h("div", { class: "field" }, h("span", {}, "Laid out"), h("div", { class: "row tight" }, [["row-major"], ["column-major"], ["channels_last", "channels last"]].map(([op, label]) => button(label ?? op, () => layOut(op, now.shape))))))),
    h("section", { class: "sheet" }, h("h2", {}, "The same in code"), code));
  const resize = new ResizeObserver(() => answer && draw());
  resize.observe(root);
  refresh();
  return () => resize.disconnect();
}
