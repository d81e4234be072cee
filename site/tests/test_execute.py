"""Examples are carried out, and a failing one is an error that names its line."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site" / "make"))

from blocks import PageError, blocks_of  # noqa: E402
from execute import executed  # noqa: E402

HERE = {"PYTHONPATH": str(ROOT / "build" / "python")}


def page(*lines):
    return "\n".join(lines) + "\n"


def test_prints_shows_and_keeps_names():
    text = executed(
        page("```python", "x = 3", "print('printed')", "```", "", "```python", "x + 1", "```"), "p.md", HERE
    )
    assert "printed" in text and "\n4\n```" in text


def test_a_failing_example_ends_the_build_and_names_its_line():
    with pytest.raises(PageError, match=r"p\.md:4: this example failed") as caught:
        executed(page("# Title", "", "```python", "1 / 0", "```"), "p.md", HERE)
    assert 'File "p.md", line 4' in str(caught.value) and "ZeroDivisionError" in str(caught.value)


def test_an_expected_error_is_shown_and_its_absence_is_an_error():
    text = executed(page("```python raises=ZeroDivisionError", "1 / 0", "```"), "p.md", HERE)
    assert "ZeroDivisionError: division by zero" in text
    with pytest.raises(PageError, match="should raise ZeroDivisionError"):
        executed(page("```python raises=ZeroDivisionError", "1 / 1", "```"), "p.md", HERE)
    with pytest.raises(PageError, match="ZeroDivisionError"):
        executed(page("```python raises=KeyError", "1 / 0", "```"), "p.md", HERE)


def test_files_and_commands_share_a_folder():
    text = executed(page("```text file=a/b.txt", "words", "```", "", "```sh run", "cat a/b.txt", "```"), "p.md", HERE)
    assert text.count("words") == 2
    with pytest.raises(PageError, match="ended with 3"):
        executed(page("```sh run", "exit 3", "```"), "p.md", HERE)


def test_unknown_words_are_refused():
    with pytest.raises(PageError, match="skip"):
        blocks_of(page("```python skip", "x", "```"), "p.md")


def test_pictures_come_with_the_page():
    pytest.importorskip("matplotlib", reason="matplotlib is in the site's own environment")
    text = executed(page("```python", "import matplotlib.pyplot as plt", "plt.plot([1, 2])", "```"), "p.md", HERE)
    assert "<svg" in text and "var(--share)" in text
