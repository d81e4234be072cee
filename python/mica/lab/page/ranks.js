// What the ranks of a program did together: a row of collectives over time for each, with the part that it waited.
import { bytes, h, replace, room, s, seconds } from "./dom.js";
import { figure } from "./save.js";

const COLOURS = { all_reduce: "blue", reduce: "blue", reduce_scatter: "result", all_gather: "share", gather: "share", all_to_all: "limit" };
const colour = (operation) => `var(--${COLOURS[operation] ?? "soft"})`;

export function drawRanks(root, { state, ranks, lines }) {
  const all = ranks.flatMap((rank) => rank.collectives), WIDE = room(root, 940), LEFT = 64, ROW = 26, HIGH = ranks.length * ROW + 30;
  const first = Math.min(...all.map((each) => each.began)), span = Math.max(...all.map((each) => each.began + each.seconds)) - first || 1e-9;
  const x = (t) => LEFT + ((WIDE - LEFT - 8) * t) / span;
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": "Collectives of each rank over time" });
  ranks.forEach((rank, i) => {
    const top = 4 + i * ROW;
    svg.append(s("text", { class: "s", x: LEFT - 8, y: top + 14, "text-anchor": "end" }, `rank ${rank.rank}`), s("g", { class: "axis" }, s("line", { x1: LEFT, x2: WIDE - 8, y1: top + 20.5, y2: top + 20.5 })));
    for (const each of rank.collectives) {
      const at = x(each.began - first), said = `${each.operation} of ${bytes(each.bytes)}, ${seconds(each.seconds)}, ${each.line}${each.late === null ? "" : `\nwaited ${seconds(each.waited)} for rank ${each.late}`}`;
      svg.append(s("g", { "data-rank": rank.rank, "data-collective": each.operation, "data-waited": each.waited }, s("title", {}, said), s("rect", { x: at, y: top, width: Math.max(0.6, x(each.seconds) - LEFT), height: 18, fill: colour(each.operation) }), each.waited > 0 && s("rect", { x: at, y: top + 13, width: Math.max(0.6, x(Math.min(each.waited, each.seconds)) - LEFT), height: 5, fill: "var(--own)" })));
    }
  });
  const ticks = WIDE < 500 ? 2 : 4;
  for (let k = 0; k <= ticks; k += 1) svg.append(s("text", { class: "s", "data-tick": (span * k) / ticks, x: x((span * k) / ticks), y: HIGH - 6, "text-anchor": k === ticks ? "end" : k ? "middle" : "start" }, k ? seconds((span * k) / ticks) : "0 s"));
  const table = (id, header, body) => h("div", { class: "scroll" }, h("table", { id }, h("thead", {}, h("tr", {}, header.map((t) => h("th", {}, t)))), h("tbody", {}, body.map((cells) => h("tr", {}, cells.map((c) => h("td", { class: "m" }, c)))))));
  const numbers = ranks.map((rank) => rank.rank), legend = [...new Set(all.map((each) => each.operation))].sort();
  replace(root, h("p", { class: "readout" }, state, " \u00b7 ", h("em", { id: "run-ranks" }, `${ranks.length} ranks`), " \u00b7 ", h("em", {}, `${ranks.reduce((sum, rank) => sum + rank.calls, 0)} collectives`)),
    all.length ? figure("ranks", svg) : h("p", { class: "note" }, "No rank called a collective."),
    h("ul", { class: "legend" }, legend.map((name) => h("li", {}, h("i", { css: { background: colour(name) } }), name)), h("li", {}, h("i", { css: { background: "var(--own)" } }), "waiting for another rank")),
    h("h2", { css: { marginTop: "24px" } }, "Who waited for whom"), table("rank-waits", ["", ...numbers.map((n) => `for rank ${n}`), "in all"], ranks.map((rank) => [`rank ${rank.rank}`, ...numbers.map((n) => (n === rank.rank ? "" : seconds(rank.waited[n] ?? 0))), seconds(rank.seconds)])),
    h("h2", { css: { marginTop: "24px" } }, "Collectives, by line"), table("rank-lines", ["line", "operation", "calls", "bytes", "time", "most waited for"], lines.map((l) => [l.line, l.operation, l.calls, bytes(l.bytes), seconds(l.seconds), l.late === null ? "" : `rank ${l.late}, ${seconds(l.waited)}`])));
}
