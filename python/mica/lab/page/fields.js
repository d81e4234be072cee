// Controls that several instruments share.
import { h } from "./dom.js";

let serial = 0;

// A list of integers: one box each, arrow keys change it, + and \u2212 add and remove a dimension.
export function numbers(label, values, changed, { least = -99, most = 999, grow = false, fresh = 1 } = {}) {
  const row = h("div", { class: "numbers" });
  const field = h("div", { class: "field", role: "group", "aria-label": label }, h("span", {}, label), row);
  let current = [...values];
  function draw() {
    row.replaceChildren(
      ...current.map((value, i) => {
        const box = h("input", { type: "number", value, min: least, max: most, "aria-label": `${label} ${i}`, inputmode: "numeric",
          oninput: () => {
            const n = Number(box.value);
            const bad = box.value.trim() === "" || !Number.isInteger(n) || n < least || n > most;
            box.setAttribute("aria-invalid", bad);
            if (bad) return;
            current[i] = n;
            changed([...current]);
          } });
        return box;
      }),
    );
    if (!grow) return;
    row.append(
      h("button", { class: "button small", type: "button", "aria-label": `Add a dimension to ${label}`, onclick: () => { current.push(fresh); draw(); changed([...current], "grow"); } }, "+"),
      h("button", { class: "button small", type: "button", "aria-label": `Remove the last dimension of ${label}`, disabled: current.length === 0, onclick: () => { current.pop(); draw(); changed([...current], "shrink"); } }, "\u2212"),
    );
  }
  draw();
  return { element: field, set(next) {
    if (next.length === current.length && next.every((n, i) => n === current[i])) return;
    const same = next.length === current.length;
    current = [...next];
    if (!same) return draw();
    [...row.querySelectorAll("input")].forEach((box, i) => { if (Number(box.value) !== current[i]) box.value = current[i]; });
  } };
}

export function segments(label, options, value, changed) {
  const name = `segments-${(serial += 1)}`;
  const group = h("div", { class: "segments", role: "radiogroup", "aria-label": label }, options.map((option) => {
    const [id, words] = Array.isArray(option) ? option : [option, option];
    return h("label", {}, h("input", { type: "radio", name, value: id, checked: id === value, onchange: () => changed(id) }), h("span", {}, words));
  }));
  return { element: h("div", { class: "field" }, h("span", {}, label), group), set(id) { for (const i of group.querySelectorAll("input")) i.checked = i.value === id; } };
}

export function choice(label, options, value, changed) {
  const box = h("select", { "aria-label": label, onchange: () => changed(box.value) }, options.map((option) => {
    const [id, words] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: id }, words);
  }));
  box.value = value;
  return { element: h("label", { class: "field" }, h("span", {}, label), box), set(id) { box.value = id; } };
}

// A slider with its value beside the label; `show` writes the value.
export function slider(label, { min, max, step = 1, value, show = String }, changed) {
  const shown = h("output", {}, show(value));
  const box = h("input", { type: "range", min, max, step, "aria-label": label, oninput: () => {
    shown.textContent = show(Number(box.value));
    box.setAttribute("aria-valuetext", shown.textContent);
    changed(Number(box.value));
  } });
  box.value = value;
  const element = h("label", { class: "field", css: { flex: "1 1 200px" } }, h("span", {}, label, " \u00b7 ", shown), box);
  return { element, set(v) { box.value = v; shown.textContent = show(Number(v)); } };
}

// A number that is typed, and a slider over its powers beside it.
export function dial(label, { min, max, value, unit = "", scale = 1, whole = false }, changed) {
  const at = (v) => Math.log(Math.max(v, Number.MIN_VALUE));
  const put = (v) => { const x = v / scale; return whole ? Math.round(x) : Number(x.toPrecision(4)); };
  const box = h("input", { type: "number", step: "any", value: put(value), "aria-label": label, inputmode: "decimal", oninput: () => {
    const v = Number(box.value) * scale, bad = box.value.trim() === "" || !(v >= min && v <= max);
    box.setAttribute("aria-invalid", bad);
    if (bad) return;
    slide.value = at(v);
    changed(v);
  } });
  const slide = h("input", { type: "range", min: at(min), max: at(max), step: "any", "aria-label": `${label}, slider`, oninput: () => {
    const v = Math.exp(Number(slide.value));
    const n = whole ? Math.round(v) : Number(v.toPrecision(3));
    box.value = put(n);
    box.setAttribute("aria-invalid", false);
    changed(n);
  } });
  slide.value = at(value);
  return { element: h("div", { class: "field dial" }, h("span", {}, label), h("div", {}, box, unit && h("small", {}, unit), slide)), set(v) { box.value = put(v); slide.value = at(v); box.setAttribute("aria-invalid", false); } };
}

export function check(label, value, changed) {
  const box = h("input", { type: "checkbox", checked: value, onchange: () => changed(box.checked) });
  return { element: h("label", { class: "check" }, box, label), set(v) { box.checked = v; } };
}

export const button = (label, onclick, kind = "", properties = {}) => h("button", { class: `button ${kind}`, type: "button", onclick, ...properties }, label);
