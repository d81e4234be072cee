"""The planner, the roofline, the einsum explorer, the quiz and programs of one's own, in a real browser."""

import mica
import pytest


def test_the_planner_finds_a_way_and_writes_it(page, ask):
    page.visit("a")
    page.wait_for_selector("[data-format=float32]")
    page.get_by_text("Training", exact=True).click()
    page.get_by_label("GPUs", exact=True).fill("8")
    page.get_by_role("button", name="A100, 80 GB").click()
    page.click("#plan")
    first = page.wait_for_selector("[data-way]")
    expected = ask(
        "plan", parameters=6738.4e6, layers=32, width=4096, heads=32, kv_heads=32, training=True, memory=80e9, batch=1, devices=8
    )["ways"][0]  # fmt: skip
    assert first.get_attribute("data-way") == expected["precision"]
    assert float(first.get_attribute("data-bytes")) == expected["bytes"] <= 80e9
    code = page.locator("[data-way] code").first.inner_text()
    assert code.strip() == expected["code"].strip()
    compile(code, "plan", "exec")


def test_the_roofline_marks_what_bounds(page):
    page.visit("k")
    page.wait_for_selector("[data-kernel='matrix product']")
    ridge = float(page.locator("[data-ridge]").get_attribute("data-ridge"))
    assert 0.1 < ridge < 10000
    assert page.locator("[data-kernel=add]").get_attribute("data-bound") in ("memory", "overhead")
    page.get_by_label("Numbers in a tensor", exact=True).fill("6")
    page.wait_for_selector("[data-kernel=sum][data-bound=overhead]")


def test_a_letter_lights_its_axes(page):
    page.visit("l", {"equation": "ik,kj->ij", "sizes": {"i": 2, "k": 3, "j": 4}})
    page.wait_for_selector("[data-operand=result]")
    page.get_by_label("letter k").first.hover()
    # The first column of a, the first row of b, nothing of the result.
    lit = lambda name: [int(c.get_attribute("data-cell")) for c in page.locator(f"[data-operand={name}] .lit").all()]  # noqa: E731
    assert lit("a") == [0, 3] and lit("b") == [0, 1, 2, 3] and lit("result") == []
    assert "matched, multiplied and summed away" in page.locator("#letter").inner_text()
    page.get_by_label("letter i").first.hover()
    assert lit("a") == [0, 1, 2] and lit("result") == [0, 1, 2, 3]
    a, b = mica.arange(1.0, 7).reshape(2, 3), mica.arange(1.0, 13).reshape(3, 4)
    shown = [float(t.text_content()) for t in page.locator("[data-operand=result] svg text").all()]
    assert shown == (a @ b).reshape(-1).tolist()
    page.get_by_label("Equation").fill("ij->ik")
    assert page.error()


def test_the_quiz_judges(page, ask):
    page.visit("m", {"set": 7, "count": 2})
    call = page.wait_for_selector("#asked").inner_text()
    assert call == ask("quiz", number=7000)["call"]
    truth = ask("quiz", number=7000, guess={"shape": [], "strides": [], "copies": False})["truth"]
    page.get_by_label("Shape", exact=True).fill(", ".join(map(str, truth["shape"])))
    page.get_by_label("Strides", exact=True).fill("77")
    if truth["copied"]:
        page.get_by_text("a copy", exact=True).click()
    page.click("#say")
    page.wait_for_selector("[data-judged=shape][data-right=true]")
    assert page.locator("[data-judged=strides]").get_attribute("data-right") == "false"
    assert page.locator("[data-judged='view or copy']").get_attribute("data-right") == "true"
    assert "2 of 3 right" in page.locator("#score").inner_text()
    page.click("#next")
    page.until(f"document.querySelector('#asked')?.textContent === {ask('quiz', number=7001)['call']!r}")


@pytest.mark.served("it has no Python")
def test_a_program_of_ones_own(page):
    page.visit("h")
    page.click("#own")
    page.wait_for_selector("#program")
    page.fill(
        "#program", "import torch\nx = torch.arange(6.).reshape(2, 3)\ny = x.t()\nprint('hello')\nz = y.view(-1)\n"
    )
    page.click("#go")
    page.wait_for_selector("#printed:has-text('hello')")
    failed = page.locator("#made .error")
    assert failed.get_attribute("data-line") == "5" and "view size is not compatible" in failed.inner_text()
    row = page.locator("[data-made=t]")
    assert "(3, 2)" in row.inner_text() and "view of 0" in row.inner_text()
    row.get_by_role("link", name="c", exact=True).click()
    real = mica.arange(6.0).reshape(2, 3).t()
    page.wait_for_selector(f"h2:has-text('shape {tuple(real.shape)}, strides {real.stride()}, offset 0')")


@pytest.mark.served("it has no Python")
def test_a_tensor_of_a_program_opens_among_its_storage_and_as_a_graph(page):
    page.visit("h")
    page.click("#own")
    page.fill("#program", "import torch\nw = torch.ones(2, 2, requires_grad=True)\ny = w.exp()\nv = y.t()\n")
    page.click("#go")
    page.locator("[data-made=t]").get_by_role("link", name="d", exact=True).click()
    page.wait_for_selector("[data-step='2'][data-shares='true']")
    page.go_back()
    page.click("#own")
    page.fill("#program", "import torch\nw = torch.ones(2, 2, requires_grad=True)\ny = w.exp()\n")
    page.click("#go")
    page.locator("[data-made=exp]").get_by_role("link", name="j", exact=True).click()
    page.wait_for_selector("[data-node=ExpBackward0]")


@pytest.mark.served("it has no Python")
def test_a_link_runs_no_program(page):
    page.visit("h", {"steps": [], "source": "import os", "program": "1/0"})
    page.wait_for_selector("#own")
    page.wait_for_timeout(300)
    assert page.locator("#program").count() == 0 and page.locator("#made").count() == 0
