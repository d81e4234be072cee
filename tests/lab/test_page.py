"""The page in a real browser: clicks and keys, and what it shows against the engine."""

import re

import mica
import pytest
from lab_instruments import DRAWN


def test_front_page_and_keys(page, lab):
    page.goto(lab.url)
    assert page.locator(".card").count() == len(DRAWN) == 13
    page.keyboard.press("c")
    page.wait_for_selector("h1:has-text('Stride explorer')")
    page.keyboard.press("]")
    page.wait_for_selector("h1:has-text('View or copy')")
    page.keyboard.press("[")
    page.wait_for_selector("h1:has-text('Stride explorer')")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()


@pytest.mark.parametrize("letter", DRAWN)
def test_every_instrument_teaches_and_links_its_code(page, letter, lab):
    page.visit(letter)
    lede = page.locator(".lede").inner_text()
    assert len(re.findall(r"[.!?](?:\s|$)", lede)) == 1 and len(lede) < 160, lede
    assert len(re.findall(r"[.!?](?:\s|$)", page.locator(".more").inner_text())) == 2
    links = page.locator(".source a")
    assert links.count() >= 1
    for link in links.all():
        response = page.request.get(lab.url + link.get_attribute("href"))
        assert response.ok and response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out(browser, lab, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    shown = context.new_page()
    for letter, drawn in DRAWN.items():
        shown.goto("about:blank")
        shown.goto(f"{lab.url}#{letter}")
        shown.wait_for_selector(drawn)
        wide = shown.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (letter, wide)
    context.close()


def thread_seconds(context, page):
    """A function that says how long the page's thread has computed so far: what a busy machine does not change."""
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return lambda: next(
        row["value"] for row in session.send("Performance.getMetrics")["metrics"] if row["name"] == "ThreadTime"
    )


@pytest.mark.no_sanitizer("it measures time")
def test_the_first_picture_costs_little(browser, lab):
    """The page's thread takes 130 ms of a core of Cascade Lake from an empty page to the first cell."""
    costs = []
    for _ in range(3):
        context = browser.new_context()
        shown = context.new_page()
        seconds = thread_seconds(context, shown)
        shown.goto(lab.url + "#c")
        shown.wait_for_selector(".cell")
        costs.append(seconds())
        context.close()
    assert min(costs) < 0.5, costs


FRAMES = """(ms) => { window.frames_ = new Promise((done) => {
  const start = performance.now();
  const frame = () => performance.now() - start < ms ? requestAnimationFrame(frame) : done();
  requestAnimationFrame(frame);
}); }"""


@pytest.mark.no_sanitizer("it measures time")
@pytest.mark.parametrize("letter", ["c", "f"])
def test_frames_leave_time_to_spare(page, letter):
    """While cells travel or a pointer moves for half a second, the page's thread computes for a part of it only."""
    page.visit(letter)
    page.wait_for_selector(DRAWN[letter])
    seconds = thread_seconds(page.context, page)
    costs = []
    for _ in range(3):
        before = seconds()
        page.evaluate(FRAMES, 500)
        if letter == "c":
            page.get_by_text("x.t()", exact=True).click()
        else:
            box = page.locator("path[data-format=float32]").first.bounding_box()
            for i in range(20):
                page.mouse.move(box["x"] + box["width"] * i / 20, box["y"] + 20)
        page.evaluate("window.frames_")
        costs.append(seconds() - before)
    assert min(costs) < 0.35, costs


def test_theme(page):
    page.visit("c")
    button = page.locator("#theme")
    assert button.inner_text() == "Theme: system"
    button.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    button.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.served("the token is the server's")
def test_another_page_is_refused(browser, lab):
    """A page from elsewhere in the same browser can neither read nor ask."""
    context = browser.new_context()
    shown = context.new_page()
    shown.goto("data:text/html,<title>evil</title>")
    answer = shown.evaluate(
        """async (url) => {
          try {
            const r = await fetch(url + "api/engine", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"});
            return r.status + (await r.text());
          } catch (problem) { return "refused: " + problem.message; }
        }""",
        lab.url,
    )
    assert answer.startswith("refused")
    shown.set_content(f'<iframe src="{lab.url}"></iframe>')  # waits until the frame has loaded, too
    _, inner = shown.frames
    assert inner.url.startswith("chrome-error://") and "Mica Lab" not in inner.title()
    context.close()


# ---- a


def test_fit(page, ask):
    page.visit("a")
    page.wait_for_selector("[data-format='float32']")
    assert page.locator("[data-format='float32']").get_attribute("data-fits") == "false"
    assert page.locator("[data-format='int4']").get_attribute("data-fits") == "true"
    assert "Fits in bfloat16" in page.locator("#verdict").inner_text()
    page.get_by_text("H200, 141 GB").click()
    page.wait_for_selector("[data-format='float32'][data-fits='true']")
    page.get_by_text("Training", exact=True).click()
    page.until("document.querySelectorAll('[data-format=float32] rect').length === 4")
    page.until("document.querySelectorAll('[data-format=bfloat16] rect').length === 5")
    expected = ask(
        "fit", parameters=6738.4e6, layers=32, width=4096, heads=32, kv_heads=32, training=True, memory=141e9
    )
    shown = page.locator("[data-total='float32']").text_content()
    assert shown.startswith(f"{expected['rows'][0]['bytes'] / 1e9:.1f} GB")


def test_fit_of_a_dropped_file(page, tmp_path):
    mica.save({"w": mica.zeros(1000, 1000)}, tmp_path / "model.pt")
    page.visit("a")
    page.set_input_files("input[type=file]", tmp_path / "model.pt")
    page.wait_for_selector("#status:has-text('1 tensors, 1.00 million parameters, 4.00 MB')")
    (tmp_path / "bad.pt").write_bytes(b"\xff" * 100)
    page.set_input_files("input[type=file]", tmp_path / "bad.pt")
    assert "neither a safetensors" in page.error()


# ---- b


def test_calculator(page):
    page.visit("b")
    page.wait_for_selector("[data-dtype=float32]")
    assert "19.27 MB" in page.locator("[data-dtype=float32]").text_content()
    assert page.locator("svg [data-dtype]").count() == 4 and page.locator("svg [data-width]").count() == 5
    first = page.get_by_label("Shape 0")
    first.fill("64")
    page.wait_for_selector("[data-dtype=float32]:has-text('38.54 MB')")
    first.press("ArrowUp")
    page.wait_for_selector("[data-dtype=float32]:has-text('39.14 MB')")
    page.get_by_label("Shape 0").fill("9000000")
    page.get_by_label("Shape 1").fill("9000000")
    page.get_by_label("Shape 2").fill("9000000")
    assert "overflow" in page.error()


# ---- c


def test_strides_follow_clicks_and_keys(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.locator(".cell[data-place='6']").click()
    readout = page.locator("#readout")
    assert "x[1, 2]" in readout.inner_text() and "place 6" in readout.inner_text() and "byte 24" in readout.inner_text()
    assert page.locator(".place.here").get_attribute("data-place") == "6"
    page.keyboard.press("ArrowDown")
    assert "x[2, 2]" in readout.inner_text() and page.locator(".place.here").get_attribute("data-place") == "10"
    page.keyboard.press("ArrowLeft")
    assert "x[2, 1]" in readout.inner_text()


def test_strides_of_operations(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    expected = mica.arange(12).reshape(3, 4)
    for label, view in (("x.t()", lambda x: x.t()), ("x[1:]", lambda x: x[1:]), ("x[::-1]", lambda x: x[::-1])):
        expected = view(expected)
        page.get_by_role("button", name=label, exact=True).click()
        shown = f"shape {tuple(expected.shape)}, strides {expected.stride()}, offset {expected.storage_offset()}"
        page.wait_for_selector(f"h2:has-text('The tensor: {shown}')")
    before = expected[::-1]  # reversed twice: as it was before the last operation
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector(
        f"h2:has-text('The tensor: shape {tuple(before.shape)}, strides {before.stride()}, offset {before.storage_offset()}')"
    )


def test_strides_out_of_range_and_refused(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.get_by_label("Strides 0").fill("6")
    page.wait_for_selector(".cell.out")
    assert page.locator(".place.ghost").count() >= 1
    assert "out of bounds" in page.error()
    page.get_by_label("Strides 0").fill("0")
    page.wait_for_selector(".place.many")
    page.get_by_label("Strides 0").fill("-4")
    page.get_by_label("Offset 0").fill("8")
    page.wait_for_selector("h2:has-text('strides (-4, 1), offset 8')")
    assert page.locator(".cell.out").count() == 0
    page.get_by_role("button", name="x.view(-1)").click()
    assert "view size is not compatible" in page.error()


def test_a_refused_operation_leaves_what_was_typed(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    # Both at once: the numbers are still on their way to the engine when the operation is asked for.
    page.evaluate("""() => {
        for (const [label, value] of [['Shape 1', 2], ['Strides 0', 5]]) {
            const field = document.querySelector(`[aria-label="${label}"]`);
            field.value = value;
            field.dispatchEvent(new Event('input', {bubbles: true}));
            field.dispatchEvent(new Event('change', {bubbles: true}));
        }
        [...document.querySelectorAll('button')].find((b) => b.textContent === 'x.view(-1)').click();
    }""")
    assert "view size is not compatible" in page.error()
    page.wait_for_selector("h2:has-text('shape (3, 2), strides (5, 1), offset 0')")


def test_pictures_are_saved(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.locator("figure").first.hover()
    with page.expect_download() as saved:
        page.get_by_label("Save strides as SVG").click()
    text = saved.value.path().read_text()
    assert text.startswith("<svg") and "var(" not in text and ">@11</text>" in text
    with page.expect_download() as saved:
        page.get_by_label("Save strides as PNG").click()
    assert saved.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_code_is_copied(page):
    page.visit("c")
    page.wait_for_selector(".codeline")
    page.get_by_label("Copy the Python code").click()
    page.wait_for_selector("#status:has-text('Python copied')")
    assert (
        page.evaluate("navigator.clipboard.readText()")
        == "mica.arange(12, dtype=mica.float32).as_strided((3, 4), (4, 1), 0)"
    )


# ---- d


def test_view_or_copy(page):
    page.visit("d")
    page.wait_for_selector("[data-step='1']")
    page.get_by_role("button", name="t()", exact=True).click()
    page.wait_for_selector("[data-step='2'][data-shares='true']")
    page.get_by_role("button", name="reshape(-1)").click()
    copied = page.wait_for_selector("[data-step='3'][data-shares='false']")
    assert "cannot be seen in the new shape without a copy" in copied.inner_text()
    page.get_by_label("write into x1, element 5", exact=True).click()
    page.until("document.querySelector('[data-tensor=\"1\"][data-element=\"5\"]').textContent === '99'")
    values = lambda i: [b.inner_text() for b in page.locator(f"[data-tensor='{i}']").all()]  # noqa: E731
    assert values(2)[4] == "99" and values(0)[5] == "99" and "99" not in values(3)


def test_view_or_copy_refuses(page):
    page.visit("d", {"steps": [{"op": "arange", "on": [], "args": {"end": 4}}], "chosen": 0})
    page.wait_for_selector("[data-step='0']")
    page.wait_for_selector("#operation")
    page.select_option("#operation", "select")
    page.fill("#p-index", "9")
    page.click("#append")
    assert "out of range" in page.error() or "out of bounds" in page.error()


# ---- e


def test_broadcasting(page):
    page.visit("e")
    page.wait_for_selector("[data-operand=result]")
    page.get_by_role("button", name="column + row", exact=True).click()
    page.wait_for_selector(".how:has-text('strides (1, 0)')")
    assert page.locator("[data-operand=a] .ghost").count() == 9
    expected = mica.arange(3).reshape(3, 1) + mica.arange(4) * 10
    shown = [int(t.text_content()) for t in page.locator("[data-operand=result] svg text").all()]
    assert shown == expected.reshape(-1).tolist()


def test_broadcasting_is_mended(page):
    page.visit("e")
    page.get_by_role("button", name="matrix + vector, failing").click()
    assert "must match the size of tensor b" in page.error()
    page.get_by_role("button", name=re.compile(r"b\.unsqueeze\(1\)")).click()
    page.wait_for_selector("[data-operand=result]")
    assert page.locator(".error:not(:empty)").count() == 0
