// m: predict before you look.
import { codeline, h, list, replace } from "../dom.js";
import { ask, guarded } from "../engine.js";
import { button, segments } from "../fields.js";
import { layout } from "../grid.js";

export const lede = [
  "Say what comes out before you look: its shape, its strides, view or copy.",
  "The engine carries out the line and says which of the three you had right, and why something was copied.",
  "The address holds the set of questions: a teacher's link opens the same ones for everybody.",
];
export const source = ["lab/quiz.cpp", "lab/evaluate.cpp"];

export function mount(root, state, remember) {
  const now = { set: 1, at: 0, count: 10, right: [], ...state };
  if (!Array.isArray(now.right)) throw new TypeError("right is a list");
  const error = h("p", { class: "error", role: "alert" });
  const place = h("div", {}), answer = h("div", { id: "answer" }), score = h("p", { class: "readout", id: "score", "aria-live": "polite" });
  const number = () => now.set * 1000 + now.at;
  const read = (box) => box.value.split(/[\s,()]+/).filter(Boolean).map(Number);
  function tally() {
    const all = now.right.flat();
    replace(score, `Question ${Math.min(now.at + 1, now.count)} of ${now.count}`, all.length ? `, ${all.filter(Boolean).length} of ${all.length} right so far.` : ".");
  }
  async function show() {
    remember(now);
    tally();
    replace(answer);
    if (now.at >= now.count) {
      const all = now.right.flat();
      return replace(place, h("p", { class: "readout" }, `The set is done: ${all.filter(Boolean).length} of ${all.length} right.`), button("Another set", () => { now.set += 1; now.at = 0; now.right = []; show(); }, "main"));
    }
    return guarded(error, async () => {
      const q = await ask("quiz", { number: number() });
      const shape = h("input", { type: "text", "aria-label": "Shape", placeholder: "3, 4", inputmode: "numeric", size: 10 }), strides = h("input", { type: "text", "aria-label": "Strides", placeholder: "4, 1", inputmode: "numeric", size: 10 });
      let copies = false;
      const kind = segments("It is", [["view", "a view"], ["copy", "a copy"]], "view", (v) => { copies = v === "copy"; });
      const form = h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); judge({ shape: read(shape), strides: read(strides), copies }); } }, h("label", { class: "field" }, h("span", {}, "Shape"), shape), h("label", { class: "field" }, h("span", {}, "Strides"), strides), kind.element, h("button", { class: "button main", id: "say" }, "Look"));
      replace(place, q.before.map((b, i) => h("p", { class: "readout", css: { margin: "0 0 4px" } }, `x${i} = ${b.call}`, h("span", { class: "note" }, `   shape ${list(b.shape)}, strides ${list(b.strides)}`))), h("p", { class: "readout", css: { fontSize: "20px", lineHeight: "32px" } }, `y = `, h("em", { id: "asked" }, q.call)), form);
    });
  }
  const judge = (guess) => guarded(error, async () => {
    const a = await ask("quiz", { number: number(), guess }), t = a.truth;
    now.right[now.at] = [a.right.shape, a.right.strides, a.right.copies];
    remember(now);
    tally();
    const [grid, tape] = layout(t, 520), row = (name, right, truth) => h("tr", { "data-judged": name, "data-right": String(right) }, h("td", { css: { color: `var(--${right ? "share" : "limit"})` } }, right ? "\u2713" : "\u2717"), h("td", {}, name), h("td", { class: "m" }, truth));
    replace(answer, h("section", { class: "sheet" }, h("table", { class: "narrow" }, h("tbody", {}, row("shape", a.right.shape, list(t.shape)), row("strides", a.right.strides, list(t.strides)), row("view or copy", a.right.copies, t.copied ? "a copy" : "a view"))), a.why.map((w) => h("p", { class: "note" }, w)), h("div", { class: "scroll", css: { margin: "16px 0 8px" } }, grid), h("div", { class: "scroll" }, tape), button("Next", () => { now.at += 1; show(); }, "main", { id: "next" })));
    document.getElementById("next").focus();
  });
  replace(root, h("section", { class: "sheet stage" }, score, place), error, answer,
    h("section", { class: "sheet controls" }, h("div", { class: "row tight" }, button("Another set", () => { now.set += 1; now.at = 0; now.right = []; show(); }), button("Begin again", () => { now.at = 0; now.right = []; show(); }), h("span", { class: "note" }, "For a class: send the address of this page.")), codeline("Link", `#m?${encodeURIComponent(JSON.stringify({ set: now.set, count: now.count }))}`)));
  show();
}
