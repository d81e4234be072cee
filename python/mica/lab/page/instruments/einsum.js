// l: the letters of an einsum.
import { codeline, h, list, replace, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, numbers, segments } from "../fields.js";
import { sheets } from "../grid.js";
import { figure } from "../save.js";

export const lede = [
  "Every letter of an einsum is a loop; a letter that the result lacks is summed away.",
  "Point at a letter and its axis lights up in every operand and in the result.",
  "einops writes words for letters, and brackets around axes that are laid together: its patterns are read here too.",
];
export const source = ["lab/einsum.cpp", "lab/pattern.cpp"];

const EXAMPLES = [["matrix product", "ik,kj->ij"], ["batched", "bik,bkj->bij"], ["dot product", "i,i->"], ["outer product", "i,j->ij"], ["trace", "ii->"], ["diagonal", "ii->i"], ["transpose", "ij->ji"], ["sum of rows", "ij->i"], ["attention scores", "qd,kd->qk"], ["bilinear", "i,ij,j->"]];
const PATTERNS = [["pictures to rows", "b h w c -> b (h w c)"], ["heads of attention", "b n (head d) -> b head n d"], ["patches", "(h p) (w q) -> (h w) (p q)"], ["mean of 2 \u00d7 2", "(h p) (w q) -> h w", "mean", { h: 3, p: 2, w: 3, q: 2 }], ["repeat", "h w -> h (w times)"], ["scores", "b q d, b k d -> b q k"]];
const COLOURS = ["own", "share", "blue"];

export function mount(root, state, remember) {
  const now = { equation: "ik,kj->ij", sizes: {}, reduction: "sum", ...state };
  const error = h("p", { class: "error", role: "alert" });
  const word = h("p", { class: "equation", id: "equation" }), pictures = h("div", { class: "tiles" }), table = h("div", { class: "scroll" }), fields = h("div", { class: "row" }), said = h("p", { class: "readout", id: "letter", "aria-live": "polite" });
  const box = h("input", { type: "text", value: now.equation, "aria-label": "Equation", size: 32, autocapitalize: "off", spellcheck: "false", oninput: () => { now.equation = box.value; now.sizes = {}; refresh(); } });
  const reduction = segments("Reduced by", ["sum", "mean", "max", "min"], now.reduction, (v) => { now.reduction = v; refresh(); });
  let latest = null;
  // A cell is lit when the letter's place in it is the one that is pointed at: here the first along the axis.
  function light(letter) {
    for (const lit of root.querySelectorAll(".lit")) lit.classList.remove("lit");
    const axis = latest.axes.find((a) => a.letter === letter);
    if (!axis) return replace(said);
    for (const part of [...latest.inputs, latest.result].map((t, i) => ({ ...t, place: pictures.children[i] }))) {
      part.names.forEach((c, d) => {
        if (c !== letter) return;
        const inner = part.sizes.slice(d + 1).reduce((n, m) => n * m, 1);
        for (const cell of part.place.querySelectorAll("[data-cell]")) if (Math.floor(Number(cell.dataset.cell) / inner) % part.sizes[d] === 0) cell.classList.add("lit");
      });
    }
    for (const b of word.querySelectorAll(`[data-letter="${letter}"]`)) b.classList.add("lit");
    replace(said, h("em", {}, letter), ` has ${axis.size} places: ${axis.what}.`);
  }
  const spell = (t) => latest.einops ? t.groups.map((g, i) => [i ? " " : "", g.length === 1 ? key(g[0]) : ["(", g.map((c, k) => [k ? " " : "", key(c)]), ")"]].flat(3)) : t.names.map(key);
  const key = (c) => h("button", { type: "button", class: "letter", "data-letter": c, "aria-label": `letter ${c}`, onpointerenter: () => light(c), onfocus: () => light(c), onclick: () => light(c) }, c);
  function draw(answer) {
    latest = answer;
    replace(word, answer.inputs.map((t, i) => [i ? ", " : "", ...spell(t)]).flat(3), " \u2192 ", ...(answer.result.groups.length ? spell(answer.result).flat(3) : ["a number"]));
    const tile = (t, title, colour) => h("section", { class: "sheet", "data-operand": title }, h("h2", {}, `${title}: ${list(t.shape)}`), figure(title, sheets(t.shape, t.values.length, (k) => ({ text: short(t.values[k], 4), fill: `var(--${colour}-wash)`, stroke: `var(--${colour})` }), { wide: 280, size: 38 })));
    replace(pictures, answer.inputs.map((t, i) => tile(t, "abc"[i], COLOURS[i])), tile(answer.result, "result", "result"));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, [answer.einops ? "axis" : "letter", "size", "where", "what becomes of it"].map((t) => h("th", {}, t)))), h("tbody", {}, answer.axes.map((a) => h("tr", { "data-axis": a.letter }, h("td", { class: "m" }, a.letter), h("td", { class: "n" }, a.size), h("td", {}, a.where.map((p) => `${p.part ? "part of " : ""}axis ${p.axis} of ${"abc"[p.operand]}`).join(", ")), h("td", {}, a.what))))), h("p", { class: "note" }, `${answer.loops} loops, ${answer.products} ${answer.inputs.length > 1 ? "products" : "steps"} in all.`), codeline("Python", answer.python));
    reduction.element.hidden = !answer.reduces;
    replace(fields, answer.axes.map((a) => numbers(`Size of ${a.letter}`, [a.size], ([v]) => { now.sizes = { ...now.sizes, [a.letter]: v }; refresh(true); }, { least: 1, most: 16 }).element));
  }
  function refresh(keep = false) {
    remember(now);
    return guarded(error, async () => {
      const answer = await ask("einsum", { equation: now.equation, sizes: now.sizes, reduction: now.reduction });
      const focus = keep && document.activeElement?.getAttribute("aria-label");
      draw(answer);
      if (focus) root.querySelector(`[aria-label="${focus}"]`)?.focus();
    });
  }
  replace(root, h("section", { class: "sheet stage" }, word, said), error, pictures,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, h("label", { class: "field" }, h("span", {}, "Equation, or a pattern of einops"), box), reduction.element, fields), h("div", { class: "row tight" }, EXAMPLES.map(([name, equation]) => button(name, () => { now.equation = equation; now.sizes = {}; box.value = equation; refresh(); }))),
      h("div", { class: "row tight" }, h("span", { class: "note" }, "einops"), PATTERNS.map(([name, equation, how, sizes]) => button(name, () => { Object.assign(now, { equation, sizes: sizes ?? {}, reduction: how ?? "sum" }); box.value = equation; reduction.set(now.reduction); refresh(); })))),
    h("section", { class: "sheet" }, table));
  refresh();
}
