"""The front page's picture of strides and its figures, drawn from a tensor and from the last benchmarks."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

import benchmarks

PAGE = Path(__file__).resolve().parents[2] / "python" / "mica" / "lab" / "page"

CELL, GAP = 40, 4


def strides() -> str:
    """The grid of a view above the tape of memory that it reads, with the numbers that the engine gives."""
    import mica

    x = mica.arange(12.0).reshape(3, 4)
    y = x.t()[1:]
    rows, columns = y.shape
    offset, (down, right) = y.storage_offset(), y.stride()
    place = {(i, j): offset + i * down + j * right for i in range(rows) for j in range(columns)}
    reached = set(place.values())
    left = (12 * (CELL + GAP) - columns * (CELL + GAP)) / 2
    tape = rows * (CELL + GAP) + 46
    parts = [
        f'<svg viewBox="0 0 {12 * (CELL + GAP)} {tape + CELL + 26}" role="img" class="strides" aria-label="A view of 3 by 3 elements above the 12 elements of memory that it reads">'
    ]
    for (i, j), at in place.items():
        px, py = left + j * (CELL + GAP), i * (CELL + GAP)
        parts.append(f'<line x1="{px + CELL / 2}" y1="{py + CELL}" x2="{at * (CELL + GAP) + CELL / 2}" y2="{tape}"/>')
    for i, j in place:
        px, py = left + j * (CELL + GAP), i * (CELL + GAP)
        parts.append(f'<rect class="share" x="{px}" y="{py}" width="{CELL}" height="{CELL}" rx="5"/>')
        parts.append(f'<text x="{px + CELL / 2}" y="{py + CELL / 2 + 5}">{y[i, j].item():g}</text>')
    for at in range(12):
        kind = "share" if at in reached else "rest"
        parts.append(f'<rect class="{kind}" x="{at * (CELL + GAP)}" y="{tape}" width="{CELL}" height="{CELL}" rx="5"/>')
        parts.append(
            f'<text x="{at * (CELL + GAP) + CELL / 2}" y="{tape + CELL / 2 + 5}">{x.flatten()[at].item():g}</text>'
        )
        parts.append(f'<text class="s" x="{at * (CELL + GAP) + CELL / 2}" y="{tape + CELL + 16}">{at}</text>')
    words = f"x.t()[1:] reads memory at offset {offset} + i * {down} + j * {right}; nothing was copied."
    # With scripts, look/page.js puts the instrument itself in the picture's place, in this state.
    state = {"shape": [rows, columns], "strides": [down, right], "offset": offset, "elements": 12}
    live = html.escape("c?" + quote(json.dumps(state)))
    return f'<figure class="picture" data-lab="{live}">{"".join(parts)}</svg><figcaption>{html.escape(words)}</figcaption></figure>'


def instruments() -> str:
    """The Lab's instruments, as its own page lists them."""
    listed = re.search(r"INSTRUMENTS = \[(.*?)\n\];", (PAGE / "main.js").read_text(), re.S)
    assert listed, "the Lab's main.js lists no instruments"
    rows = re.findall(r'\["(\w)", "([^"]+)", "\w+", "([^"]+)"\]', listed[1])
    lines = [f'| {letter} | <a href="lab/index.html#{letter}">{name}</a> | {words} |' for letter, name, words in rows]
    return "\n".join(["| key | instrument | what one sees |", "| --- | --- | --- |", *lines])


def figures() -> str:
    run = next(iter(benchmarks.history().values()))[-1]
    names = {"overhead": "small calls", "elementwise": "pointwise", "reduce": "reductions", "sort": "sorting", "index": "indexing",
             "matmul": "products", "conv": "convolutions", "attention": "attention", "train": "training steps", "optim": "optimizers"}  # fmt: skip
    groups = run.groups()
    chosen = [(words, benchmarks.mean(groups[g])) for g, words in names.items() if g in groups]
    head = " | ".join(words for words, _ in chosen)
    body = " | ".join(f"{value:.1f}x" for _, value in chosen)
    date = f", {run.date}" if run.date else ""
    return (
        f"torch's time over Mica's, in one run. {run.title}{date}. "
        f"[Every row](benchmarks.md), and what falls short.\n\n| {head} |\n|{' --- |' * len(chosen)}\n| {body} |\n"
    )


def page(text: str) -> str:
    return text.replace("<!-- lab: strides -->", strides()).replace("<!-- figures -->", figures())


def lab_page(text: str) -> str:
    return text.replace("<!-- lab: instruments -->", instruments())
