"""Four questions that a newcomer asks, from the start page to the answer, with the clicks counted; docs/see-through.md lists them."""

import pytest

MOST = 6
# The question, what is clicked one after another, and where the answer then stands with these words in it.
QUESTIONS = {
    "why a transpose is not contiguous": (
        [".card:has-text('Stride explorer')", "button:text-is('x.t()')"],
        "#instrument",
        "dimension 1 steps by 4, not 1",
    ),
    "which of two programs copies": (
        [".card:has-text('View or copy')", "button:text-is('t()')", "button:text-is('reshape(-1)')"],
        "[data-shares=false] .note:has-text('reshape copied')",
        "reshape copied",
    ),
    "where float16 breaks": (
        [".card:has-text('Precision')", "button:text-is('70\u00a0000'), button:text-is('70 000')"],
        "#instrument:has([data-clipped=float16])",
        "float16",
    ),
    "what fits in 24 GB": (
        [".card:has-text('Does it fit')", "[data-model]:nth-of-type(2)"],
        "#instrument:has([data-format=float32])",
        "24 GB",
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_a_few_clicks_away(page, lab, question):
    clicks, place, words = QUESTIONS[question]
    assert len(clicks) <= MOST
    page.goto(lab.url)
    for target in clicks:
        page.locator(target).first.click()
    found = page.locator(place).first
    found.wait_for()
    page.until(f"document.querySelector('#instrument').innerText.includes({words!r})")
