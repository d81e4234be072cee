"""The site's files without a browser: links, anchors, weights, what the examples left."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HEAVIEST = 500_000  # bytes of a page with its style sheets, scripts and pictures


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.links, self.parts, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if values.get("id"):
            self.anchors.add(values["id"])
        if tag == "a" and values.get("name"):
            self.anchors.add(values["name"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img") and values.get("src"):
            self.parts.append(values["src"])
        if tag == "link" and values.get("rel") == "stylesheet":
            self.parts.append(values["href"])


@cache
def parsed(path: Path) -> Page:
    return Page(path.read_text())


def places(path: Path, folder: Path) -> set[str]:
    """What can follow # in the address of a page. The Lab's page is a program, whose list of instruments adds to it."""
    found = parsed(path).anchors | {"__skip"}
    if path == folder / "lab" / "index.html":
        listed = re.search(r"INSTRUMENTS = \[(.*?)\n\];", (path.parent / "main.js").read_text(), re.S)
        found |= set(re.findall(r'^  \["(\w)", ', listed[1], re.M))
    return found


def pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def target(page: Path, link: str, folder: Path) -> tuple[Path, str]:
    parts = urlsplit(link)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if link.startswith("/"):  # the page that a server shows for an address that it does not know
        path = (folder / unquote(parts.path).lstrip("/")).resolve()
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def test_every_link_leads_somewhere(folder):
    broken = []
    for page in pages(folder):
        for link in parsed(page).links:
            if re.match(r"(https?|mailto):", link):
                continue
            path, anchor = target(page, link, folder)
            if not path.is_file():
                broken.append(f"{page.relative_to(folder)}: {link}")
            elif anchor and path.suffix == ".html" and anchor not in places(path, folder):
                broken.append(f"{page.relative_to(folder)}: {link} (no such place there)")
    assert not broken, f"{len(broken)} links:\n" + "\n".join(broken[:40])


def test_no_page_is_heavy(folder):
    heavy = []
    for page in pages(folder):
        weight = page.stat().st_size
        for part in set(parsed(page).parts):
            path, _ = target(page, part, folder)
            assert path.is_file(), f"{page}: {part}"
            weight += path.stat().st_size
        if weight > HEAVIEST:
            heavy.append(f"{page.relative_to(folder)}: {weight:,} bytes")
    assert not heavy, heavy


def test_nothing_comes_from_elsewhere(folder):
    for page in pages(folder):
        assert not [p for p in parsed(page).parts if re.match(r"(https?:)?//", p)], page


def test_examples_ran(folder):
    """Guides hold what their examples printed: a page without output was not carried out."""
    for page in sorted((folder / "guides").glob("*.html")):
        if page.name != "index.html":
            assert 'class="text output' in page.read_text() or "output highlight" in page.read_text(), page.name
