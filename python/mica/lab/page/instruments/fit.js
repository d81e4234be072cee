// a: a model against the memory of a GPU.
import { bytes, count, h, onResize, replace, room, s, say } from "../dom.js";
import { Refused, ask, guarded } from "../engine.js";
import { button, check, choice, segments, slider } from "../fields.js";
import { figure } from "../save.js";

export const lede = [
  "Seven billion parameters in float32 are 28 GB; the same in int4 are 3.5 GB.",
  "Training adds a gradient for each parameter, the optimizer's two numbers, and every activation that the backward pass will ask for.",
  "The red line is what your GPU has: move a slider until the bar stays on its side.",
];
export const source = ["lab/sizes.cpp", "python/mica/inspect/_estimate.py"];

const COLOURS = { parameters: "var(--share)", gradients: "var(--own)", optimizer: "var(--result)", activations: "var(--blue)", "key-value cache": "var(--own)" };
const START = { parameters: 6738.4e6, layers: 32, width: 4096, heads: 32, kv_heads: 32, training: false, optimizer: "AdamW", batch: 1, length: 2048, memory: 24e9, fused_attention: true, name: "Llama-2 7B" };
const people = (n) => (n >= 1e9 ? `${(n / 1e9).toPrecision(3)} billion` : n >= 1e6 ? `${(n / 1e6).toPrecision(3)} million` : count(Math.round(n)));

export function mount(root, state, remember) {
  const now = { ...START, ...state };
  const error = h("p", { class: "error", role: "alert" });
  const picture = h("div", {}), verdict = h("p", { class: "readout", id: "verdict", "aria-live": "polite" }), presets = h("div", { class: "row tight" }), cards = h("div", { class: "row tight" });
  const change = (values) => { Object.assign(now, values); refresh(); };
  const size = slider("Parameters", { min: 6, max: 12, step: 0.005, value: Math.log10(now.parameters), show: (v) => people(10 ** v) }, (v) => change({ parameters: Math.round(10 ** v), name: "" }));
  const mode = segments("For", [["inference", "Inference"], ["training", "Training"]], now.training ? "training" : "inference", (v) => change({ training: v === "training" }));
  const optimizer = choice("Optimizer", ["SGD", "SGD with momentum", "Adam", "AdamW"], now.optimizer, (v) => change({ optimizer: v }));
  const batch = slider("Batch", { min: 0, max: 10, value: Math.log2(now.batch), show: (v) => String(2 ** v) }, (v) => change({ batch: 2 ** v }));
  const length = slider("Length", { min: 5, max: 17, value: Math.log2(now.length), show: (v) => `${count(2 ** v)} tokens` }, (v) => change({ length: 2 ** v }));
  const fused = check("attention without its matrix", now.fused_attention, (v) => change({ fused_attention: v }));
  let drawn = false, latest = null;
  function controls(answer) {
    if (drawn) return;
    drawn = true;
    replace(presets, answer.models.map((m) => button(m.name, () => { change({ ...m }); size.set(Math.log10(m.parameters)); }, "", { "data-model": m.name })));
    replace(cards, answer.cards.map((c) => button(c.name, () => change({ memory: c.bytes }), "", { "data-bytes": c.bytes })));
  }
  function draw(answer) {
    latest = answer;
    controls(answer);
    for (const b of presets.children) b.setAttribute("aria-pressed", b.dataset.model === now.name), b.classList.toggle("main", b.dataset.model === now.name);
    for (const b of cards.children) b.classList.toggle("main", Number(b.dataset.bytes) === now.memory);
    const LEFT = 84, WIDE = room(picture), ROW = 46, RIGHT = 92;
    const most = Math.max(answer.memory * 1.12, ...answer.rows.map((r) => r.bytes));
    const x = (b) => LEFT + ((WIDE - LEFT - RIGHT) * b) / most;
    const height = answer.rows.length * ROW + 40;
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, width: WIDE, height, role: "img", "aria-label": "Memory of the model in each format against the GPU's" });
    svg.append(s("line", { x1: x(answer.memory), x2: x(answer.memory), y1: 8, y2: height - 14, stroke: "var(--limit)", "stroke-width": 2.5 }), s("text", { x: x(answer.memory) + (x(answer.memory) > WIDE - 70 ? -6 : 6), y: 14, class: "limit", "text-anchor": x(answer.memory) > WIDE - 70 ? "end" : "start" }, bytes(answer.memory, 0)));
    answer.rows.forEach((row, i) => {
      const y = 24 + i * ROW;
      const g = s("g", { "data-format": row.format, "data-fits": String(row.fits) }, s("text", { x: LEFT - 12, y: y + 20, "text-anchor": "end" }, row.format));
      let at = 0;
      for (const part of row.parts) {
        const wide = Math.max(0, x(at + part.bytes) - x(at) - 1);
        g.append(s("rect", { x: x(at), y, width: wide, height: 30, rx: 3, fill: COLOURS[part.name], opacity: row.fits ? 1 : 0.55 }, s("title", {}, `${part.name}: ${bytes(part.bytes)}`)));
        at += part.bytes;
      }
      g.append(s("text", { x: x(at) + 8, y: y + 20, class: row.fits ? "share halo" : "limit halo" }, `${bytes(row.bytes, 1)} ${row.fits ? "\u2713" : "\u2717"}`));
      svg.append(g);
    });
    const used = [...new Set(answer.rows.flatMap((r) => r.parts.map((p) => p.name)))];
    const names = { "var(--share)": "share", "var(--own)": "own", "var(--result)": "result", "var(--blue)": "blue" };
    replace(picture, figure("fit", svg), h("ul", { class: "legend" }, used.map((u) => h("li", {}, h("i", { class: `swatch-${names[COLOURS[u]]}` }), u)), h("li", {}, h("i", { class: "swatch-limit" }), "the GPU's memory")));
    const good = answer.rows.filter((r) => r.fits);
    replace(verdict, good.length === 0 ? h("b", {}, "Fits in no format.") : good.length === answer.rows.length ? h("em", {}, "Fits in every format.") : [h("em", {}, `Fits in ${good.map((r) => r.format).join(", ")}.`), ` ${answer.rows.find((r) => !r.fits).format} needs ${bytes(answer.rows.find((r) => !r.fits).bytes, 1)}.`]);
    optimizer.element.hidden = !now.training;
    fused.element.hidden = !now.training;
  }
  function refresh() {
    remember(now);
    return guarded(error, async () => draw(await ask("fit", now)));
  }
  // A file of weights: only the part that lists its tensors is read and sent.
  async function read(file) {
    const head = new DataView(await file.slice(0, 8).arrayBuffer());
    let question;
    if (file.size > 8 && head.getUint32(0, true) !== 0x04034b50) {
      const size = Number(head.getBigUint64(0, true));
      if (size > 3e7 || size > file.size) throw new Refused("neither a safetensors file nor a torch checkpoint");
      question = { kind: "safetensors", header: await file.slice(8, 8 + size).text() };
    } else {
      const tail = new Uint8Array(await file.slice(Math.max(0, file.size - 4e6)).arrayBuffer());
      let text = "";
      for (let i = 0; i < tail.length; i += 32768) text += String.fromCharCode(...tail.subarray(i, i + 32768));
      question = { kind: "zip", tail: btoa(text) };
    }
    const found = await ask("weights_file", question);
    say(`${found.tensors} tensors, ${bytes(found.bytes)}`);
    change({ parameters: found.parameters, name: file.name });
    size.set(Math.log10(Math.max(1, found.parameters)));
  }
  const picker = h("input", { type: "file", accept: ".safetensors,.pt,.pth,.bin", "aria-label": "A file of weights", onchange: () => picker.files[0] && guarded(error, () => read(picker.files[0])) });
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => { event.preventDefault(); const file = event.dataTransfer.files[0]; if (file) guarded(error, () => read(file)); });
  replace(root,
    h("section", { class: "sheet" }, h("div", { class: "field" }, h("span", {}, "Model"), presets), h("div", { css: { height: "16px" } }),
      h("div", { class: "row" }, size.element, mode.element, optimizer.element), h("div", { css: { height: "16px" } }), h("div", { class: "row" }, batch.element, length.element, fused.element),
      h("div", { css: { height: "16px" } }), h("div", { class: "field" }, h("span", {}, "GPU"), cards)),
    error,
    h("section", { class: "sheet" }, h("h2", {}, "Memory by format"), picture, h("div", { css: { height: "12px" } }), verdict),
    h("p", { class: "note" }, "Or drop a state_dict (.safetensors, .pt) on the page, or ", h("label", { class: "button small file" }, "choose a file", picker), "."));
  refresh();
  return onResize(root, () => latest && draw(latest));
}
