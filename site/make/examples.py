"""Examples of operations: a sample of the table written as a program, and what it prints."""

from __future__ import annotations

import ast
import sys
import warnings
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "ops"))

from sample_runner import Evaluator  # noqa: E402

LINES = 12  # what a longer result prints is replaced by its shape

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip


MADE = {
    "T": "torch.randn({})", "P": "torch.rand({}) + 0.3", "I": "torch.randint(-9, 10, ({}))", "B": "torch.rand({}) < 0.5",
    "C": "torch.randn({}, dtype=torch.complex64)", "X": "torch.randint({high}, ({}))",
}  # fmt: skip
KNOWN = {"True", "False", "None", "float", "int", "slice", "torch"}


class Spell(ast.NodeTransformer):
    """The table's constructors as what a program would write, each in a variable of its own."""

    def __init__(self):
        self.lines: list[str] = []
        self.variables: set[str] = set()

    def variable(self, expression: str) -> ast.Name:
        name = "abcdefghijklmnopqrstuvw"[len(self.lines)]
        self.lines.append(f"{name} = {expression}")
        self.variables.add(name)
        return ast.Name(name, ast.Load())

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in MADE:
            kind = node.func.id
            shape = ", ".join(ast.unparse(a) for a in node.args)
            if kind in ("I", "X") and shape:
                shape += ","
            high = next((ast.unparse(k.value) for k in node.keywords if k.arg == "high"), "")
            if not shape and kind in "TPBC":
                shape = "()"
            return self.variable(MADE[kind].format(shape, high=high))
        if isinstance(node.func, ast.Name) and node.func.id == "spd":
            inner = self.visit(node.args[0])
            name = ast.unparse(inner)
            return self.variable(f"{name} @ {name}.mH + torch.eye({name}.size(-1))")
        return self.generic_visit(node)

    def visit_Name(self, node):
        if node.id in KNOWN or node.id in self.variables:
            return node
        return ast.Attribute(ast.Name("torch", ast.Load()), node.id, ast.Load())


def spelled(sample: str) -> list[str]:
    """The sample as lines of a program: the last is an expression."""
    spell = Spell()
    tree = spell.visit(ast.parse(sample, mode="eval").body)
    called = ast.unparse(ast.fix_missing_locations(tree))
    random = any("rand" in line for line in [*spell.lines, called])
    return [*(["torch.manual_seed(0)"] if random else []), *spell.lines, called]


def shown(lines: list[str], mica) -> str | None:
    """What an interpreter prints for the last line; None if it does not run as it is written."""
    scope = {"torch": mica}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for line in lines[:-1]:
                exec(line, scope)
            return repr(eval(lines[-1], scope))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return None  # a sample that is written for float64, or for numbers of the table's own generator


def example(samples: list[str], mica) -> tuple[list[str], str] | None:
    """The sample with the shortest result that runs as a program of its own, and what it prints."""
    best = None
    for sample in samples:
        if len(sample) > 110:
            continue
        lines = spelled(sample)
        text = shown(lines, mica)
        if text is None:
            continue
        if text.count("\n") >= LINES:
            shorter = [*lines[:-1], f"{lines[-1]}.shape"]
            text = shown(shorter, mica)
            if text is None:
                continue
            if best is None:
                best = (shorter, text)
        elif best is None or best[0][-1].endswith(".shape") or len(text) < len(best[1]):
            best = (lines, text)
    return best


class Numbers(Evaluator):
    """An unsigned integer cannot hold what the table's constructor draws below zero."""

    def floating(self, shape, low, high):
        return super().floating(shape, max(low, 0.0) if self.dtype == self.module.uint8 else low, high)


@cache
def accepted(sample: str) -> tuple[str, ...]:
    """The dtypes that an operation takes, found by giving it tensors of each; empty where a sample does not vary them."""
    import mica

    if "T(" not in sample and "P(" not in sample:
        return ()
    taken = []
    for dtype in DTYPES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                Numbers(mica, dtype=dtype).run(sample)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                continue
        taken.append(dtype)
    return tuple(taken)


GROUPS = {
    "floating": ("float64", "float32", "float16", "bfloat16"),
    "complex": ("complex128", "complex64"),
    "integers": ("int64", "int32", "int16", "int8", "uint8"),
    "bool": ("bool",),
}


def dtypes_in_words(taken: tuple[str, ...]) -> str:
    if not taken:
        return ""
    words = []
    for name, members in GROUPS.items():
        present = [m for m in members if m in taken]
        if len(present) == len(members):
            words.append(name)
        else:
            words += present
    return ", ".join(words)
