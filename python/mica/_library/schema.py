"""Schemas of operators as text and taken apart: "ns::name.overload(Tensor x, *, int n=1) -> Tensor"."""

import ast
import re


class AliasInfo:
    """Which arguments a value may share memory with, and whether it is changed."""

    def __init__(self, text):
        self.is_write = "!" in text
        self.before_set = set(re.findall(r"[a-z0-9]+|\*", text))
        self.after_set = self.before_set

    def __repr__(self):
        return f"AliasInfo(is_write={self.is_write}, before_set={self.before_set})"


class SchemaType(str):
    """A type as schemas write it, without aliases: Tensor, int[], Tensor?."""

    @property
    def annotation_str(self):
        return str(self)

    def kind(self):
        if self.endswith("?"):
            return "OptionalType"
        if self.endswith("]"):
            return "ListType"
        return f"{self}Type"

    def getElementType(self):
        return SchemaType(self[:-1] if self.endswith("?") else self[: self.rindex("[")])

    def isSubtypeOf(self, other):
        return self == other


class Argument:
    """An argument or a result of an operator."""

    def __init__(self, name, type, default_value, has_default, kwarg_only, alias_info):
        self.name, self.type, self.default_value = name, type, default_value
        self.kwarg_only, self.alias_info = kwarg_only, alias_info
        self.is_out = kwarg_only and alias_info is not None and alias_info.is_write
        self._has_default = has_default
        self._text = ""

    real_type = property(lambda self: self.type)

    def has_default_value(self):
        return self._has_default

    def __repr__(self):
        return self._text


class FunctionSchema:
    """The name, the arguments and the returns of an operator's schema."""

    def __init__(self, name, overload_name, arguments, returns, text=""):
        self.name, self.overload_name, self.arguments, self.returns = name, overload_name, arguments, returns
        self._text = text

    is_mutable = property(lambda self: any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments))

    def __str__(self):
        return self._text

    __repr__ = __str__

    def __eq__(self, other):
        return isinstance(other, FunctionSchema) and self._text == other._text

    def __hash__(self):
        return hash(self._text)


def split_at_commas(text):
    """The parts between commas that are in no bracket."""
    parts, depth, start, quoted = [], 0, 0, ""
    for i, c in enumerate(text):
        if quoted:
            quoted = "" if c == quoted else quoted
        elif c in "'\"":
            quoted = c
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
        else:
            depth += (c in "([") - (c in ")]")
    last = text[start:].strip()
    return [*parts, last] if last else parts


_ENUMERATED = {"True": True, "False": False, "None": None, "Mean": 1, "Sum": 2, "long": 4, "float": 6,
               "contiguous_format": 0, "preserve_format": 1, "inf": float("inf"), "-inf": float("-inf")}  # fmt: skip


def _default(text):
    if text in _ENUMERATED:
        return _ENUMERATED[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _default_of(kind, text):
    """The value of a default. One number for a list of a fixed length, as in `int[2] padding=0`, stands for all its elements."""
    value = _default(text)
    length = re.fullmatch(r"\w+\[(\d+)\]\??", kind)
    return [value] * int(length[1]) if length and isinstance(value, (bool, int, float)) else value


def _argument(text, kwarg_only=False, named=True):
    declaration, equals, default = text.partition("=")
    declaration = declaration.strip()
    # "Tensor! x" is short for an alias of its own that is changed.
    declaration = re.sub(r"^(\w+)!", r"\1(changed!)", declaration)
    match = re.fullmatch(r"(.*?[\])?\w])\s+(\w+)", declaration)
    if match and (named or not match[1].endswith(",")):
        type_text, name = match[1], match[2]
    elif named:
        raise RuntimeError(f"expected an argument as a type and a name, but got {text!r}")
    else:
        type_text, name = declaration, ""
    alias = re.search(r"\(([a-z0-9!| *>-]+)\)", type_text)
    plain = SchemaType(re.sub(r"\([a-z0-9!| *>-]+\)", "", type_text))
    info = AliasInfo(alias[1]) if alias else None
    made = Argument(
        name, plain, _default_of(plain, default.strip()) if equals else None, bool(equals), kwarg_only, info
    )
    made._text = text
    return made


def parse_schema(text):
    """Parse the text of a schema."""
    text = " ".join(text.split())
    match = re.fullmatch(r"([\w:]+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.*)", text)
    if match is None:
        raise RuntimeError(f"invalid schema {text!r}: expected name.overload(arguments) -> results")
    name, overload, arguments, returns = match[1], match[2] or "", match[3], match[4]
    parsed, kwarg_only = [], False
    for part in split_at_commas(arguments):
        if part == "*":
            kwarg_only = True
        else:
            parsed.append(_argument(part, kwarg_only))
    inner = returns[1:-1] if returns.startswith("(") and returns.endswith(")") else returns
    results = [_argument(part, named=False) for part in split_at_commas(inner)]
    full = f"{name}{'.' + overload if overload else ''}({arguments}) -> {returns}"
    return FunctionSchema(name, overload, parsed, results, full)
