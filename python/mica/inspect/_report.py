"""Recordings as one self-contained page: no script, no outside resource."""

from html import escape

from mica.inspect import _places
from mica.inspect._memory_kinds import KINDS
from mica.inspect._terminal import readable_bytes

# Told apart by lightness as well as by hue.
_COLOURS = {
    "parameters": "#0b7f7b",
    "buffers": "#7fb8b4",
    "gradients": "#c8781a",
    "optimizer state": "#7a4fa3",
    "activations": "#2f6db3",
    "temporaries": "#a9b4bb",
    "other": "#6d757b",
}
_STYLE = """
:root{--paper:#fbfaf7;--sheet:#fff;--edge:#e2dfd8;--ink:#1c2023;--soft:#5d666d;--own:#b5620a;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#141618;--sheet:#1b1e21;--edge:#32373c;--ink:#e9e6df;--soft:#a6adb2;--own:#eba24a}}
body{margin:0 auto;max-width:1080px;padding:40px 24px;background:var(--paper);color:var(--ink);font:15px/24px ui-sans-serif,-apple-system,"Segoe UI","Noto Sans",Arial,sans-serif}
h1{font:500 32px/40px "Iowan Old Style",Charter,Palatino,Georgia,serif;margin:0 0 8px}
h2{font:600 14px/20px inherit;color:var(--soft);margin:40px 0 12px}p{margin:0 0 8px;color:var(--soft)}
b{color:var(--ink)}table{border-collapse:collapse;width:100%;font-size:14px}th{text-align:left;color:var(--soft);font-size:13px;border-bottom:1px solid var(--edge);padding:4px 16px 4px 0}
td{border-bottom:1px solid var(--edge);padding:5px 16px 5px 0;vertical-align:top;font-variant-numeric:tabular-nums}
.m,code{font:13px/20px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap}
svg{display:block;width:100%;height:auto;background:var(--sheet);border:1px solid var(--edge);border-radius:8px}
svg text{font:11px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink)}svg .s{fill:var(--soft)}svg .on{fill:#fff}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;padding:0;margin:12px 0 0;list-style:none;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.warn{color:var(--own);font-weight:600}
""".strip()


def page(title, *sections):
    """A whole document."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{escape(title)}</title><style>{_STYLE}</style></head><body>'
        + "".join(sections)
        + "</body></html>\n"
    )


def rows_table(header, rows, kinds):
    """A table; `kinds` has the class of each column: n for numbers, m for code."""
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{escape(str(cell))}</td>' for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def timeline_svg(record, width=1032, height=280):
    """The held bytes over time, one layer for each kind."""
    series = record.timeline()
    if not series:
        return "<p>Nothing was allocated.</p>"
    left, right, top, bottom = 84, 16, 20, 32
    span = series[-1][0] or 1e-9
    most = max(sum(held.values()) for _, held in series) or 1
    wide, high = width - left - right, height - top - bottom

    def x(when):
        return left + wide * when / span

    def y(amount):
        return top + high * (1 - amount / most)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="held bytes over time">']
    for i in range(5):
        amount = most * i / 4
        parts.append(f'<path d="M{left} {y(amount):.1f}H{width - right}" stroke="var(--edge)"/>')
        parts.append(
            f'<text class="s" x="{left - 8}" y="{y(amount) + 4:.1f}" text-anchor="end">{readable_bytes(amount)}</text>'
        )
    below = [0.0] * len(series)
    for kind in KINDS:
        above = [low + held[kind] for low, (_, held) in zip(below, series, strict=True)]
        if above == below:
            continue
        # Memory is held until the next event: the outline is a stair.
        path = [f"M{x(series[0][0]):.1f} {y(above[0]):.1f}"]
        for i in range(1, len(series)):
            path.append(f"H{x(series[i][0]):.1f}V{y(above[i]):.1f}")
        path.append(f"V{y(below[-1]):.1f}")
        for i in range(len(series) - 1, 0, -1):
            path.append(f"V{y(below[i]):.1f}H{x(series[i][0]):.1f}")
        path.append(f"V{y(below[0]):.1f}H{x(series[0][0]):.1f}Z")
        parts.append(f'<path d="{"".join(path)}" fill="{_COLOURS[kind]}"><title>{kind}</title></path>')
        below = above
    parts.append(f'<text class="s" x="{left}" y="{height - 10}">0 s</text>')
    parts.append(f'<text class="s" x="{width - right}" y="{height - 10}" text-anchor="end">{span:.3g} s</text></svg>')
    legend = "".join(
        f'<li><i style="background:{_COLOURS[kind]}"></i>{kind} {readable_bytes(amount)}</li>'
        for kind, amount in record.at_peak().items()
        if amount
    )
    return "".join(parts) + f'<ul class="legend">{legend}</ul>'


def flame_svg(weights, width=1032, row=20):
    """A flame graph of {place number: weight}: callers below, what they called above them."""
    root = {"weight": 0, "children": {}}
    for number, weight in weights.items():
        node = root
        node["weight"] += weight
        for at in _places.stack(number) or [0]:
            node = node["children"].setdefault(at, {"weight": 0, "children": {}})
            node["weight"] += weight
    total = root["weight"]
    if not total:
        return "<p>Nothing to show.</p>"
    boxes, deepest = [], 0

    def walk(node, start, depth):
        nonlocal deepest
        deepest = max(deepest, depth)
        for at, child in sorted(node["children"].items(), key=lambda item: -item[1]["weight"]):
            boxes.append((start, depth, child["weight"], at))
            walk(child, start, depth + 1)
            start += child["weight"]

    walk(root, 0, 0)
    height = deepest * (row + 1) + 16
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="flame graph">']
    for start, depth, weight, at in boxes:
        x, wide = 8 + (width - 16) * start / total, (width - 16) * weight / total
        if wide < 1:
            continue
        name = _places.shown(at)
        function = _places.place(at)[2] if at else ""
        label = f"{name} {function}" if function else name
        room = int((wide - 8) / 6.7)
        shade = ("#0b7f7b", "#2f6db3", "#7a4fa3", "#b5620a", "#4d6b74")[depth % 5]
        parts.append(
            f"<g><title>{escape(label)}: {readable_bytes(weight)}, {100 * weight / total:.1f} %\n"
            f"{escape(_places.code(at))}</title>"
            f'<rect x="{x:.1f}" y="{height - 8 - (depth + 1) * (row + 1)}" width="{max(wide - 1, 1):.1f}" height="{row}" '
            f'rx="3" fill="{shade}"/>'
        )
        if room > 3:
            shown = label if len(label) <= room else label[: room - 1] + "…"
            parts.append(
                f'<text class="on" x="{x + 5:.1f}" y="{height - 8 - (depth + 1) * (row + 1) + 14}">{escape(shown)}</text>'
            )
        parts.append("</g>")
    return "".join(parts) + "</svg>"


def memory_sections(record):
    """The parts of a page about memory."""
    weights = {}
    for block in record.blocks_at_peak():
        weights[block.place] = weights.get(block.place, 0) + block.bytes
    most = record.peak()
    lines = [
        (
            r["line"],
            r["code"],
            r["kind"],
            r["blocks"],
            readable_bytes(r["bytes"]),
            f"{100 * r['bytes'] / (most or 1):.1f} %",
        )
        for r in record.by_line()[:40]
    ]
    sections = [
        "<h2>Memory over time</h2>",
        f"<p>The peak was <b>{readable_bytes(most)}</b>; <b>{readable_bytes(record.live())}</b> were held at the end.</p>",
        timeline_svg(record),
        "<h2>What the peak was made of, by call</h2>",
        flame_svg(weights),
        "<h2>The peak, by line</h2>",
        rows_table(("line", "code", "kind", "blocks", "bytes", "share"), lines, ("m", "m", "", "n", "n", "n")),
    ]
    if leaks := record.leaks():
        rows = [(r["line"], r["code"], r["blocks"], readable_bytes(r["bytes"])) for r in leaks]
        sections += [
            '<h2>Held and never let go</h2><p class="warn">These lines made more and more blocks that were still alive at '
            "the end.</p>",
            rows_table(("line", "code", "blocks", "bytes"), rows, ("m", "m", "n", "n")),
        ]
    return sections


def copies_sections(log):
    """The parts of a page about copies."""
    rows = [
        (r["line"], r["code"], r["operation"], r["copies"], readable_bytes(r["bytes"]), r["why"])
        for r in log.by_line()[:60]
    ]
    return [
        "<h2>Hidden copies</h2>",
        f"<p><b>{len(log)}</b> copies that the program did not spell out moved <b>{readable_bytes(log.bytes)}</b>.</p>",
        rows_table(("line", "code", "operation", "copies", "bytes", "why"), rows, ("m", "m", "m", "n", "n", "")),
    ]


def memory_page(record):
    """The page that memory().save() writes."""
    return page("Memory", "<h1>Memory</h1>", *memory_sections(record))


def operations_sections(record):
    """The parts of a page about time."""
    lines = [
        (r["line"], r["code"], r["calls"], f"{r['seconds'] * 1e3:.2f} ms", f"{100 * r['seconds'] / (record.seconds or 1):.1f} %",
         ", ".join(sorted(r["operations"], key=r["operations"].get, reverse=True)[:4]))
        for r in record.by_line()[:40]
    ]  # fmt: skip
    return [
        "<h2>Slowest lines</h2>",
        f"<p>Operations took <b>{record.seconds:.3g} s</b> in all.</p>",
        rows_table(("line", "code", "calls", "time", "share", "operations"), lines, ("m", "m", "n", "n", "n", "m")),
    ]
