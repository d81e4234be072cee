"""An anatomy drawn: the tape of memory, what the tensor reaches of it, and the grid of its first two dimensions."""

from html import escape

_CELL, _GAP, _LEFT, _TOP = 26, 2, 16, 64
_MOST_CELLS, _COLUMNS = 96, 24
_STYLE = """
.ink{fill:#1d2226}.dim{fill:#68737c}.reached{fill:#0a8f8a}.free{fill:#dfe5e8}.on{fill:#fff}
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:11px}
.title{font-size:13px;font-weight:600}
@media (prefers-color-scheme:dark){.ink{fill:#e8ecee}.dim{fill:#97a3ab}.free{fill:#333c42}}
""".strip()


def _places(facts):
    """Elements of the storage that the tensor reaches, while they are few enough to draw."""
    places = {facts["offset"]}
    for size, stride in zip(facts["shape"], facts["strides"], strict=True):
        places = {place + i * stride for place in places for i in range(min(size, _MOST_CELLS))}
        if len(places) > 4 * _MOST_CELLS:
            break
    return places if facts["numel"] else set()


def _text(x, y, words, kind="ink", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def draw(facts):
    """The picture, as SVG."""
    total = facts["storage"]["bytes"] // facts["element_size"]
    shown = min(total, _MOST_CELLS)
    columns = min(shown, _COLUMNS) or 1
    rows = -(-shown // columns)
    places = _places(facts)
    width = max(_LEFT * 2 + columns * (_CELL + _GAP), 420)
    height = _TOP + rows * (_CELL + 16) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><style>{_STYLE}</style>',
        _text(_LEFT, 22, f"{facts['dtype']} {list(facts['shape'])} on {facts['device']}", "ink title"),
        _text(_LEFT, 42, f"strides {list(facts['strides'])}  offset {facts['offset']}", "dim"),
    ]
    for i in range(shown):
        x, y = _LEFT + (i % columns) * (_CELL + _GAP), _TOP + (i // columns) * (_CELL + 16)
        reached = i in places
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="3" class="{"reached" if reached else "free"}"/>'
        )
        parts.append(_text(x + _CELL / 2, y + 17, str(i), "on" if reached else "dim", "middle"))
    end = _TOP + rows * (_CELL + 16) + 12
    storage = facts["storage"]
    rest = f", {total - shown} more" if total > shown else ""
    parts.append(
        _text(
            _LEFT,
            end,
            f"{storage['bytes']} bytes of storage{rest}; {storage['reached_bytes']} reached, "
            f"{storage['hole_bytes']} skipped",
            "dim",
        )
    )
    return "".join(parts) + "</svg>"
