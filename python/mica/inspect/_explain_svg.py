"""Draws the anatomy of a tensor: memory as a tape, with the part that the tensor reaches; the parts of other layouts as
bars."""

from html import escape

from mica.inspect._terminal import readable_bytes

_CELL, _GAP, _LEFT, _TOP = 26, 2, 16, 64
_MOST_CELLS, _COLUMNS, _BAR = 96, 24, 388
MOST_DRAWN = 24  # rows and columns of a sparse matrix
_STYLE = """
.ink{fill:#1d2226}.dim{fill:#545d64}.reached{fill:#086f6b}.other{fill:#b4551c}.third{fill:#6d5bb0}.free{fill:#dfe5e8}
.on{fill:#fff}text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:11px}
.title{font-size:13px;font-weight:600}
@media (prefers-color-scheme:dark){.ink{fill:#e8ecee}.dim{fill:#a9b4bb}.free{fill:#333c42}}
""".strip()
_PART_KINDS = ("reached", "other", "third")


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


def _rect(x, y, width, height, kind):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" class="{kind}"/>'


def _sequence_of(facts):
    """Of a nested tensor in one row: the number of the sequence that an element of the storage belongs to."""
    nested = facts.get("nested")
    if not nested or nested["ragged_dim"] != 1 or not facts["strides"]:
        return lambda place: 0
    ends, end = [], facts["offset"]
    for length in nested["lengths"]:
        end += length * facts["strides"][0]
        ends.append(end)
    return lambda place: sum(place >= e for e in ends)


def _tape(facts, top):
    """The cells of the storage, and how far down they go."""
    total = facts["storage"]["bytes"] // facts["element_size"]
    shown = min(total, _MOST_CELLS)
    columns = min(shown, _COLUMNS) or 1
    places, sequence = _places(facts), _sequence_of(facts)
    parts = []
    for i in range(shown):
        x, y = _LEFT + (i % columns) * (_CELL + _GAP), top + (i // columns) * (_CELL + 16)
        kind = _PART_KINDS[sequence(i) % 2] if i in places else "free"
        parts.append(_rect(x, y, _CELL, _CELL, kind))
        parts.append(_text(x + _CELL / 2, y + 17, str(i), "on" if i in places else "dim", "middle"))
    end = top + -(-shown // columns) * (_CELL + 16) + 12
    storage = facts["storage"]
    rest = f", {total - shown} more elements" if total > shown else ""
    words = f"{storage['bytes']} bytes of storage{rest}; {storage['reached_bytes']} reached, {storage['hole_bytes']} skipped"
    if facts["device"] == "meta":
        words = f"no memory: on another device {storage['bytes']} bytes{rest}"
    parts.append(_text(_LEFT, end, words, "dim"))
    return parts, end, _LEFT * 2 + columns * (_CELL + _GAP)


def _matrix(facts, places, top):
    """The pattern of a sparse matrix: a cell for each element, full where there is a value."""
    rows, columns = facts["shape"]
    side, stored = 14, set(places)
    parts = [
        _rect(_LEFT + c * side, top + r * side, side - 2, side - 2, "reached" if (r, c) in stored else "free")
        for r in range(rows)
        for c in range(columns)
    ]
    return parts, top + rows * side + 14, _LEFT * 2 + columns * side


def _bars(facts, top):
    """Each part as long as its bytes, and below it what a plain tensor would take."""
    plain = "as float32" if "quantized" in facts else "padded" if "nested" in facts else "dense"
    whole = max(facts["part_bytes"], facts["dense_bytes"], 1)
    parts, x, y = [], _LEFT, top
    for i, part in enumerate(facts["parts"]):
        width = part["bytes"] * _BAR / whole
        parts.append(_rect(round(x, 2), y, round(max(width - 1, 0), 2), 12, _PART_KINDS[i % 3]))
        x += width
    parts.append(_rect(_LEFT, y + 16, round(facts["dense_bytes"] * _BAR / whole, 2), 12, "free"))
    y += 48
    for i, part in enumerate(facts["parts"]):
        parts.append(_rect(_LEFT, y - 9, 10, 10, _PART_KINDS[i % 3]))
        words = f"{part['name']}  {part['dtype']} {list(part['shape'])}  {readable_bytes(part['bytes'])}"
        parts.append(_text(_LEFT + 18, y, words))
        y += 18
    parts.append(_rect(_LEFT, y - 9, 10, 10, "free"))
    parts.append(_text(_LEFT + 18, y, f"{plain}  {readable_bytes(facts['dense_bytes'])}", "dim"))
    return parts, y + 8


def _second_line(facts):
    if "sparse" in facts:
        sparse = facts["sparse"]
        return f"{sparse['stored']} of {facts['numel']} elements in memory"
    words = f"strides {list(facts['strides'])}  offset {facts['offset']}"
    if facts["names"]:
        words += f"  names {tuple(facts['names'])}"
    quantized = facts.get("quantized")
    if quantized and "scale" in quantized:
        words += f"  means (integer - {quantized['zero_point']}) * {quantized['scale']:.6g}"
    for kind, mark in (("conjugated", "conjugated"), ("negated", "negated")):
        if facts[kind]:
            words += f"  lazily {mark}"
    return words


def draw(facts, places=()):
    """The picture, as SVG."""
    nested = facts.get("nested")
    shape = ["j" if n < 0 else n for n in nested["shape"]] if nested else list(facts["shape"])
    layout = "" if facts["layout"] == "strided" else f" {facts['layout']}"
    title = f"{facts['dtype']} [{', '.join(map(str, shape))}]{layout} on {facts['device']}"
    parts, end, width = [], _TOP - 10, 420
    if "sparse" not in facts:
        drawn, end, wide = _tape(facts, _TOP)
        parts, width = drawn, max(width, wide)
    elif places or (len(facts["shape"]) == 2 and max(facts["shape"]) <= MOST_DRAWN):
        drawn, end, wide = _matrix(facts, places, _TOP)
        parts, width = drawn, max(width, wide)
    if facts["parts"]:
        drawn, end = _bars(facts, end + 16)
        parts = parts + drawn
    second = _second_line(facts)
    width = round(max(width, _LEFT * 2 + 6.8 * max(len(second), 1.2 * len(title))))
    height = end + 16
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><style>{_STYLE}</style>',
        _text(_LEFT, 22, title, "ink title"),
        _text(_LEFT, 42, second, "dim"),
    ]
    return "".join(head + parts) + "</svg>"
