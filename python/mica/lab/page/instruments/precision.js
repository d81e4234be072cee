// f: one curve in many formats.
import { h, onResize, replace, room, s, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { choice, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "A format is a handful of bits split between how far numbers reach and how finely they lie.",
  "float16 ends at 65504 and then says infinity; bfloat16 goes as far as float32 in steps of nearly one per cent; mxfp8, mxfp4 and nvfp4 give each block of 16 or 32 numbers a scale of its own.",
  "Turn the amplitude up until a curve breaks, then look at the bits of the number under the pointer and flip them.",
];
export const source = ["src/core/dtype.cpp", "src/inplace/copy.cpp", "lab/precision.cpp"];

const FORMATS = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "mxfp8", "mxfp4", "nvfp4", "int8"];
const COLOURS = { float32: ["var(--ink)", "none"], float16: ["var(--own)", "none"], bfloat16: ["var(--share)", "none"], float8_e4m3fn: ["var(--result)", "6 3"], float8_e5m2: ["var(--blue)", "2 3"], mxfp8: ["var(--result)", "10 2"], mxfp4: ["var(--limit)", "1 2"], nvfp4: ["var(--own)", "4 2 1 2"], int8: ["var(--limit)", "8 3 2 3"] };
const HIGH = 300, LEFT = 64, BOTTOM = 28;

export function mount(root, state, remember) {
  const now = { curve: "sine", amplitude: 100, shown: ["float32", "float16", "bfloat16", "int8"], at: 64, format: "float16", ...state };
  const error = h("p", { class: "error", role: "alert" });
  const curve = h("div", { tabindex: 0, role: "application", "aria-label": "The curve; left and right move along it" }), differences = h("div", {}), table = h("div", { class: "scroll" }), bits = h("div", { id: "bits" });
  let answer = null, WIDE = 900, guide = null;
  const amplitude = slider("Amplitude", { min: -3, max: 6, step: 0.01, value: Math.log10(now.amplitude), show: (v) => short(10 ** v, 3) }, (v) => { now.amplitude = 10 ** v; refresh(); });
  const which = choice("Curve", ["sine", "ramp", "exponential", "tanh", "bell", "small steps"], now.curve, (v) => { now.curve = v; refresh(); });
  const toggles = h("div", { class: "row tight" }, FORMATS.map((f) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: now.shown.includes(f), "data-format": f, onchange: (event) => { now.shown = FORMATS.filter((g) => (g === f ? event.target.checked : now.shown.includes(g))); refresh(); } }), h("svg", {}), f)));
  // The key of each line: its colour and its dashes.
  toggles.querySelectorAll("svg").forEach((old, i) => old.replaceWith(s("svg", { width: 22, height: 10, viewBox: "0 0 22 10" }, s("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: COLOURS[FORMATS[i]][0], "stroke-dasharray": COLOURS[FORMATS[i]][1], "stroke-width": 2.5 }))));

  const x = (i) => LEFT + ((WIDE - LEFT - 8) * i) / (answer.t.length - 1);
  // Every format holds its value until the next sample: stairs are stairs.
  function stairs(values, y) {
    let path = "", open = false;
    values.forEach((value, i) => {
      if (typeof value !== "number") { open = false; return; }
      path += open ? `H${x(i).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    });
    return path;
  }
  function draw() {
    WIDE = room(curve, 980);
    const top = answer.most * 1.15 || 1;
    const y = (v) => 8 + ((HIGH - BOTTOM - 8) * (top - v)) / (2 * top);
    const low = ["exponential", "bell", "small steps"].includes(now.curve) ? 0 : -top;
    const y2 = low === 0 ? (v) => 8 + ((HIGH - BOTTOM - 8) * (top - v)) / top : y;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": "The curve in each format" });
    for (const v of low === 0 ? [0, answer.most / 2, answer.most] : [-answer.most, 0, answer.most]) svg.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: WIDE - 8, y1: y2(v), y2: y2(v) })), s("text", { x: LEFT - 8, y: y2(v) + 4, "text-anchor": "end", class: "s" }, short(v, 3)));
    let lines = 0;
    for (const row of answer.rows) {
      const [colour, dash] = COLOURS[row.dtype];
      svg.append(s("path", { d: stairs(row.values, y2), fill: "none", stroke: colour, "stroke-width": row.dtype === "float32" ? 1.5 : 2, "stroke-dasharray": dash, "data-format": row.dtype }));
      // What is infinite is marked at the edge that it left by, each format in a line of its own.
      const marks = row.values.map((value, i) => (typeof value === "number" ? "" : `M${x(i).toFixed(1)} ${String(value).startsWith("-") ? HIGH - BOTTOM - 3 - 5 * lines : 4 + 5 * lines}v4`)).join("");
      if (!marks) continue;
      svg.append(s("path", { d: marks, stroke: colour, "stroke-width": 3, "data-clipped": row.dtype }));
      lines += 1;
    }
    guide = s("line", { class: "guide", x1: 0, x2: 0, y1: 4, y2: HIGH - BOTTOM, transform: `translate(${x(now.at)} 0)` });
    svg.append(guide);
    if (answer.rows.some((row) => row.clipped)) svg.append(s("text", { x: LEFT, y: HIGH - 8, class: "s" }, "marks at the edge: infinity"));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      point(Math.round((((event.clientX - box.left) / box.width) * WIDE - LEFT) / (WIDE - LEFT - 8) * (answer.t.length - 1)));
    });
    replace(curve, figure("precision", svg));
    const worst = Math.max(...answer.rows.map((r) => (typeof r.worst === "number" ? r.worst : 0)), Number.MIN_VALUE);
    const error2 = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} 160`, width: WIDE, height: 160, role: "img", "aria-label": "The error of each format" });
    const ye = (v) => 8 + 124 * (1 - v / worst);
    for (const v of [0, worst]) error2.append(s("g", { class: "grid" }, s("line", { x1: LEFT, x2: WIDE - 8, y1: ye(v), y2: ye(v) })), s("text", { x: LEFT - 8, y: ye(v) + 4, "text-anchor": "end", class: "s" }, short(v, 2)));
    for (const row of answer.rows) error2.append(s("path", { d: stairs(row.errors, ye), fill: "none", stroke: COLOURS[row.dtype][0], "stroke-dasharray": COLOURS[row.dtype][1], "stroke-width": 1.5 }));
    replace(differences, figure("error", error2, "Distance from the exact value."));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["format", "bits", "exponent", "mantissa", "levels used", "infinite", "worst error", "under the pointer"].map((t, i) => h("th", { class: i ? "n" : "" }, t)))),
      h("tbody", {}, answer.rows.map((row) => h("tr", { "data-format": row.dtype }, h("td", {}, h("button", { class: "button small", type: "button", "aria-pressed": row.dtype === now.format, onclick: () => { now.format = row.dtype; showBits(); draw(); } }, row.dtype)), h("td", { class: "n" }, row.bits), h("td", { class: "n" }, row.exponent || "\u2013"), h("td", { class: "n" }, row.mantissa || "\u2013"), h("td", { class: "n" }, row.steps), h("td", { class: "n", css: { color: row.clipped ? "var(--limit)" : "" } }, row.clipped), h("td", { class: "n" }, short(row.worst, 3)), h("td", { class: "n", "data-value": row.dtype }, short(row.values[now.at], 6)))))));
  }
  // The pointer moves a line and a column of numbers, once a frame; nothing else is drawn again.
  let waiting = false;
  function point(i) {
    now.at = Math.max(0, Math.min(answer.t.length - 1, i));
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      guide.setAttribute("transform", `translate(${x(now.at)} 0)`);
      for (const row of answer.rows) table.querySelector(`[data-value=${row.dtype}]`).textContent = short(row.values[now.at], 6);
      showBits();
      remember(now);
    });
  }
  curve.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 16, PageUp: -16 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    point(now.at + step);
  });
  // `scale` is that of the block, in a format that has blocks.
  function drawBits(b, scale = null) {
    const kind = (i) => (b.dtype === "int8" ? "share" : i === 0 ? "limit" : i <= b.exponent ? "own" : "share");
    const cells = [...b.bits].map((bit, i) => h("button", { type: "button", "data-bit": i, "aria-label": `bit ${i}, ${bit}`, css: { border: "0", background: bit === "1" ? `var(--${kind(i)})` : `var(--${kind(i)}-wash)`, color: bit === "1" ? "var(--on)" : "var(--ink)", width: "24px", height: "32px", borderRadius: "4px", font: "14px var(--mono)", cursor: "pointer", marginLeft: i === 1 || i === b.exponent + 1 ? "8px" : "0" },
      onclick: () => guarded(error, async () => drawBits(await ask("bits", { dtype: b.dtype, bits: b.bits.slice(0, i) + (bit === "1" ? "0" : "1") + b.bits.slice(i + 1) }), scale)) }, bit));
    replace(bits, h("h2", {}, `${b.dtype}: `, b.dtype === "int8" ? "eight bits of two's complement" : `1 bit of sign, ${b.exponent} of exponent, ${b.mantissa} of mantissa`), h("div", { css: { display: "flex", flexWrap: "wrap", gap: "3px" } }, cells),
      h("p", { class: "readout", css: { marginTop: "12px" } }, h("em", { id: "bits-value" }, typeof b.value === "number" ? String(b.value) : b.value), `   next below ${short(b.below, 8)}, next above ${short(b.above, 8)}`),
      scale ? h("p", { id: "bits-scale" }, `times ${short(scale.value, 8)}, the scale of its block of ${scale.block} numbers`) : null);
  }
  function showBits() {
    const row = answer.rows.find((r) => r.dtype === now.format) ?? answer.rows[0];
    if (!row) return replace(bits);
    const value = row.dtype === "int8" && row.scale ? row.values[now.at] / row.scale : row.scales ? row.values[now.at] / (row.scales[now.at] || 1) : answer.exact[now.at];
    const scale = row.scales ? { value: row.scales[now.at], block: row.block } : null;
    guarded(error, async () => drawBits(await ask("bits", { dtype: row.dtype, value }), scale));
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => {
      answer = await ask("precision", { curve: now.curve, amplitude: now.amplitude, dtypes: now.shown });
      draw();
      showBits();
    });
  }
  replace(root, h("section", { class: "sheet" }, h("div", { class: "row" }, which.element, amplitude.element), h("div", { css: { height: "12px" } }), toggles), error,
    h("section", { class: "sheet" }, curve, differences), h("section", { class: "sheet" }, table), h("section", { class: "sheet" }, bits));
  refresh();
  return onResize(root, () => answer && draw());
}
