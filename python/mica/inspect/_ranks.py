"""What the ranks of a program did together, as parts of a page: who waited for whom, and when."""

from html import escape

from mica.inspect._report import rows_table
from mica.inspect._terminal import readable_bytes

_COLOURS = {
    "all_reduce": "#2f6db3", "reduce": "#2f6db3", "reduce_scatter": "#7a4fa3", "all_gather": "#0b7f7b", "gather": "#0b7f7b",
    "broadcast": "#4d6b74", "scatter": "#4d6b74", "all_to_all": "#b5620a", "barrier": "#6d757b",
}  # fmt: skip
_WAITING = "#c8781a"


def visible(collectives, least):
    """The collectives that a picture can show. One that ends less than `least` seconds after the one before is left out."""
    shown, end = [], -float("inf")
    for each in collectives:
        if each["began"] + each["seconds"] >= end + least:
            shown.append(each)
            end = each["began"] + each["seconds"]
    return shown


def spanned(ranks):
    """When the first collective of all ranks begins, and the seconds from there to the end of the last; or None."""
    collectives = [each for rank in ranks for each in rank["collectives"]]
    if not collectives:
        return None
    first = min(each["began"] for each in collectives)
    return first, max(each["began"] + each["seconds"] for each in collectives) - first or 1e-9


def timeline_svg(ranks, width=1032, row=26):
    """A row for each rank: its collectives over time, with the part that it waited for another rank."""
    times = spanned(ranks)
    if not times:
        return "<p>No rank called a collective.</p>"
    first, span = times
    left, right = 64, 16
    wide, height = width - left - right, len(ranks) * row + 36
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="collectives by rank over time">']
    for index, rank in enumerate(ranks):
        top = 8 + index * row
        parts.append(f'<text class="s" x="{left - 8}" y="{top + 14}" text-anchor="end">rank {rank["rank"]}</text>')
        parts.append(f'<path d="M{left} {top + 20.5}H{width - right}" stroke="var(--edge)"/>')
        for each in visible(rank["collectives"], 0.3 * span / wide):
            x, long = left + wide * (each["began"] - first) / span, wide * each["seconds"] / span
            text = f"{each['operation']} of {readable_bytes(each['bytes'])}, {each['seconds'] * 1e3:.3f} ms, {each['line']}"
            if each["late"] is not None:
                text += f"\nwaited {each['waited'] * 1e3:.3f} ms for rank {each['late']}"
            parts.append(
                f"<g><title>{escape(text)}</title>"
                f'<rect x="{x:.2f}" y="{top}" width="{max(long, 0.6):.2f}" height="18" fill="{_COLOURS.get(each["operation"], "#6d757b")}"/>'
            )
            if each["waited"] > 0:
                share = wide * min(each["waited"], each["seconds"]) / span
                parts.append(
                    f'<rect x="{x:.2f}" y="{top + 13}" width="{max(share, 0.6):.2f}" height="5" fill="{_WAITING}"/>'
                )
            parts.append("</g>")
    parts.append(f'<text class="s" x="{left}" y="{height - 8}">0 s</text>')
    parts.append(f'<text class="s" x="{width - right}" y="{height - 8}" text-anchor="end">{span:.3g} s</text></svg>')
    shown = {each["operation"] for rank in ranks for each in rank["collectives"]}
    legend = "".join(
        f'<li><i style="background:{_COLOURS.get(name, "#6d757b")}"></i>{escape(name)}</li>' for name in sorted(shown)
    )
    return "".join(parts) + (
        f'<ul class="legend">{legend}<li><i style="background:{_WAITING}"></i>waiting for another rank</li></ul>'
    )


def by_line(ranks):
    """Totals of each line and operation, the slowest first; times are of the rank that was longest in it."""
    lines = {}
    for rank in ranks:
        for each in rank["collectives"]:
            row = lines.setdefault(
                (each["line"], each["operation"]), {"calls": {}, "bytes": 0, "seconds": {}, "late": {}}
            )
            row["calls"][rank["rank"]] = row["calls"].get(rank["rank"], 0) + 1
            row["bytes"] += each["bytes"]
            row["seconds"][rank["rank"]] = row["seconds"].get(rank["rank"], 0.0) + each["seconds"]
            if each["late"] is not None:
                row["late"][each["late"]] = row["late"].get(each["late"], 0.0) + each["waited"]
    rows = []
    for (line, operation), row in lines.items():
        late = max(row["late"], key=row["late"].get) if row["late"] else None
        rows.append(
            {
                "line": line, "operation": operation, "calls": max(row["calls"].values()), "bytes": row["bytes"],
                "seconds": max(row["seconds"].values()), "late": late, "waited": row["late"].get(late, 0.0),
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row["seconds"])


def for_lab(ranks):
    """The collectives of all ranks in the form that the Lab's page draws."""
    _, span = spanned(ranks) or (0, 0)
    return {
        "state": "ended", "lines": by_line(ranks)[:60],
        "ranks": [
            {**rank, "calls": len(rank["collectives"]), "collectives": visible(rank["collectives"], span / 4000)}
            for rank in ranks
        ],
    }  # fmt: skip


def sections(ranks):
    """The parts of a page; `ranks` has for each rank its number, collectives, and seconds waited for others."""
    numbers = [rank["rank"] for rank in ranks]
    waits = [
        (
            f"rank {rank['rank']}",
            *(f"{rank['waited'].get(str(other), 0.0):.3f} s" if other != rank["rank"] else "" for other in numbers),
            f"{sum(each['seconds'] for each in rank['collectives']):.3f} s", f"{rank['seconds']:.3f} s",
        )
        for rank in ranks
    ]  # fmt: skip
    lines = [
        (
            row["line"], row["operation"], row["calls"], readable_bytes(row["bytes"]), f"{row['seconds'] * 1e3:.2f} ms",
            "" if row["late"] is None else f"rank {row['late']}, {row['waited'] * 1e3:.2f} ms",
        )
        for row in by_line(ranks)[:60]
    ]  # fmt: skip
    return [
        "<h2>What ranks did together</h2>",
        timeline_svg(ranks),
        "<h2>Who waited for whom</h2>",
        rows_table(
            ("", *(f"for rank {number}" for number in numbers), "in collectives", "in all"),
            waits,
            ("", *["n"] * (len(numbers) + 2)),
        ),
        "<h2>Collectives, by line</h2>",
        rows_table(
            ("line", "operation", "calls", "bytes", "time", "most waited for"), lines, ("m", "m", "n", "n", "n", "")
        ),
    ]
