// A chain of operations that is edited: shared by view-or-copy, the playground and the graph.
import { h, replace } from "./dom.js";
import { engine } from "./engine.js";
import { button } from "./fields.js";

// One input for a parameter of an operation; returns [element, read].
function parameter(spec, dtypes) {
  const id = `p-${spec.name}`;
  if (spec.type === "boolean") {
    const box = h("input", { type: "checkbox", checked: spec.default, id });
    return [h("label", { class: "check" }, box, spec.name), () => box.checked];
  }
  if (spec.type === "dtype") {
    const box = h("select", { id, "aria-label": spec.name }, dtypes.map((d) => h("option", { value: d.name }, d.name)));
    box.value = spec.default;
    return [h("label", { class: "field" }, h("span", {}, spec.name), box), () => box.value];
  }
  if (spec.type === "choice") {
    const box = h("select", { id, "aria-label": spec.name }, spec.choices.map((c) => h("option", { value: c }, c)));
    box.value = spec.default;
    return [h("label", { class: "field" }, h("span", {}, spec.name), box), () => box.value];
  }
  const text = Array.isArray(spec.default) ? spec.default.join(", ") : String(spec.default);
  const box = h("input", { type: "text", value: text, id, size: Math.max(4, text.length + 1), "aria-label": spec.name, inputmode: "numeric" });
  const read = () => {
    const parts = box.value.split(/[\s,]+/).filter(Boolean).map(Number);
    if (spec.type === "integers") return parts;
    return parts.length ? parts[0] : null;
  };
  return [h("label", { class: "field" }, h("span", {}, spec.name), box), read];
}

// The fields of an operation that takes some of `results`; returns [elements, read]. `step` gives their first values.
function slots(operation, results, dtypes, step) {
  const tensors = Array.from({ length: operation.tensors }, (_, i) => {
    const box = h("select", { "aria-label": i ? "with" : "on", id: `on-${i}` }, results.map((name, k) => h("option", { value: k }, name)));
    box.value = String(step?.on?.[i] ?? results.length - 1);
    return box;
  });
  const values = operation.parameters.map((p) => [p.name, ...parameter({ ...p, default: step?.args?.[p.name] ?? p.default }, dtypes)]);
  return [[tensors.map((box, i) => h("label", { class: "field" }, h("span", {}, i ? "with" : "on"), box)), values.map(([, element]) => element)],
    () => ({ op: operation.name, on: tensors.map((box) => Number(box.value)), args: Object.fromEntries(values.map(([name, , value]) => [name, value()])) })];
}

// The form that appends a step. `names()` are the results so far; `append(step)` takes the new one.
export async function appender(names, append, kinds) {
  const { operations, dtypes } = await engine();
  const which = h("select", { id: "operation", "aria-label": "Operation" }), fields = h("div", { class: "row tight" });
  let read = () => null, offered = null;
  function draw() {
    // Without a tensor there is nothing to operate on: then only those that make one are offered.
    const none = names().length === 0;
    if (none !== offered) {
      offered = none;
      const allowed = operations.filter((o) => (none ? o.tensors === 0 : !kinds || kinds.includes(o.kind)));
      replace(which, [...new Set(allowed.map((o) => o.kind))].map((g) => h("optgroup", { label: g }, allowed.filter((o) => o.kind === g).map((o) => h("option", { value: o.name }, o.name)))));
      which.value = allowed.some((o) => o.name === "transpose") ? "transpose" : allowed[0].name;
    }
    const [elements, reader] = slots(operations.find((o) => o.name === which.value), names(), dtypes);
    replace(fields, elements);
    read = reader;
  }
  which.addEventListener("change", draw);
  draw();
  const form = h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); append(read()); draw(); } },
    h("label", { class: "field" }, h("span", {}, "Operation"), which), fields, h("button", { class: "button main", id: "append" }, "Apply"));
  return { element: form, update: draw };
}

// The form that changes a step in its place; earlier results alone can be its inputs.
export async function editor(step, i, done) {
  const { operations, dtypes } = await engine();
  const [elements, read] = slots(operations.find((o) => o.name === step.op), Array.from({ length: i }, (_, k) => `x${k}`), dtypes, step);
  return h("form", { class: "row tight editor", onsubmit: (event) => { event.preventDefault(); done(read()); } }, elements, h("button", { class: "button main" }, "Change"), button("Cancel", () => done(null)));
}

// The chain without step `i`: what used its result uses its input instead, or goes too if it had none.
export function without(steps, i) {
  const instead = steps[i].on?.[0];
  const gone = new Set([i]), kept = [];
  const place = new Map();
  steps.forEach((step, k) => {
    const on = (step.on ?? []).map((n) => (n === i && instead !== undefined ? instead : n));
    if (k === i || on.some((n) => gone.has(n))) return gone.add(k);
    place.set(k, kept.length);
    return kept.push({ ...step, on: on.map((n) => place.get(n)) });
  });
  return kept;
}
