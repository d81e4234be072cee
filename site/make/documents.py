"""Pages that are documents of the source tree: docs/packages.md, docs/differences.md and such, with their links led aright."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath

from sources import Sources

ROOT = Path(__file__).resolve().parents[2]

# Documents of the tree that are pages of their own; the index is the site's, and benchmarks are drawn from their rows.
PLACES = {"docs/packages.md": "packages.md", "docs/differences.md": "differences.md"}
LEFT_OUT = {"docs/README.md", "docs/benchmarks.md"}
FIRST = ["docs/tour.md", "docs/design.md", "docs/memory.md"]


@cache
def documents() -> dict[str, str]:
    """Document -> its page on the site, in the order of the navigation."""
    found = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - LEFT_OUT - set(PLACES)
    order = [*FIRST, *sorted(found - set(FIRST))]
    inside = {path: f"inside/{Path(path).name}" for path in order}
    others = {"CONTRIBUTING.md": "inside/contributing.md", "CHANGELOG.md": "inside/changelog.md"}
    return PLACES | inside | others


def pages(sources: Sources) -> dict[str, str]:
    found = {page: led_aright(path, page, sources) for path, page in documents().items()}
    for page in PLACES.values():
        found[page] = filtered(found[page])
    return found


def filtered(text: str) -> str:
    """A place before the first table where look/page.js puts a field that filters the page's tables."""
    return re.sub(r"\n\n(?=\|)", '\n\n<div class="filter" data-filter></div>\n\n', text, count=1)


def pictures() -> dict[str, Path]:
    """Pictures that documents show -> where they are."""
    return {f"inside/{p.stem}.webp": p for p in (ROOT / "docs").glob("*.png")}


def lighter_picture(source: Path, target: Path) -> None:
    """A screenshot in a format that takes a fraction of its bytes."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").save(target, "WEBP", quality=70)


def led_aright(path: str, page: str, sources: Sources) -> str:
    """The document's text; a link to another document leads to its page, one to any other file to the page of its source."""
    text = (ROOT / path).read_text()
    here = PurePosixPath(path).parent
    up = "../" * (len(PurePosixPath(page).parts) - 1)

    def lead(match: re.Match) -> str:
        words, link = match[1], match[2]
        target, _, anchor = link.partition("#")
        if re.match(r"https?:", link) or not target or target.endswith(".png"):
            return match[0]
        resolved = str((ROOT / here / target).resolve().relative_to(ROOT))
        if resolved in documents():
            return f"[{words}]({up}{documents()[resolved]}{'#' + anchor if anchor else ''})"
        if resolved == "docs/benchmarks.md":
            return f"[{words}]({up}benchmarks.md)"
        if (ROOT / resolved).is_dir() and (ROOT / resolved / "README.md").is_file():
            resolved += "/README.md"
        if (ROOT / resolved).is_file():
            return sources.link(resolved, up, text=words.replace("`", ""))
        return words

    text = re.sub(r"(!\[[^\]]*\]\([\w./-]+)\.png\)", r"\1.webp)", text)
    return re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", lead, text)
