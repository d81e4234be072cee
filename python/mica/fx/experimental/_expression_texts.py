"""Texts of expressions of sizes, as torch's archives have them, and what they mean."""

import ast
import math

from mica.fx.experimental._expressions import FUNCTIONS, WHOLE, call, make, symbol

__all__ = ["parse"]


def parse(text):
    """An expression from sympy's words or plain arithmetic; nothing in the text is run."""
    try:
        return _read(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"no expression of sizes: {text!r}") from error


def _read(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return make(node.value)
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_read(node.operand)
    if isinstance(node, ast.BinOp):
        return _combined(type(node.op).__name__, _read(node.left), _read(node.right))
    if isinstance(node, ast.Call):
        return _read_call(node)
    raise ValueError(f"no expression of sizes: {ast.unparse(node)}")


def _combined(sign, left, right):
    if sign == "Pow" and right.is_number and isinstance(right.number, int) and 0 <= right.number <= 16:
        return math.prod([left] * right.number, start=make(1))
    found = {"Add": "__add__", "Sub": "__sub__", "Mult": "__mul__", "FloorDiv": "__floordiv__", "Mod": "__mod__"}.get(
        sign
    )
    if found is None:
        raise ValueError(f"sizes are not computed with {sign}")
    return getattr(left, found)(right)


_ALIASES = {"CleanDiv": "FloorDiv", "PythonMod": "Mod", "FloatTrueDiv": "TrueDiv", "IntTrueDiv": "TrueDiv",
            "FloorToInt": "TruncToInt"}  # fmt: skip


def _read_call(node):
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("Symbol", "Integer", "Float") and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
        value = node.args[0].value
        if name == "Symbol":
            return symbol(str(value))
        return make(float(value) if name == "Float" else int(value))
    if name == "Integer":
        return _read(node.args[0])
    args = [_read(each) for each in node.args]
    if name == "Add":
        return sum(args, make(0))
    if name == "Mul":
        return math.prod(args, start=make(1))
    if name == "Pow" and len(args) == 2:
        return _combined("Pow", *args)
    if name == "ToFloat" and len(args) == 1:
        return args[0]
    name = _ALIASES.get(name, name)
    if name in ("Max", "Min") and args:
        made = args[0]
        for each in args[1:]:
            made = call(name, made, each)
        return made
    if name in FUNCTIONS and len(args) == (1 if name in WHOLE else 2):
        return call(name, *args)
    raise ValueError(f"sizes are not computed with {name}")
