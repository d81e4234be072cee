// l: the letters of an einsum.
import { h, list, replace, short } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, numbers } from "../fields.js";
import { sheets } from "../grid.js";
import { figure } from "../save.js";

export const lede = [
  "Every letter of an einsum is a loop; a letter that the result lacks is summed away.",
  "Point at a letter and its axis lights up in every operand and in the result.",
  "einops writes the same with words for letters and brackets for axes that are laid together.",
];
export const source = ["lab/einsum.cpp"];

const EXAMPLES = [["matrix product", "ik,kj->ij"], ["batched", "bik,bkj->bij"], ["dot product", "i,i->"], ["outer product", "i,j->ij"], ["trace", "ii->"], ["diagonal", "ii->i"], ["transpose", "ij->ji"], ["sum of rows", "ij->i"], ["attention scores", "qd,kd->qk"], ["bilinear", "i,ij,j->"]];
const COLOURS = ["own", "share", "blue"];

export function mount(root, state, remember) {
  const now = { equation: "ik,kj->ij", sizes: {}, ...state };
  const error = h("p", { class: "error", role: "alert" });
  const word = h("p", { class: "equation", id: "equation" }), pictures = h("div", { class: "tiles" }), table = h("div", { class: "scroll" }), fields = h("div", { class: "row" }), said = h("p", { class: "readout", id: "letter", "aria-live": "polite" });
  const box = h("input", { type: "text", value: now.equation, "aria-label": "Equation", size: 24, autocapitalize: "off", spellcheck: "false", oninput: () => { now.equation = box.value; now.sizes = {}; refresh(); } });
  let latest = null;
  // A cell is lit when the letter's place in it is the one that is pointed at: here the first along the axis.
  function light(letter) {
    for (const lit of root.querySelectorAll(".lit")) lit.classList.remove("lit");
    const axis = latest.axes.find((a) => a.letter === letter);
    if (!axis) return replace(said);
    for (const part of [...latest.inputs, latest.result].map((t, i) => ({ ...t, place: pictures.children[i] }))) {
      [...part.letters].forEach((c, d) => {
        if (c !== letter) return;
        const inner = part.shape.slice(d + 1).reduce((n, m) => n * m, 1);
        for (const cell of part.place.querySelectorAll("[data-cell]")) if (Math.floor(Number(cell.dataset.cell) / inner) % part.shape[d] === 0) cell.classList.add("lit");
      });
    }
    for (const b of word.querySelectorAll(`[data-letter="${letter}"]`)) b.classList.add("lit");
    replace(said, h("em", {}, letter), ` has ${axis.size} places: ${axis.what}.`);
  }
  const spell = (letters) => [...letters].map((c) => h("button", { type: "button", class: "letter", "data-letter": c, "aria-label": `letter ${c}`, onpointerenter: () => light(c), onfocus: () => light(c), onclick: () => light(c) }, c));
  function draw(answer) {
    latest = answer;
    replace(word, answer.inputs.map((t, i) => [i ? ", " : "", spell(t.letters)]), " \u2192 ", answer.result.letters ? spell(answer.result.letters) : "a number");
    const tile = (t, title, colour) => h("section", { class: "sheet", "data-operand": title }, h("h2", {}, `${title}: ${list(t.shape)}`), figure(title, sheets(t.shape, t.values.length, (k) => ({ text: short(t.values[k], 4), fill: `var(--${colour}-wash)`, stroke: `var(--${colour})` }), { wide: 280, size: 38 })));
    replace(pictures, answer.inputs.map((t, i) => tile(t, "abc"[i], COLOURS[i])), tile(answer.result, "result", "result"));
    replace(table, h("table", {}, h("thead", {}, h("tr", {}, ["letter", "size", "where", "what becomes of it"].map((t) => h("th", {}, t)))), h("tbody", {}, answer.axes.map((a) => h("tr", { "data-axis": a.letter }, h("td", { class: "m" }, a.letter), h("td", { class: "n" }, a.size), h("td", {}, a.where.map((p) => `axis ${p.axis} of ${"abc"[p.operand]}`).join(", ")), h("td", {}, a.what))))), h("p", { class: "note" }, `${answer.loops} loops, ${answer.products} products in all.`));
    replace(fields, answer.axes.map((a) => numbers(`Size of ${a.letter}`, [a.size], ([v]) => { now.sizes = { ...now.sizes, [a.letter]: v }; refresh(true); }, { least: 1, most: 16 }).element));
  }
  function refresh(keep = false) {
    remember(now);
    return guarded(error, async () => {
      const answer = await ask("einsum", { equation: now.equation, sizes: now.sizes });
      const focus = keep && document.activeElement?.getAttribute("aria-label");
      draw(answer);
      if (focus) root.querySelector(`[aria-label="${focus}"]`)?.focus();
    });
  }
  replace(root, h("section", { class: "sheet stage" }, word, said), error, pictures,
    h("section", { class: "sheet controls" }, h("div", { class: "row" }, h("label", { class: "field" }, h("span", {}, "Equation"), box), fields), h("div", { class: "row tight" }, EXAMPLES.map(([name, equation]) => button(name, () => { now.equation = equation; now.sizes = {}; box.value = equation; refresh(); })))),
    h("section", { class: "sheet" }, table));
  refresh();
}
