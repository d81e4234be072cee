"""The Lab on the site: live on the front page, shared by a link, and a filter over long tables."""

import pytest


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_is_alive(look, address, scheme, width):
    shown = look(address, width, scheme)
    shown.wait_for_selector("figure.live iframe")
    inside = shown.frame_locator("figure.live iframe")
    assert inside.locator(".cell").count() == 9
    before = inside.locator("#readout").inner_text()
    inside.locator(".cell").nth(5).click()
    inside.locator(f"#readout:not(:text-is('{before}'))").wait_for()
    assert inside.locator("html").get_attribute("data-theme") == scheme
    frame = shown.locator("figure.live iframe").bounding_box()
    wide = inside.locator("html").evaluate("e => e.scrollWidth")
    assert wide <= frame["width"] + 1 and frame["height"] > 200
    assert shown.evaluate("document.documentElement.scrollWidth") <= width


def test_the_front_page_shows_a_picture_from_a_folder(look, folder):
    shown = look(folder.as_uri() + "/index.html")
    # A frame without a picture may be elsewhere: search runs in it, where a browser starts no workers.
    assert shown.locator("figure svg.strides").is_visible() and not shown.locator("figure iframe").count()
    assert not shown.locator("iframe:visible").count()


def test_the_lab_opens_from_its_page_and_a_link_keeps_its_state(look, address, browser):
    shown = look(address + "lab.html")
    assert shown.locator("table a").count() == 13
    shown.locator("table a", has_text="Stride explorer").click()
    shown.wait_for_selector(".cell")
    shown.get_by_text("x.t()", exact=True).click()
    for _ in range(600):
        if "strides%22%3A%5B1%2C4" in shown.url:
            break
        shown.wait_for_timeout(50)
    other = look(shown.url)
    other.wait_for_selector(".cell")
    assert other.locator("#readout").inner_text() == shown.locator("#readout").inner_text()


@pytest.mark.parametrize("page, word", [("packages.html", "lightning"), ("differences.html", "topk")])
def test_rows_are_filtered(look, address, page, word):
    shown = look(address + page)
    rows = shown.locator(".md-content table tbody tr:visible")
    whole = rows.count()
    shown.get_by_label("Filter the rows").fill(word)
    assert 0 < rows.count() < whole
    assert all(word in row.lower() for row in rows.all_inner_texts())
    shown.get_by_label("Filter the rows").fill("")
    assert rows.count() == whole
