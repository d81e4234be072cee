"""torch's schemas as objects: types, arguments, what is returned; and how each is said in C++."""

from __future__ import annotations

import re
from dataclasses import dataclass


class TableError(Exception):
    """Raised for an entry of ops/*.toml that cannot be understood. The message says which one and why."""


# --------------------------------------------------------------------------------------------------- types
@dataclass(frozen=True)
class Type:
    """A schema type: base name, optional, list (size 1 when a single value may stand for a list), alias annotation."""

    base: str
    optional: bool = False
    is_list: bool = False
    list_size: int | None = None
    element_optional: bool = False
    mutable: bool = False
    alias: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.base == "Tensor" and not self.is_list

    @property
    def is_tensor_list(self) -> bool:
        return self.base == "Tensor" and self.is_list

    def cpp_argument(self) -> str:
        """The C++ parameter type."""
        if self.base == "Tensor":
            if self.is_list:
                return "TensorList"
            return "Tensor&" if self.mutable else "const Tensor&"
        if self.is_list:
            inner = {
                "int": "IntArrayRef",
                "SymInt": "IntArrayRef",
                "float": "ArrayRef<double>",
                "bool": "ArrayRef<bool>",
                "Scalar": "ArrayRef<Scalar>",
            }[self.base]
            return f"std::optional<{inner}>" if self.optional else inner
        plain = {
            "int": "int64_t",
            "SymInt": "int64_t",
            "float": "double",
            "bool": "bool",
            "str": "std::string_view",
            "Scalar": "const Scalar&",
            "ScalarType": "DType",
            "MemoryFormat": "MemoryFormat",
            "Layout": "Layout",
            "Device": "Device",
            "Generator": "Generator",
            "Options": "const TensorOptions&",
            "Storage": "const Storage&",
        }[self.base]
        if self.optional:
            plain = plain.removeprefix("const ").removesuffix("&")
            inner = f"std::optional<{plain}>"
            return f"const {inner}&" if self.base in ("Scalar", "Generator") else inner
        return plain

    def cpp_value(self) -> str:
        """The type in which a node or a closure keeps the argument."""
        if self.is_list and self.base in ("int", "SymInt"):
            return "std::optional<DimVector>" if self.optional else "DimVector"
        if self.is_list and self.base != "Tensor":
            inner = {"float": "double", "bool": "bool", "Scalar": "Scalar"}[self.base]
            return f"std::optional<std::vector<{inner}>>" if self.optional else f"std::vector<{inner}>"
        if self.base == "str":
            return "std::optional<std::string>" if self.optional else "std::string"
        return self.cpp_argument().removeprefix("const ").removesuffix("&")


def parse_type(text: str) -> Type:
    text = text.strip()
    m = re.fullmatch(r"(\w+)(\([a-z]+!?(?: -> \*)?\))?(\?)?(?:\[(\d*)\](\([a-z]+!?\))?)?(\?)?", text)
    if not m:
        raise TableError(f"cannot read the type {text!r}")
    base, alias, optional, size, list_alias, list_optional = m.groups()
    is_list = "[" in text
    alias = alias or list_alias or ""
    return Type(
        base=base,
        optional=bool(list_optional) if is_list else bool(optional),
        is_list=is_list,
        list_size=int(size) if size else None,
        element_optional=bool(optional) and is_list,
        mutable="!" in alias,
        alias=bool(alias),
    )


# ------------------------------------------------------------------------------------------------- schemas
@dataclass(frozen=True)
class Argument:
    name: str
    type: Type
    default: str | None = None
    keyword_only: bool = False

    def cpp_default(self) -> str | None:
        """The default as a C++ expression."""
        d = self.default
        if d is None:
            return None
        if d == "None":
            return "{}" if self.type.base in ("Tensor", "Options") else "std::nullopt"
        if d in ("True", "False"):
            return d.lower()
        if self.type.base == "MemoryFormat":
            return {"contiguous_format": "MemoryFormat::Contiguous", "preserve_format": "MemoryFormat::Preserve"}[d]
        if self.type.base == "Options":
            return "{}"
        if self.type.is_list:
            if d.startswith("["):
                return "IntArrayRef{" + d[1:-1] + "}" if d != "[]" else "{}"
            return f"IntArrayRef{{{d}}}"
        if self.type.base == "ScalarType":
            return {"long": "DType::Int64", "float": "DType::Float32"}[d]
        if d.startswith("'"):
            return '"' + d[1:-1] + '"'
        return {"inf": "INFINITY", "-inf": "-INFINITY", "Mean": "1"}.get(d, d)


@dataclass(frozen=True)
class Return:
    type: Type
    name: str = ""


OPTION_NAMES = ("dtype", "layout", "device", "pin_memory")


@dataclass(frozen=True)
class Schema:
    text: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def tensors(self) -> list[Argument]:
        return [a for a in self.arguments if a.type.base == "Tensor"]

    def argument(self, name: str) -> Argument:
        for a in self.arguments:
            if a.name == name:
                return a
        raise TableError(f"{self.text}: no argument {name!r}")

    def has_argument(self, name: str) -> bool:
        return any(a.name == name for a in self.arguments)

    def cpp_return(self) -> str:
        kinds = [cpp_return_type(r.type) for r in self.returns]
        if not kinds:
            return "void"
        return kinds[0] if len(kinds) == 1 else f"std::tuple<{', '.join(kinds)}>"


def cpp_return_type(t: Type) -> str:
    if t.base == "Tensor":
        return "std::vector<Tensor>" if t.is_list else "Tensor"
    return {
        "int": "int64_t",
        "SymInt": "int64_t",
        "float": "double",
        "bool": "bool",
        "Scalar": "Scalar",
        "ScalarType": "DType",
        "str": "std::string",
    }[t.base]


def split_top(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        parts.append(current.strip())
    return parts


def parse_schema(text: str) -> Schema:
    m = re.fullmatch(r"(\w+)(?:\.(\w+))?\((.*)\) -> (.*)", text.strip())
    if not m:
        raise TableError(f"cannot read the schema {text!r}")
    name, overload, arguments, returns = m[1], m[2] or "", m[3], m[4]
    parsed, keyword_only = [], False
    for part in split_top(arguments):
        if part == "*":
            keyword_only = True
            continue
        declaration, _, default = part.partition("=")
        type_text, _, argument_name = declaration.strip().rpartition(" ")
        parsed.append(Argument(argument_name, parse_type(type_text), default or None, keyword_only))
    returned = []
    inner = returns[1:-1] if returns.startswith("(") else returns
    for part in split_top(inner):
        m2 = re.fullmatch(r"(\S+?)(?: (\w+))?", part)
        returned.append(Return(parse_type(m2[1]), m2[2] or ""))
    return Schema(text.strip(), name, overload, fold_options(tuple(parsed)), tuple(returned))


def fold_options(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """A factory's (dtype, layout, device, pin_memory) become one TensorOptions argument."""
    names = [a.name for a in arguments]
    if not all(n in names for n in OPTION_NAMES):
        return arguments
    at = names.index("dtype")
    rest = [a for a in arguments if a.name not in OPTION_NAMES]
    return tuple(rest[:at] + [Argument("options", Type("Options"), "None", True)] + rest[at:])
