"""Conditions and messages of the table, which are Python's, said in C++."""

from __future__ import annotations

import ast
import re

_COMPARISONS = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!="}


def _place(node: ast.expr, options):
    """(option, index) of `eps` or `betas[0]`."""
    if isinstance(node, ast.Subscript):
        return options[node.value.id], node.slice.value
    return options[node.id], None


def _expression(node: ast.expr, options) -> str:
    match node:
        case ast.BoolOp():
            word = " && " if isinstance(node.op, ast.And) else " || "
            return "(" + word.join(_expression(v, options) for v in node.values) + ")"
        case ast.UnaryOp(op=ast.Not()):
            return f"!({_expression(node.operand, options)})"
        case ast.Compare(ops=[ast.Is()]):
            option, index = _place(node.left, options)
            return option.cpp_is_none(index)
        case ast.Compare(ops=[operator]):
            sides = [_expression(side, options) for side in (node.left, node.comparators[0])]
            return f" {_COMPARISONS[type(operator)]} ".join(sides)
        case ast.Constant(value=str()):
            return f'"{node.value}"'
        case ast.Constant():
            return str(node.value)
        case ast.Name() | ast.Subscript():
            option, index = _place(node, options)
            return option.cpp_element(index)
    raise ValueError(f"a condition cannot hold {ast.unparse(node)}")


def cpp_condition(text: str, options) -> str:
    """`options` maps a name to an object with cpp_element(index) and cpp_is_none(index)."""
    result = _expression(ast.parse(text, mode="eval").body, options)
    return result[1:-1] if result.startswith("(") and result.endswith(")") and result.count("(") == 1 else result


def cpp_message(text: str, options) -> str:
    """The pieces of a message for MICA_CHECK: literals, and values where {name} stands."""
    pieces = []
    for literal, name in re.findall(r"([^{]+)|\{([^}]+)\}", text):
        pieces.append(f'"{literal}"' if literal else _expression(ast.parse(name, mode="eval").body, options))
    return ", ".join(pieces)


def python_message(text: str) -> str:
    return ("f" if "{" in text else "") + '"' + text + '"'
