// The grid of a tensor and the tape of its memory, small: for every step of a chain.
import { s, short } from "./dom.js";

// A tensor as sheets of its last two dimensions, wrapped where there is no room. `cell(i)` gives what is drawn of
// element i: { text, fill, stroke, dash, faint, title }.
export function sheets(shape, many, cell, { size = 40, gap = 3, wide = 640, label = "Elements as a grid" } = {}) {
  const pitch = size + gap, line = shape.length === 1 ? Math.max(1, Math.min(shape[0], Math.floor((wide + gap) / pitch))) : 1;
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [Math.ceil((shape[0] ?? 1) / line), line]; // one dimension goes on in the next line
  const each = Math.max(1, rows * columns), count = Math.max(1, Math.ceil(many / each));
  const across = Math.max(1, Math.min(count, Math.floor((wide + 14) / (columns * pitch + 14))));
  const width = Math.max(size, across * (columns * pitch + 14) - 14), height = Math.max(size, Math.ceil(count / across) * (rows * pitch + 14) - 14);
  const svg = s("svg", { viewBox: `-1 -1 ${width + 2} ${height + 2}`, width: width + 2, height: height + 2, role: "img", "aria-label": label });
  for (let i = 0; i < many; i += 1) {
    const sheet = Math.floor(i / each), inside = i % each, { text, fill, stroke, dash, faint, ghost, title } = cell(i);
    svg.append(s("g", { transform: `translate(${(sheet % across) * (columns * pitch + 14) + (inside % columns) * pitch} ${Math.floor(sheet / across) * (rows * pitch + 14) + Math.floor(inside / columns) * pitch})`, "data-cell": i, class: ghost ? "ghost" : "" },
      s("rect", { width: size, height: size, rx: 4, fill, stroke, "stroke-width": 1.5, "stroke-dasharray": dash }),
      s("text", { x: size / 2, y: size / 2 + 4.5, "text-anchor": "middle", opacity: faint ? 0.7 : 1, class: size < 36 ? "s" : "" }, text), title && s("title", {}, title)));
  }
  return svg;
}

// The grid and the tape of a step as the engine describes it.
export function layout(step, wide) {
  const many = Math.min(step.places.length, 96), colour = step.shares ? "share" : "own";
  const grid = sheets(step.shape, many, (i) => ({ text: step.values.length ? short(step.values[i], 3) : "\u2013", fill: `var(--${colour}-wash)`, stroke: `var(--${colour})`, title: `place ${step.places[i]}` }), { wide, size: 38 });
  const total = Math.min(step.storage.elements, 64), first = Math.max(0, Math.min(step.offset, step.storage.elements - total)), cell = Math.max(7, Math.min(24, Math.floor(wide / Math.max(total, 1)) - 2));
  const across = Math.max(1, Math.min(total, Math.floor(wide / (cell + 2)))), order = new Map();
  step.places.forEach((place, i) => { if (!order.has(place)) order.set(place, i); });
  const tape = s("svg", { viewBox: `0 0 ${across * (cell + 2)} ${Math.ceil(total / across) * 26}`, width: across * (cell + 2), height: Math.ceil(total / across) * 26, role: "img", "aria-label": `The tape: ${step.storage.elements} places, ${order.size} reached` });
  for (let k = 0; k < total; k += 1) {
    const place = first + k, at = order.get(place);
    tape.append(s("g", { transform: `translate(${(k % across) * (cell + 2)} ${Math.floor(k / across) * 26})`, "data-tape": place, class: at === undefined ? "" : "reach" }, s("rect", { width: cell, height: 22, rx: 3, fill: at === undefined ? "var(--hair)" : `var(--${colour}${at === 0 ? "" : "-wash"})` }, s("title", {}, at === undefined ? `place ${place}: not reached` : `place ${place}: element ${at}`)),
      cell >= 18 && s("text", { class: "s", x: cell / 2, y: 15, "text-anchor": "middle", fill: at === 0 ? "var(--on)" : "var(--soft)", css: { fill: at === 0 ? "var(--on)" : "" } }, place)));
  }
  return [grid, tape, many < step.numel ? `${many} of ${step.numel} elements, ` : "", total < step.storage.elements ? `${total} of ${step.storage.elements} places` : `${step.storage.elements} places`];
}
