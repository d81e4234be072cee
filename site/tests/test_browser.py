"""The site in a real browser: both themes, a phone's width, without scripts, search from a server and from a folder."""

from pathlib import Path

import pytest
from page_contrast import CONTRAST

SITE_PAGES = Path(__file__).resolve().parents[1] / "pages"
# Every page that is written by hand, and one of each kind that is generated.
PAGES = sorted(str(p.relative_to(SITE_PAGES).with_suffix(".html")) for p in SITE_PAGES.rglob("*.md")) + [
    "benchmarks.html", "lab/index.html", "packages.html", "differences.html", "inside/design.html", "reference/operations/arithmetic.html",
    "reference/operations/index.html", "reference/python/nn.html", "reference/python/index.html", "reference/python/Tensor.html",
    "reference/cpp/tensors.html", "reference/cpp/index.html",
]  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out(look, address, scheme, width):
    shown = look(address, width, scheme)
    for page in PAGES:
        shown.goto(address + page, wait_until="domcontentloaded")
        wide = shown.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (page, wide)
        background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 22, 24)"}[scheme], page


# One page of each kind; the Lab's own tests look at the Lab.
KINDS = ["lab.html", "guides/views.html", "benchmarks.html", "differences.html", "reference/operations/arithmetic.html", "reference/cpp/tensors.html"]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough_everywhere(look, address, scheme):
    shown = look(address, 1280, scheme)
    low = {}
    for page in KINDS:
        shown.goto(address + page, wait_until="domcontentloaded")
        if found := shown.evaluate(CONTRAST):
            low[page] = sorted(set(found))[:6]
    assert not low, low


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reads_without_scripts(look, address, scheme):
    shown = look(address + "guides/views.html", 390, scheme, scripts=False)
    assert shown.locator("h1").is_visible() and shown.locator(".output").first.is_visible()
    shown.locator(".md-header label[for=__drawer]").click()  # the menu of a phone is a checkbox
    assert shown.locator(".md-nav--primary").first.is_visible()


def found(shown, words):
    """The titles of what a search finds."""
    shown.locator(".md-search__button").first.click()
    field = shown.locator("input[placeholder=Search], input[type=search], input[role=combobox]").last
    field.wait_for()
    # The field is made anew when the index has arrived: what was typed before is gone then.
    for _ in range(60):
        field.fill(words)
        shown.wait_for_timeout(500)
        if field.input_value() == words and shown.get_by_text("results").count():
            break
    return shown.locator("body").evaluate(
        """() => { const out = [];
        const walk = (n) => { if (n.shadowRoot) walk(n.shadowRoot);
          if (n.tagName === 'A' && n.href && n.innerText) out.push(n.innerText); for (const c of n.children ?? []) walk(c); };
        walk(document.body); return out; }"""
    )


@pytest.mark.parametrize("where", ["server", "folder"])
def test_search_finds_an_operation(look, address, folder, where):
    base = address if where == "server" else folder.as_uri() + "/"
    shown = look(base + "guides/views.html")
    titles = found(shown, "cumsum")
    assert any("torch.cumsum" in title for title in titles), titles[:20]


def test_code_is_coloured_and_can_be_copied(look, address):
    shown = look(address + "guides/views.html")
    code = shown.locator(".highlight:not(.output) code").first
    assert code.locator("span.kn, span.k").count()
    assert shown.locator(".md-clipboard, .md-code__button").count()


def test_pictures_are_drawn_and_change_with_the_theme(look, address):
    shown = look(address + "guides/views.html", scheme="dark")
    picture = shown.locator("figure.picture svg").last
    box = picture.bounding_box()
    assert box["width"] > 200 and box["height"] > 100
    colour = picture.locator("text").first.evaluate("e => getComputedStyle(e).fill")
    assert colour == "rgb(233, 230, 223)"
