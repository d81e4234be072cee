"""The examples in the documentation of operations (ops/*.toml): each gives what the lines below it say."""

import sys
from pathlib import Path

import mica
import pytest
from mica.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

import model  # noqa: E402
import reference  # noqa: E402


def examples():
    """(name of the operation, call, what it gives) of every example."""
    for op in model.load(ROOT / "ops"):
        _, found, text = op.doc.partition("Example::\n")
        call, answer = None, []
        for line in [*text.splitlines(), "    end"] if found else []:
            line = line.strip()
            if line.startswith("# "):
                answer.append(line[2:])
            elif line:
                if call:
                    yield pytest.param(call, "\n".join(answer), id=f"{op.name}-{call[:40]}")
                call, answer = line, []


@pytest.mark.parametrize(("call", "answer"), list(examples()))
def test_an_example_gives_what_it_says(call, answer):
    given = repr(eval(call, {"torch": mica, "F": functional}))
    assert [line.strip() for line in given.splitlines()] == [line.strip() for line in answer.splitlines()]


def test_there_are_examples():
    assert sum(1 for _ in examples()) > 70


def test_help_shows_arguments_and_examples():
    assert "k: how many elements" in mica.topk.__doc__
    assert "Example::" in mica.topk.__doc__


def test_the_reference_lists_arguments():
    doc = "Sums.\n\nArgs:\n    dim: which\n    keepdim: whether\n\nExample::\n\n    torch.sum(x)\n    # tensor(3)\n"
    expected = (
        "Sums.\n\nArguments:\n\n- `dim`: which\n- `keepdim`: whether\n\nExample:\n\n    torch.sum(x)\n    # tensor(3)"
    )
    assert reference.as_markdown(doc) == expected
