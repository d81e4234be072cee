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
  const text = Array.isArray(spec.default) ? spec.default.join(", ") : String(spec.default);
  const box = h("input", { type: "text", value: text, id, size: Math.max(4, text.length + 1), "aria-label": spec.name, inputmode: "numeric" });
  const read = () => {
    const parts = box.value.split(/[\s,]+/).filter(Boolean).map(Number);
    if (spec.type === "integers") return parts;
    return parts.length ? parts[0] : null;
  };
  return [h("label", { class: "field" }, h("span", {}, spec.name), box), read];
}

// The form that appends a step. `names()` are the results so far; `append(step)` takes the new one.
export async function appender(names, append, kinds) {
  const { operations, dtypes } = await engine();
  const allowed = operations.filter((o) => !kinds || kinds.includes(o.kind));
  const groups = [...new Set(allowed.map((o) => o.kind))];
  const which = h("select", { id: "operation", "aria-label": "Operation" }, groups.map((g) => h("optgroup", { label: g }, allowed.filter((o) => o.kind === g).map((o) => h("option", { value: o.name }, o.name)))));
  which.value = allowed.some((o) => o.name === "transpose") ? "transpose" : allowed[0].name;
  const slots = h("div", { class: "row tight" });
  let read = () => null;
  function draw() {
    const operation = allowed.find((o) => o.name === which.value);
    const results = names();
    const tensors = Array.from({ length: operation.tensors }, (_, i) => {
      const box = h("select", { "aria-label": i ? "with" : "on", id: `on-${i}` }, results.map((name, k) => h("option", { value: k }, name)));
      box.value = String(results.length - 1);
      return box;
    });
    const values = operation.parameters.map((p) => [p.name, ...parameter(p, dtypes)]);
    replace(slots, tensors.map((box, i) => h("label", { class: "field" }, h("span", {}, i ? "with" : "on"), box)), values.map(([, element]) => element));
    read = () => ({ op: operation.name, on: tensors.map((box) => Number(box.value)), args: Object.fromEntries(values.map(([name, , value]) => [name, value()])) });
  }
  which.addEventListener("change", draw);
  draw();
  const form = h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); append(read()); draw(); } },
    h("label", { class: "field" }, h("span", {}, "Operation"), which), slots, h("button", { class: "button main", id: "append" }, "Apply"));
  return { element: form, update: draw };
}

export const dropLast = (steps) => steps.slice(0, -1);
export { button };
