// a: a model against the memory of a GPU.
import { bytes, codeline, count, h, onResize, replace, room, s, say } from "../dom.js";
import { Refused, ask, guarded } from "../engine.js";
import { button, check, choice, dial, segments } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Seven billion parameters in float32 are 28 GB; the same in int4 are 3.5 GB.",
  "Training adds a gradient for each parameter, the optimizer's two numbers, and every activation that the backward pass will ask for.",
  "The red line is what your GPU has: the bar has to stay on its side.",
];
export const source = ["lab/fit.cpp", "lab/plan.cpp", "python/mica/inspect/_estimate.py"];

const COLOURS = { weights: "share", gradients: "own", optimizer: "result", "float32 master copy": "limit", activations: "blue", "key-value cache": "own" };
const START = { parameters: 6738.4e6, layers: 32, width: 4096, heads: 32, kv_heads: 32, training: false, optimizer: "AdamW", batch: 1, length: 2048, memory: 24e9, fused_attention: true, extras: true, name: "Llama-2 7B" };
// What a model is; another model leaves none of it behind.
const NOTHING = { layers: undefined, width: undefined, heads: undefined, kv_heads: undefined, outputs: undefined, widest: undefined, file_bytes: undefined, convolutions: undefined, name: "" };
const people = (n) => (n >= 1e9 ? `${(n / 1e9).toPrecision(3)} billion` : n >= 1e6 ? `${(n / 1e6).toPrecision(3)} million` : count(Math.round(n)));

export function mount(root, state, remember) {
  const now = { ...START, ...("parameters" in state && !("layers" in state) ? NOTHING : {}), ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), verdict = h("p", { class: "readout", id: "verdict", "aria-live": "polite" }), presets = h("div", { class: "row tight" }), cards = h("div", { class: "row tight" }), shape = h("p", { class: "note", id: "model-shape" });
  const change = (values) => { Object.assign(now, values); refresh(); };
  const size = dial("Parameters, millions", { min: 1e3, max: 1e12, value: now.parameters, scale: 1e6 }, (v) => change({ ...NOTHING, parameters: Math.round(v) }));
  const mode = segments("For", [["inference", "Inference"], ["training", "Training"]], now.training ? "training" : "inference", (v) => change({ training: v === "training" }));
  const optimizer = choice("Optimizer", ["SGD", "SGD with momentum", "Adam", "AdamW"], now.optimizer, (v) => change({ optimizer: v }));
  const batch = dial("Batch", { min: 1, max: 4096, value: now.batch, whole: true }, (v) => change({ batch: v }));
  const length = dial("Length, tokens", { min: 1, max: 131072, value: now.length, whole: true }, (v) => change({ length: v }));
  const memory = dial("Memory of the GPU, GB", { min: 1e8, max: 2e12, value: now.memory, scale: 1e9 }, (v) => change({ memory: v }));
  const fused = check("FlashAttention: the matrix of attention is not kept", now.fused_attention, (v) => change({ fused_attention: v }));
  const extras = check("count activations and caches", now.extras, (v) => change({ extras: v }));
  let drawn = false, latest = null;
  function controls(answer) {
    if (drawn) return;
    drawn = true;
    replace(presets, answer.models.map((m) => button(m.name, () => { change({ ...NOTHING, ...m }); size.set(m.parameters); length.set(m.length); }, "", { "data-model": m.name })));
    replace(cards, answer.cards.map((c) => button(c.name, () => { memory.set(c.bytes); change({ memory: c.bytes }); }, "", { "data-bytes": c.bytes })));
  }
  function draw(answer) {
    latest = answer;
    controls(answer);
    for (const b of presets.children) b.setAttribute("aria-pressed", b.dataset.model === now.name), b.classList.toggle("main", b.dataset.model === now.name);
    for (const b of cards.children) b.classList.toggle("main", Number(b.dataset.bytes) === now.memory);
    const WIDE = room(picture), narrow = WIDE < 520, LEFT = narrow ? 74 : 108, ROW = narrow ? 40 : 44, RIGHT = narrow ? 78 : 92;
    // The axis ends at a few times the memory: a bar that goes on beyond is torn off, and its number says how far.
    const most = Math.min(answer.memory * 3, Math.max(answer.memory * 1.12, ...answer.rows.map((r) => r.bytes)));
    const x = (b) => LEFT + ((WIDE - LEFT - RIGHT) * Math.min(b, most)) / most;
    const height = answer.rows.length * ROW + 34;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Memory of the model in each format against the GPU's" });
    const labels = [];
    answer.rows.forEach((row, i) => {
      const y = 22 + i * ROW, tall = ROW - 14;
      const g = s("g", { "data-format": row.format, "data-fits": String(row.fits), "data-weights": row.weights, "data-bytes": row.bytes }, s("text", { x: LEFT - 10, y: y + 13, "text-anchor": "end" }, row.format), s("text", { class: "s", x: LEFT - 10, y: y + 27, "text-anchor": "end" }, bytes(row.weights, 1)));
      let at = 0;
      for (const part of row.parts) {
        const wide = Math.max(0, x(at + part.bytes) - x(at) - 1);
        g.append(s("rect", { x: x(at), y, width: wide, height: tall, rx: 3, fill: `var(--${COLOURS[part.name]})`, opacity: row.fits ? 1 : 0.55, "data-part": part.name }, s("title", {}, `${part.name}: ${bytes(part.bytes)}`)));
        at += part.bytes;
      }
      if (at > most) g.append(s("path", { class: "torn", d: `M${x(most) - 5} ${y - 2}l5 ${(tall + 4) / 4}l-5 ${(tall + 4) / 4}l5 ${(tall + 4) / 4}l-5 ${(tall + 4) / 4}h12v${-tall - 4}z`, fill: "var(--sheet)" }));
      labels.push(s("text", { "data-total": row.format, x: x(at) + 8, y: y + tall / 2 + 5, class: row.fits ? "share halo" : "limit halo" }, `${bytes(row.bytes, 1)} ${row.fits ? "\u2713" : "\u2717"}`));
      svg.append(g);
    });
    const red = x(answer.memory), end = red > WIDE - 70;
    svg.append(s("line", { x1: red, x2: red, y1: 8, y2: height - 8, stroke: "var(--limit)", "stroke-width": 2.5 }), s("text", { x: red + (end ? -6 : 6), y: 14, class: "limit", "text-anchor": end ? "end" : "start" }, bytes(answer.memory, answer.memory % 1e9 ? 1 : 0)), ...labels);
    const used = [...new Set(answer.rows.flatMap((r) => r.parts.map((p) => p.name)))];
    replace(picture, figure("fit", svg), h("ul", { class: "legend" }, used.map((u) => h("li", {}, h("i", { class: `swatch-${COLOURS[u]}` }), u)), h("li", {}, "under each name: the weights alone")));
    const good = answer.rows.filter((r) => r.fits), bad = answer.rows.find((r) => !r.fits);
    replace(verdict, good.length === 0 ? h("b", {}, "Fits in no format.") : !bad ? h("em", {}, "Fits in every format.") : [h("em", {}, `Fits in ${good.map((r) => r.format).join(", ")}.`), ` ${bad.format} needs ${bytes(bad.bytes, 1)}.`]);
    const m = answer.model;
    shape.textContent = m.transformer ? `${people(now.parameters)} parameters in ${m.layers} layers of width ${count(m.width)}, ${m.heads} heads${m.kv_heads === m.heads ? "" : `, ${m.kv_heads} of keys and values`}${m.derived ? ": a transformer of this size as they are usually built" : ""}.`
      : `${people(now.parameters)} parameters; its layers put out ${count(m.outputs)} numbers for a sample${now.convolutions ? ", convolutions not counted: theirs depend on the picture's size" : ""}.`;
    optimizer.element.hidden = !now.training;
    fused.element.hidden = !now.training || !m.transformer;
    length.element.hidden = !m.transformer;
  }
  // The planner: what to give up so that it fits, the least first, and the code that does it.
  const ways = h("div", { id: "ways" });
  const devices = dial("GPUs", { min: 1, max: 64, value: now.devices ?? 1, whole: true }, (v) => { now.devices = v; remember(now); });
  const search = () => guarded(error, async () => {
    const found = await ask("plan", { ...now, devices: now.devices ?? 1 });
    const words = (w) => [w.precision, `batch ${w.batch}${w.shards > 1 ? " on each" : ""}`, w.checkpointing && "checkpointing", w.shards > 1 && `optimizer state over ${w.shards} GPUs`].filter(Boolean).join(", ");
    replace(ways, h("p", { class: "note" }, found.ways.length ? `${found.tried} ways tried for ${bytes(found.memory, 1)}; those that fit, the least given up first.` : `None of ${found.tried} ways fits into ${bytes(found.memory, 1)}; the nearest needs ${bytes(found.nearest, 1)}.`),
      found.ways.map((w) => h("details", { class: "way", "data-way": w.precision, "data-bytes": w.bytes, open: w === found.ways[0] }, h("summary", {}, words(w), h("span", { class: "note" }, `  ${bytes(w.bytes, 1)}: ${w.parts.map((p) => `${p.name} ${bytes(p.bytes, 1)}`).join(", ")}`)), codeline("Python", w.code))));
  });
  function refresh() {
    remember(now);
    replace(ways);
    return guarded(error, async () => draw(await ask("fit", now)));
  }
  // A file of weights: only the parts that list its tensors are read and sent.
  const text = async (blob) => {
    const data = new Uint8Array(await blob.arrayBuffer());
    let out = "";
    for (let i = 0; i < data.length; i += 32768) out += String.fromCharCode(...data.subarray(i, i + 32768));
    return btoa(out);
  };
  async function read(file) {
    const head = new DataView(await file.slice(0, 8).arrayBuffer());
    let found;
    if (file.size > 8 && head.getUint32(0, true) !== 0x04034b50) {
      const size = Number(head.getBigUint64(0, true));
      if (size > 3e7 || size > file.size) throw new Refused("neither a safetensors file nor a torch checkpoint");
      found = await ask("weights_file", { kind: "safetensors", header: await file.slice(8, 8 + size).text() });
    } else {
      const question = { kind: "zip", tail: await text(file.slice(Math.max(0, file.size - 4e6))) };
      const { wants } = await ask("weights_file", question);
      found = await ask("weights_file", { ...question, pickle: await text(file.slice(wants.offset, wants.offset + wants.size)) });
    }
    say(`${found.tensors} tensors, ${people(found.parameters)} parameters, ${bytes(found.bytes)}`);
    change({ ...NOTHING, ...found.model, parameters: found.parameters, file_bytes: found.bytes, name: file.name });
    size.set(found.parameters);
  }
  const picker = h("input", { type: "file", accept: ".safetensors,.pt,.pth,.bin", "aria-label": "A file of weights", onchange: () => picker.files[0] && guarded(error, () => read(picker.files[0])) });
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => { event.preventDefault(); const file = event.dataTransfer.files[0]; if (file) guarded(error, () => read(file)); });
  replace(root,
    h("section", { class: "sheet stage" }, picture, verdict, shape), error,
    h("section", { class: "sheet controls" }, h("div", { class: "field" }, h("span", {}, "Model"), presets), h("div", { class: "field" }, h("span", {}, "GPU"), cards),
      h("div", { class: "row" }, mode.element, extras.element, optimizer.element, fused.element), h("div", { class: "row" }, memory.element, size.element, batch.element, length.element),
      h("p", { class: "note" }, "Or drop a state_dict (.safetensors, .pt) on the page, or ", h("label", { class: "button small file" }, "choose a file", picker), ". It stays on this machine.")),
    h("section", { class: "sheet controls" }, h("h2", {}, "Make it fit"), h("div", { class: "row" }, devices.element, button("Search", search, "main", { id: "plan" })), ways));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
