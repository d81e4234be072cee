"""Evaluates the `samples` of ops/*.toml in one of several modes, with Mica or with any module that speaks torch's API.

A sample is a Python expression: the operation's name is looked up in the module, and tensors come from the constructors
T (floating), P (positive), I (int64), B (bool), C (complex) and X (an index tensor with entries below `high`).
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import model  # noqa: E402

# rounded: to the dtype, and computed with in float64; bytes: bools that are stored as other bytes than 0 and 1
MODES = ("plain", "noncontiguous", "meta", "rounded", "bytes")


@dataclass(frozen=True)
class Sample:
    op: str
    namespace: str
    text: str
    forms: tuple[str, ...]
    differentiable: bool

    @property
    def id(self) -> str:
        return re.sub(r"\s+", "", self.text)


def load_samples() -> list[Sample]:
    seen: dict[str, Sample] = {}
    for op in model.load(ROOT / "ops"):
        for text in op.samples:
            differentiable = bool(op.grad) or (op.kind == "composite" and op.differentiable)
            seen.setdefault(text, Sample(op.name, op.namespace, text, tuple(op.forms), differentiable))
    return list(seen.values())


class Numbers:
    """A small generator of its own, so that every module gets the same data."""

    def __init__(self, seed: int):
        self.state = seed * 2654435761 % 2**32 or 1

    def unit(self) -> float:
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return (self.state >> 8) / 2**24


def nested(flat: list, shape: tuple[int, ...]):
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = len(flat) // shape[0] if shape[0] else 0
    return [nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


class Evaluator:
    def __init__(self, module, mode: str = "plain", dtype: str = "float64", requires_grad: bool = False):
        self.module, self.mode, self.requires_grad = module, mode, requires_grad
        self.dtype = getattr(module, dtype)
        self.leaves: list = []
        self.inputs: list = []  # every tensor that the sample asked for
        self.numbers = Numbers(7)

    # ---- constructors
    def make(self, shape, draw, dtype):
        count = 1
        for s in shape:
            count *= s
        values = [draw() for _ in range(max(count, 1) if not shape else count)]
        if count == 0 and shape:
            t = self.module.zeros(shape, dtype=dtype)
        else:
            t = self.module.tensor(nested(values, tuple(shape)), dtype=dtype)
        if self.mode == "rounded" and t.is_floating_point():
            t = t.double()
        if self.mode == "bytes" and dtype == self.module.bool:
            stored = (self.module.arange(t.numel()) * 37 % 254 + 2).to(self.module.uint8).view(t.shape)
            t = (stored * t).view(self.module.bool)
        self.inputs.append(t)
        if self.mode == "meta":
            return self.module.empty(shape, dtype=dtype, device="meta")
        if self.mode == "noncontiguous" and t.dim() > 0:
            wide = self.module.stack([t, t], -1)
            t = wide.transpose(0, -2)[..., 1].transpose(0, -1) if t.dim() > 1 else wide[..., 1]
        return t

    def floating(self, shape, low, high):
        if self.dtype == self.module.bool:
            return self.B(*shape)
        t = self.make(shape, lambda: low + (high - low) * self.numbers.unit(), self.dtype)
        if self.requires_grad and (t.is_floating_point() or t.is_complex()):
            t = t.detach().requires_grad_()
            self.leaves.append(t)
        return t

    def T(self, *shape):
        return self.floating(shape, -2.0, 2.0)

    def P(self, *shape):
        return self.floating(shape, 0.3, 2.3)

    def I(self, *shape):  # noqa: E743
        return self.make(shape, lambda: int(self.numbers.unit() * 19) - 9, self.module.int64)

    def B(self, *shape):
        return self.make(shape, lambda: self.numbers.unit() < 0.5, self.module.bool)

    def X(self, *shape, high):
        kept, self.mode = self.mode, "plain" if self.mode != "meta" else "meta"
        t = self.make(shape, lambda: int(self.numbers.unit() * high), self.module.int64)
        self.mode = kept
        return t

    def C(self, *shape):
        dtype = self.module.complex64 if self.dtype == self.module.float32 else self.module.complex128
        t = self.make(shape, lambda: complex(self.numbers.unit() * 4 - 2, self.numbers.unit() * 4 - 2), dtype)
        if self.requires_grad:
            t = t.detach().requires_grad_()
            self.leaves.append(t)
        return t

    def positive_definite(self, x):
        return x @ x.mH + self.module.eye(x.size(-1), dtype=x.dtype, device=x.device)

    # ---- evaluation
    def scope(self) -> dict:
        names = {n: getattr(self, n) for n in "TPIBCX"}
        names.update(nn=self.module.nn, torch=self.module, spd=self.positive_definite)
        return names

    def compile(self, tree: ast.expr):
        """Names that are not constructors are the module's."""
        scope = self.scope()

        class Qualify(ast.NodeTransformer):
            def visit_Name(self, node):
                if node.id in scope or node.id in ("True", "False", "None", "float", "int", "slice"):
                    return node
                return ast.copy_location(ast.Attribute(ast.Name("torch", ast.Load()), node.id, ast.Load()), node)

        expression = ast.Expression(Qualify().visit(tree))
        return compile(ast.fix_missing_locations(expression), "<sample>", "eval"), scope

    def run(self, text: str):
        code, scope = self.compile(ast.parse(text, mode="eval").body)
        return eval(code, scope)

    def arguments(self, text: str):
        """The evaluated (self or positional) arguments and keywords of the sample's outer call."""
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call), text
        positional = list(call.args)
        if isinstance(call.func, ast.Attribute) and not is_module_path(call.func):
            positional.insert(0, call.func.value)
        args = [self.value(a) for a in positional]
        return args, {k.arg: self.value(k.value) for k in call.keywords}

    def function(self, text: str, op: str):
        """What the sample's outer call calls, as a function: a function of a submodule, or that of the operation."""
        called = ast.parse(text, mode="eval").body.func
        return self.value(called) if is_module_path(called) else getattr(self.module, op)

    def value(self, tree):
        code, scope = self.compile(tree)
        return eval(code, scope)


def is_module_path(node) -> bool:
    return ast.unparse(node).startswith(("nn.", "linalg.", "special.", "fft."))


def tensors_of(result) -> list:
    """The tensors of a result, in order."""
    if isinstance(result, list | tuple):
        return [t for r in result for t in tensors_of(r)]
    return [result] if hasattr(result, "dim") else []


def outcome(evaluator: Evaluator, text: str) -> list | str:
    """The tensors that a call gives, or what its error says."""
    try:
        return tensors_of(evaluator.run(text))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return str(error)
