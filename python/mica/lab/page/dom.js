// Elements without a framework: h() for HTML, s() for SVG.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "css") Object.assign(element.style, value);
    else if (key === "value" || key === "checked") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(3).filter((c) => c !== undefined && c !== null && c !== false));
}

// ---- numbers as people read them (the engine computes them)
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
export function bytes(n, digits = 2) {
  let unit = 0;
  let amount = Number(n);
  while (Math.abs(amount) >= 1000 && unit < UNITS.length - 1) { amount /= 1000; unit += 1; }
  return unit === 0 ? `${amount} B` : `${amount.toFixed(digits)} ${UNITS[unit]}`;
}
export const count = (n) => Number(n).toLocaleString("en-US").replaceAll(",", "\u2009");
export function short(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value).replace("-", "\u2212");
  const text = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "\u2212").replace("e\u2212", "e-");
}
export function seconds(t) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e3], ["\u00b5s", 1e6]]) if (t * scale >= 0.9995) return `${t * scale < 99.95 ? (t * scale).toPrecision(3) : (t * scale).toFixed(0)} ${unit}`;
  return `${(t * 1e9).toFixed(0)} ns`;
}
export const list = (values) => `(${values.join(", ")}${values.length === 1 ? "," : ""})`;

export function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value, kind]) => (name ? [h("dt", {}, name), h("dd", { class: kind || false }, value)] : h("dd", { class: "whole" }, value))));
}

// Charts are drawn for the width that there is, and drawn again when it changes.
export const room = (element, most = 980, least = 280) => Math.max(least, Math.min(most, Math.floor(element.clientWidth || most)));
export function onResize(root, draw) {
  let width = root.clientWidth;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    draw();
  });
  observer.observe(root);
  return () => observer.disconnect();
}

export function say(words) {
  const status = document.getElementById("status");
  status.textContent = words;
  status.classList.add("show");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => status.classList.remove("show"), 1800);
}

export function codeline(language, text) {
  const copy = h("button", { class: "button small", type: "button", "aria-label": `Copy the ${language} code`, onclick: async () => {
    try { await navigator.clipboard.writeText(text); say(`${language} copied`); } catch { say("the browser refused the clipboard"); }
  } }, "Copy");
  return h("div", { class: "codeline", "data-language": language }, h("code", {}, text), copy);
}
