// f: one curve in many formats.
import { h, onResize, replace, room, s, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, check, choice, dial, segments } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "A format is a handful of bits split between how far numbers reach and how finely they lie.",
  "float16 ends at 65504 and then says infinity; bfloat16 goes as far as float32 in steps of nearly one per cent; mxfp8, mxfp4 and nvfp4 give each block of 16 or 32 numbers a scale of its own.",
  "Every panel holds the same curve: the grey line is exact, the coloured one is what the format kept of it, and the lens shows the steps.",
];
export const errata = true;
export const source = ["src/core/dtype.cpp", "src/inplace/copy.cpp", "lab/precision.cpp"];

const FORMATS = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "mxfp8", "mxfp4", "nvfp4", "int8"];
const COLOURS = { float32: "ink", float16: "own", bfloat16: "share", float8_e4m3fn: "result", float8_e5m2: "blue", mxfp8: "result", mxfp4: "limit", nvfp4: "own", int8: "blue" };
const DASHES = { mxfp8: "10 2", mxfp4: "2 2", nvfp4: "4 2 1 2", int8: "8 3 2 3", float8_e5m2: "5 3" };
const PRESETS = [["1", 1], ["100", 100], ["70 000", 70000], ["a loss of 0.00001", 1e-5]];

export function mount(root, state, remember) {
  const now = { curve: "sine", amplitude: 100, shown: ["float32", "float16", "bfloat16", "int8"], at: 64, format: "float16", truncate: false, zoom: 16, ...state };
  if (!Array.isArray(now.shown)) throw new TypeError("shown is a list");
  const error = h("p", { class: "error", role: "alert" });
  const panels = h("div", { class: "panels", tabindex: 0, role: "application", "aria-label": "The curve; left and right move along it" }), lens = h("div", {}), differences = h("div", {}), table = h("div", { class: "scroll" }), bits = h("div", { id: "bits" });
  let answer = null, near = null, guides = [];
  const amplitude = dial("Amplitude", { min: 1e-8, max: 1e9, value: now.amplitude }, (v) => { now.amplitude = v; refresh(); });
  const which = choice("Curve", ["sine", "ramp", "exponential", "tanh", "bell", "small steps"], now.curve, (v) => { now.curve = v; refresh(); });
  const cut = check("int8 without a scale: .to(int8) truncates", now.truncate, (v) => { now.truncate = v; refresh(); });
  const zoom = segments("Lens", [[4, "4\u00d7"], [16, "16\u00d7"], [64, "64\u00d7"]], now.zoom, (v) => { now.zoom = v; look(); });
  const toggles = h("div", { class: "row tight" }, FORMATS.map((f) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: now.shown.includes(f), "data-format": f, onchange: (event) => { now.shown = FORMATS.filter((g) => (g === f ? event.target.checked : now.shown.includes(g))); refresh(); } }), f)));

  // A format holds its value until the next sample: stairs are stairs. One that keeps a level for nearly every sample is
  // a line: what would look like stairs there are the samples.
  function trace(row, x, y) {
    const smooth = row.levels > 0.75 * new Set(row.values).size && row.worst_relative < 1e-5;
    let path = "", open = false;
    row.values.forEach((value, i) => {
      if (typeof value !== "number") { open = false; return; }
      const px = x(i).toFixed(1), py = Math.max(-1e4, Math.min(1e4, y(value))).toFixed(1);
      path += !open ? `M${px} ${py}` : smooth ? `L${px} ${py}` : `H${px}V${py}`;
      open = true;
    });
    return s("path", { d: path, fill: "none", stroke: `var(--${COLOURS[row.dtype]})`, "stroke-width": 2, "stroke-dasharray": DASHES[row.dtype], "data-format": row.dtype, "data-smooth": String(smooth) });
  }
  const line = (values, x, y) => s("path", { d: values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join(""), fill: "none", stroke: "var(--faint)", "stroke-width": 1 });
  // Runs of samples that are no finite number, as [first, last, the value].
  function runs(values) {
    const found = [];
    values.forEach((v, i) => { if (typeof v === "number") return; const last = found.at(-1); if (last && last[1] === i - 1 && last[2] === v) last[1] = i; else found.push([i, i, v]); });
    return found;
  }
  function draw() {
    const across = room(panels, 980), many = Math.max(1, answer.rows.length), columns = across > 720 ? Math.min(many, many === 4 ? 2 : 3) : across > 480 ? Math.min(2, many) : 1;
    const W = Math.floor((across - (columns - 1) * 16) / columns), H = across > 480 ? 150 : 128, LEFT = 50, last = answer.t.length - 1;
    const top = (answer.most || 1) * 1.12, low = ["exponential", "bell", "small steps"].includes(now.curve) ? Math.min(0, ...answer.exact) : -top;
    const x = (i) => LEFT + ((W - LEFT - 6) * i) / last, y = (v) => 22 + ((H - 28) * (top - v)) / (top - low);
    guides = [];
    replace(panels, answer.rows.map((row) => {
      const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": `The curve in ${row.dtype}`, "data-panel": row.dtype });
      for (const v of [answer.most, 0]) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: W - 6, y1: y(v), y2: y(v) })), s("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end", class: "s" }, short(v, 3)));
      // Where the format has run out of numbers the panel is red, all the way.
      for (const [first, end, value] of runs(row.values)) svg.append(s("rect", { x: x(Math.max(0, first - 0.5)), y: 20, width: Math.max(3, x(Math.min(last, end + 0.5)) - x(Math.max(0, first - 0.5))), height: H - 24, fill: "var(--limit-wash)", "data-clipped": row.dtype }), end - first > 8 && s("text", { class: "limit", x: x((first + end) / 2), y: H / 2 + 10, "text-anchor": "middle" }, value === "nan" ? "nan" : value === "inf" ? "\u221e" : "\u2212\u221e"));
      svg.append(line(answer.exact, x, y), trace(row, x, y));
      const words = [row.infinite && `${row.infinite} infinite`, row.undefined && `${row.undefined} nan`, row.saturated && `${row.saturated} held at ${short(row.largest * (row.scale ?? 1), 4)}`, row.scale && `scale ${short(row.scale, 3)}`].filter(Boolean).join(", ");
      svg.append(s("text", { x: LEFT, y: 13 }, row.dtype, s("tspan", { class: "s", dx: 8, css: { fill: row.infinite || row.undefined || row.saturated ? "var(--limit)" : "var(--soft)" } }, words)));
      const guide = s("line", { class: "guide", x1: 0, x2: 0, y1: 18, y2: H - 4, transform: `translate(${x(now.at)} 0)` });
      guides.push([guide, x]);
      svg.append(guide);
      const follow = (event) => { const box = svg.getBoundingClientRect(); point(Math.round((((event.clientX - box.left) / box.width) * W - LEFT) / (W - LEFT - 6) * last)); };
      svg.addEventListener("pointermove", follow);
      svg.addEventListener("click", follow);
      return figure(`precision-${row.dtype}`, svg);
    }));
    drawErrors();
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["format", "bits", "exponent", "mantissa", "levels", "infinite", "nan", "saturated", "worst error", "relative", "under the pointer"].map((t, i) => h("th", { class: i ? "n" : "" }, t)))),
      h("tbody", {}, answer.rows.map((row) => h("tr", { "data-format": row.dtype }, h("td", {}, h("button", { class: "button small", type: "button", "aria-pressed": row.dtype === now.format, onclick: () => { now.format = row.dtype; showBits(); draw(); } }, row.dtype)), [row.bits, row.exponent || "\u2013", row.mantissa || "\u2013"].map((v) => h("td", { class: "n" }, v)), h("td", { class: "n", "data-levels": row.dtype }, row.levels), [row.infinite, row.undefined, row.saturated].map((v) => h("td", { class: "n", css: { color: v ? "var(--limit)" : "" } }, v)), h("td", { class: "n" }, short(row.worst, 3)), h("td", { class: "n" }, short(row.worst_relative, 3)), h("td", { class: "n", "data-value": row.dtype }, short(row.values[now.at], 6)))))));
  }
  // The relative error spans nine powers of ten: its scale is logarithmic.
  function drawErrors() {
    const W = room(differences, 980), H = 190, LEFT = 50, last = answer.t.length - 1, high = 0, low = -9;
    const x = (i) => LEFT + ((W - LEFT - 6) * i) / last, y = (v) => 8 + ((H - 22) * (high - Math.max(low, Math.min(high, Math.log10(v))))) / (high - low);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "The relative error of each format, logarithmic" });
    for (let p = high; p >= low; p -= 3) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: W - 6, y1: y(10 ** p), y2: y(10 ** p) })), s("text", { x: LEFT - 6, y: y(10 ** p) + 4, "text-anchor": "end", class: "s" }, p ? `1e${p}` : "1"));
    for (const row of answer.rows) svg.append(s("path", { d: row.relative.map((v, i) => (v === null ? "" : `M${x(i).toFixed(1)} ${y(v).toFixed(1)}h2`)).join(""), fill: "none", stroke: `var(--${COLOURS[row.dtype]})`, "stroke-width": 2.5, "data-error": row.dtype }));
    replace(differences, figure("error", svg, "Relative error at every sample, logarithmic. A sample that is exact has no mark."), h("ul", { class: "legend" }, answer.rows.map((r) => h("li", {}, h("i", { class: `swatch-${COLOURS[r.dtype]}` }), r.dtype))));
  }
  function drawLens() {
    const W = room(lens, 980), H = 220, LEFT = 76, last = near.t.length - 1;
    const finite = near.exact, least = Math.min(...finite), most = Math.max(...finite), pad = (most - least) * 0.2 || Math.abs(most) * 0.02 || 1;
    const x = (i) => LEFT + ((W - LEFT - 6) * i) / last, y = (v) => 8 + ((H - 22) * (most + pad - v)) / (most - least + 2 * pad);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "The lens" }, s("defs", {}, s("clipPath", { id: "lens-clip" }, s("rect", { x: LEFT, y: 4, width: W - LEFT - 6, height: H - 14 }))));
    for (const v of [most, (most + least) / 2, least]) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: W - 6, y1: y(v), y2: y(v) })), s("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end", class: "s" }, short(v, 5)));
    const clipped = s("g", { "clip-path": "url(#lens-clip)" }, line(near.exact, x, y), near.rows.map((row) => trace(row, x, y)));
    svg.append(clipped);
    for (const path of clipped.querySelectorAll("[data-format]")) path.setAttribute("data-lens", path.dataset.format), path.removeAttribute("data-format");
    replace(lens, figure("lens", svg, `${now.zoom} times as near, around the pointer: from t = ${short(near.t[0], 3)} to ${short(near.t.at(-1), 3)}.`));
  }
  const look = () => guarded(error, async () => {
    const half = 0.5 / now.zoom, centre = Math.min(1 - half, Math.max(half, answer.t[now.at]));
    near = await ask("precision", { ...question(), from: Math.max(0, centre - half), to: Math.min(1, centre + half), points: 513 }, "lens");
    drawLens();
  });
  // The pointer moves lines and a column of numbers, once a frame; the lens follows when it rests.
  let waiting = false;
  function point(i) {
    now.at = Math.max(0, Math.min(answer.t.length - 1, i));
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      for (const [guide, x] of guides) guide.setAttribute("transform", `translate(${x(now.at)} 0)`);
      for (const row of answer.rows) table.querySelector(`[data-value=${row.dtype}]`).textContent = short(row.values[now.at], 6);
      showBits();
      remember(now);
      clearTimeout(look.timer);
      look.timer = setTimeout(look, 60);
    });
  }
  panels.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 16, PageUp: -16 }[event.key];
    if (step === undefined || !answer) return;
    event.preventDefault();
    point(now.at + step);
  });
  // `scale` is that of the block, in a format that has blocks.
  function drawBits(b, scale = null) {
    const kind = (i) => (b.dtype === "int8" ? "share" : i === 0 ? "limit" : i <= b.exponent ? "own" : "share");
    const cells = [...b.bits].map((bit, i) => h("button", { type: "button", class: "bit", "data-bit": i, "aria-label": `bit ${i}, ${bit}`, css: { background: bit === "1" ? `var(--${kind(i)})` : `var(--${kind(i)}-wash)`, color: bit === "1" ? "var(--on)" : "var(--ink)", marginLeft: i === 1 || i === b.exponent + 1 ? "8px" : "0" },
      onclick: () => guarded(error, async () => drawBits(await ask("bits", { dtype: b.dtype, bits: b.bits.slice(0, i) + (bit === "1" ? "0" : "1") + b.bits.slice(i + 1) }), scale)) }, bit));
    const beside = (v) => (v === null ? "none" : short(v, 8));
    replace(bits, h("h2", {}, `${b.dtype}: `, b.dtype === "int8" ? "eight bits of two's complement" : `1 bit of sign, ${b.exponent} of exponent, ${b.mantissa} of mantissa`), h("div", { css: { display: "flex", flexWrap: "wrap", gap: "3px" } }, cells),
      h("p", { class: "readout", css: { marginTop: "12px" } }, h("em", { id: "bits-value" }, typeof b.value === "number" ? String(b.value) : b.value), h("span", { id: "neighbours" }, `   next below ${beside(b.below)}, next above ${beside(b.above)}`)),
      scale ? h("p", { id: "bits-scale" }, `times ${short(scale.value, 8)}, the scale of ${scale.block ? `its block of ${scale.block} numbers` : "the whole curve"}`) : null);
  }
  function showBits() {
    const row = answer.rows.find((r) => r.dtype === now.format) ?? answer.rows[0];
    if (!row) return replace(bits);
    const by = row.scales ? row.scales[now.at] || 1 : row.scale;
    const value = row.scales || row.dtype === "int8" ? row.values[now.at] / (by ?? 1) : answer.exact[now.at];
    guarded(error, async () => drawBits(await ask("bits", { dtype: row.dtype, value }), by === null ? null : { value: by, block: row.block }));
  }
  const question = () => ({ curve: now.curve, amplitude: now.amplitude, dtypes: now.shown, truncate: now.truncate });
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      answer = await ask("precision", question());
      now.at = Math.max(0, Math.min(answer.t.length - 1, Number(now.at) || 0));
      draw();
      showBits();
      look();
    });
  }
  replace(root, h("section", { class: "sheet stage" }, panels), error,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, which.element, amplitude.element, h("div", { class: "field" }, h("span", {}, "Amplitudes"), h("div", { class: "row tight" }, PRESETS.map(([name, v]) => button(name, () => { now.amplitude = v; amplitude.set(v); refresh(); }))))), toggles, cut.element),
    h("section", { class: "sheet" }, h("div", { class: "row" }, zoom.element), lens), h("section", { class: "sheet" }, differences), h("section", { class: "sheet" }, table), h("section", { class: "sheet" }, bits));
  refresh();
  return onResize(root, () => { if (answer) draw(); if (near) drawLens(); });
}
