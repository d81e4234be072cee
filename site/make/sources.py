"""Pages of source files that the reference links to: highlighted, with an anchor at each line."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 180_000  # a longer file is shown from its start: a page stays under 500 KB

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{path}</title><link rel="stylesheet" href="{up}look/source.css"></head>
<body><p><a href="{up}index.html">Mica</a> / {path}</p>{code}{rest}</body></html>
"""


class Sources:
    """Files that were linked to; `write` makes a page of each."""

    def __init__(self):
        self.paths: set[str] = set()

    def link(self, path: str, up: str, line: int | None = None, text: str | None = None) -> str:
        """An <a> to a file of the repository; `up` leads from the page to the site's root."""
        if not (ROOT / path).is_file():
            raise FileNotFoundError(f"the reference links to {path}, which is not there")
        self.paths.add(path)
        place = f"#L-{line}" if line else ""
        return f'<a href="{up}source/{path}.html{place}">{html.escape(text or path)}</a>'

    def write(self, site: Path) -> int:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_for_filename
        from pygments.lexers.special import TextLexer
        from pygments.util import ClassNotFound

        for path in sorted(self.paths):
            text = (ROOT / path).read_text()
            rest = ""
            if len(text) > LONGEST:
                text = text[: text.rindex("\n", 0, LONGEST)]
                rest = "<p>The file goes on: it is too long for a page.</p>"
            try:
                lexer = get_lexer_for_filename(path)
            except ClassNotFound:
                lexer = TextLexer()
            code = highlight(text, lexer, HtmlFormatter(cssclass="source", anchorlinenos=False, lineanchors="L"))
            if len(code) > 450_000:  # long tables: colours cost more than the words
                code = highlight(text, TextLexer(), HtmlFormatter(cssclass="source", lineanchors="L"))
            target = site / "source" / f"{path}.html"
            target.parent.mkdir(parents=True, exist_ok=True)
            up = "../" * len(Path("source", path).parent.parts)
            target.write_text(PAGE.format(path=html.escape(path), up=up, code=code, rest=rest))
        return len(self.paths)


@cache
def kernel_lines() -> dict[str, tuple[str, int]]:
    """Slot -> the file and line that fill it on the CPU."""
    registration = re.compile(r"^\s*MICA_(?:POINTWISE_SLOT|REGISTER_CPU|REGISTER_SIMD)\((\w+)", re.M)
    found = {}
    for path in sorted((ROOT / "backends" / "cpu").rglob("*.cpp")):
        text = path.read_text()
        for match in registration.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            found.setdefault(match[1], (str(path.relative_to(ROOT)), line))
    return found


@cache
def table_lines() -> dict[str, tuple[str, int]]:
    """Schema text of an operation -> the file of the table and the line."""
    found = {}
    for path in sorted((ROOT / "ops").rglob("*.toml")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*(?:schema\s*=\s*)?"([\w.]+)\(', line)
            if match:
                found.setdefault(match[1], (str(path.relative_to(ROOT)), number))
    return found


@cache
def test_lines() -> dict[str, list[tuple[str, int]]]:
    """Word -> places in tests/ whose test function names it, the first in each file."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "torch" in path.parts or "packages" in path.parts:
            continue
        seen = set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word in re.findall(r"(?:mica|torch|F|functional|linalg|special|fft)\.(\w+)\(", line):
                if word not in seen:
                    seen.add(word)
                    found.setdefault(word, []).append((str(path.relative_to(ROOT)), number))
    return found


@cache
def implementation_lines() -> dict[str, tuple[str, int]]:
    """Name -> the file and line in src/ that define its shape rule, view or composition."""
    definition = re.compile(r"^(?:[\w:<>, ]+[ &*])(?:shapes::|views::|composite::)?(\w+)\((?!\))", re.M)
    found = {}
    for folder in ("shapes", "views", "composite", "layouts", "init"):
        for path in sorted((ROOT / "src" / folder).rglob("*.cpp")):
            text = path.read_text()
            for match in definition.finditer(text):
                opening = text[match.start() : text.find("\n", match.start())]
                if opening.startswith(("static", "return", " ")) or opening.rstrip().endswith(";"):
                    continue
                line = text.count("\n", 0, match.start(1)) + 1
                found.setdefault(match[1], (str(path.relative_to(ROOT)), line))
    return found
