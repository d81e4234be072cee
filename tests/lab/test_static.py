"""The Lab without a server, in a real browser: what it weighs, what it says that it cannot do.

How soon it answers is measured by bench/lab_answers.py --static.
"""

import gzip
import os
from pathlib import Path

import pytest

STATIC = os.environ.get("MICA_LAB_STATIC")
pytestmark = pytest.mark.skipif(not STATIC, reason="it is not built here: make test-lab-wasm")


def test_it_weighs_less_than_four_megabytes(browser):
    files = [p for p in Path(STATIC).rglob("*") if p.is_file() and "source" not in p.relative_to(STATIC).parts]
    weight = sum(len(gzip.compress(p.read_bytes(), 9)) for p in files)
    assert 100_000 < weight < 4_000_000


def test_a_link_opens_the_same_state(page, browser, lab):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.get_by_text("x.t()", exact=True).click()
    page.until("decodeURIComponent(location.hash).includes('\"strides\":[1,4]')")
    context = browser.new_context()
    other = context.new_page()
    other.goto(page.url)
    other.wait_for_selector(".cell")
    assert other.locator("#readout").inner_text() == page.locator("#readout").inner_text()
    assert other.locator(".cell").count() == page.locator(".cell").count()
    context.close()


def test_it_says_what_needs_a_machine_of_ones_own(page):
    page.visit("k")
    page.wait_for_selector("[data-kernel='matrix product']")
    assert "a model" in page.locator("#instrument").inner_text()
    page.visit("g")
    page.wait_for_selector("[data-row='A100']")
    assert "these are models" in page.locator("#instrument").inner_text()
    page.visit("h")
    page.get_by_text("Write or open one").click()
    assert "mica lab" in page.wait_for_selector("#needs").inner_text()
    page.visit("j", {"view": "run"})
    page.wait_for_selector("text=A page alone cannot watch one")


def test_nothing_is_asked_of_others(browser, lab):
    context = browser.new_context()
    shown = context.new_page()
    asked = []
    shown.on("request", lambda r: asked.append(r.url))
    shown.goto(lab.url)
    shown.wait_for_selector(".thumb svg")
    assert asked and all(url.startswith((lab.url, "blob:", "data:")) for url in asked), asked
    context.close()


def test_questions_that_are_none_are_refused(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    answer = page.evaluate("""async () => { const { carry } = await import('./transport.js');
        return carry('no such', '{}', new AbortController().signal); }""")
    assert answer == [404, "no such instrument"]
    answer = page.evaluate("""async () => { const { carry } = await import('./transport.js');
        return carry('strides', '{', new AbortController().signal); }""")
    assert answer[0] == 400
    page.get_by_text("x.t()", exact=True).click()
    page.until("decodeURIComponent(location.hash).includes('\"strides\":[1,4]')")
