// The frame around the instruments: the list, the address, the theme, the keys.
import { h, replace, say } from "./dom.js";
import { served, sourceOf } from "./transport.js";

// letter, name, module, what one sees
export const INSTRUMENTS = [
  ["a", "Does it fit", "fit", "Parameters, gradients, optimizer and activations against the memory of a GPU"],
  ["b", "Memory calculator", "calculator", "What a shape costs in every dtype"],
  ["c", "Stride explorer", "strides", "The grid and the tape: where each element lies"],
  ["d", "View or copy", "views", "Who shares memory with whom, and why something was copied"],
  ["e", "Broadcasting", "broadcasting", "Align, pad, stretch: shapes that meet"],
  ["f", "Precision", "precision", "The same curve in every floating-point format, down to the bits"],
  ["g", "Transfer and compute", "transfer", "Where moving a matrix costs more than multiplying it"],
  ["h", "Playground", "playground", "A chain of operations, every step laid open"],
  ["i", "Sparse and quantized", "sparse", "Where fewer numbers, or smaller ones, win"],
  ["j", "Graph and run", "graph", "What autograd keeps, and a training as it runs"],
  ["k", "Roofline", "roofline", "What an operation waits for: memory, arithmetic or the call"],
  ["l", "Einsum", "einsum", "Every letter, its axis in every operand and in the result"],
  ["m", "Quiz", "quiz", "Predict shape, strides, view or copy before you look"],
];

const main = document.getElementById("main");
// Within another page, ?bare shows an instrument without what is around it.
document.documentElement.classList.toggle("bare", new URLSearchParams(location.search).has("bare"));
const find = (id) => INSTRUMENTS.find(([letter, , module]) => letter === id || module === id);

function address() {
  const [id, state] = location.hash.slice(1).split("?");
  let value = {};
  if (state) try { value = JSON.parse(decodeURIComponent(state)); } catch { say("the link's state could not be read"); }
  return [id, value && typeof value === "object" ? value : {}];
}

function nav(current) {
  replace(document.getElementById("list"), INSTRUMENTS.map(([letter, name]) =>
    h("li", {}, h("a", { href: `#${letter}`, "aria-current": letter === current ? "page" : false }, h("i", {}, letter), name))));
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function home() {
  document.title = "Mica Lab";
  replace(main, h("header", {}, h("h1", {}, "See through a tensor"),
    h("p", { class: "lede" }, `${INSTRUMENTS.length} instruments on one engine. Every number and every picture is computed by Mica ${served ? "on this machine" : "in this page"} as you look${served ? "." : ": nothing leaves your machine."}`)),
  h("div", { class: "cards" }, INSTRUMENTS.map(([letter, name, , words]) => h("a", { class: "card", href: `#${letter}` }, h("i", {}, letter), h("strong", {}, name), h("span", {}, words), h("div", { class: "thumb", "data-thumb": letter, "aria-hidden": true })))));
  import("./thumbs.js").then(({ draw }) => draw(main));
}

// A figure that leaves room for the controls under it stays in sight while they are used.
const fits = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("sticks", target.offsetHeight < 0.62 * innerHeight);
});

let leave = null;
let shown = null;
let visits = 0;
let moved = false;
async function show() {
  const visit = ++visits;
  const came = moved;
  moved = true;
  const [id, state] = address();
  const entry = find(id);
  nav(entry?.[0]);
  leave?.();
  leave = null;
  shown = entry?.[0] ?? "";
  if (!entry) return home();
  const [letter, name, module] = entry;
  document.title = `${name} \u00b7 Mica Lab`;
  const instrument = await import(`./instruments/${module}.js`);
  if (visit !== visits) return;
  const body = h("div", { id: "instrument" });
  const [first, ...rest] = instrument.lede;
  const title = h("h1", { tabindex: -1 }, name);
  replace(main,
    h("header", {}, title, h("p", { class: "lede" }, first)),
    body,
    h("p", { class: "more" }, rest.join(" ")),
    h("p", { class: "source" }, "The code that does this: ", instrument.source.map((path, i) => [i ? ", " : "", h("a", { href: sourceOf(path), target: "_blank", rel: "noopener" }, h("code", {}, path))]), instrument.errata && [". ", h("a", { href: sourceOf("docs/errata.md"), target: "_blank", rel: "noopener" }, "Where the founding documents err")]));
  // Who comes by a key or a link starts reading, and tabbing, at the instrument's name.
  if (came) title.focus({ preventScroll: true });
  // An instrument keeps its state in the address, so that a link shares what is on the screen.
  // The browser allows few changes of it a second: while a slider moves, every tenth of a second counts.
  // An address that someone else wrote meanwhile, a link or the back button, stays: the page goes there.
  let wanted = null, written = -1000, known = location.hash;
  const write = () => {
    if (visit === visits && location.hash === known) {
      history.replaceState(null, "", wanted);
      known = location.hash;
    }
    wanted = null;
    written = performance.now();
  };
  const remember = (value) => {
    const waits = wanted !== null;
    wanted = `#${letter}?${encodeURIComponent(JSON.stringify(value))}`;
    if (!waits) setTimeout(write, Math.max(0, written + 100 - performance.now()));
  };
  try {
    leave = instrument.mount(body, state, remember) ?? null;
  } catch (problem) {
    // A link may hold anything: what cannot be used is left out.
    console.warn(problem);
    say("the link's state could not be used");
    leave = instrument.mount(body, {}, remember) ?? null;
  }
  fits.disconnect();
  for (const stage of body.querySelectorAll(".sheet.stage, .cols.stage")) fits.observe(stage);
}

// ---- theme
const THEMES = ["auto", "light", "dark"];
function theme(value) {
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  document.getElementById("theme").textContent = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[value];
  try { localStorage.setItem("mica-lab-theme", value); } catch { /* a private window keeps nothing */ }
}
let chosen = "auto";
try { chosen = THEMES.includes(localStorage.getItem("mica-lab-theme")) ? localStorage.getItem("mica-lab-theme") : "auto"; } catch { /* as above */ }
theme(chosen);
document.getElementById("theme").addEventListener("click", () => theme((chosen = THEMES[(THEMES.indexOf(chosen) + 1) % 3])));

// ---- keys
const help = document.getElementById("help");
replace(help, h("h2", {}, "Keys"), h("dl", {},
  h("dt", {}, h("kbd", {}, "a"), " \u2026 ", h("kbd", {}, INSTRUMENTS.at(-1)[0])), h("dd", {}, "open an instrument"),
  h("dt", {}, h("kbd", {}, "["), " ", h("kbd", {}, "]")), h("dd", {}, "the one before, the one after"),
  h("dt", {}, h("kbd", {}, "\u2190"), " ", h("kbd", {}, "\u2191"), " ", h("kbd", {}, "\u2192"), " ", h("kbd", {}, "\u2193")), h("dd", {}, "move within a picture that has the focus; change a number"),
  h("dt", {}, h("kbd", {}, "Tab")), h("dd", {}, "the next control"),
  h("dt", {}, h("kbd", {}, "t")), h("dd", {}, "light, dark, or as the system has it"),
  h("dt", {}, h("kbd", {}, "?")), h("dd", {}, "this list")), h("form", { method: "dialog" }, h("button", { class: "button" }, "Close")));
document.getElementById("keys").addEventListener("click", () => help.showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=range]):not([type=radio]):not([type=checkbox]), select, textarea")) return;
  const at = INSTRUMENTS.findIndex(([letter]) => letter === shown);
  if (event.key === "?") help.showModal();
  else if (event.key === "t") document.getElementById("theme").click();
  else if (event.key === "]") location.hash = INSTRUMENTS[(at + 1) % INSTRUMENTS.length][0];
  else if (event.key === "[") location.hash = INSTRUMENTS[(at + INSTRUMENTS.length - (at < 0 ? 0 : 1)) % INSTRUMENTS.length][0];
  else if (find(event.key)?.[0] === event.key) location.hash = event.key;
  else return;
  event.preventDefault();
});

addEventListener("hashchange", show);
show();
