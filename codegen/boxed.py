"""Operations by name, for programs that come from files: one small function for each overload of torch.ops.aten, which
takes its arguments from a boxed call (src/program/call.h), beside the schema that says what they are.

The functions are a library of their own, libmica_program: engines that load no programs do not carry them. What a file
may call is what Python's torch.ops.aten has, but for the forms with out=.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from aten import inplace_text, only_aten
from cpp import is_inplace_schema, wants_inplace
from model import Op
from schema import OPTION_NAMES, Argument, Schema, parse_schema, split_top

# How an argument is taken from a call, by the type of its C++ parameter.
GETTERS = {
    "const Tensor&": "tensor",
    "Tensor&": "tensor",
    "TensorList": "tensors",
    "int64_t": "integer",
    "std::optional<int64_t>": "integer_if",
    "double": "real",
    "std::optional<double>": "real_if",
    "bool": "boolean",
    "std::optional<bool>": "boolean_if",
    "std::string_view": "text",
    "std::optional<std::string_view>": "text_if",
    "const Scalar&": "scalar",
    "const std::optional<Scalar>&": "scalar_if",
    "DType": "dtype",
    "std::optional<DType>": "dtype_if",
    "MemoryFormat": "memory_format",
    "std::optional<MemoryFormat>": "memory_format_if",
    "std::optional<Layout>": "layout_if",
    "Device": "device",
    "std::optional<Device>": "device_if",
    "const TensorOptions&": "options",
    "IntArrayRef": "integers",
    "std::optional<IntArrayRef>": "integers_if",
    "ArrayRef<double>": "reals",
    "std::optional<ArrayRef<double>>": "reals_if",
    "ArrayRef<bool>": "booleans",
}


def getter(argument: Argument, place: int) -> str | None:
    if argument.type.base == "Generator":  # no file holds a generator
        return "std::optional<Generator>()"
    name = GETTERS.get(argument.type.cpp_argument())
    return f"c.{name}({place})" if name else None


def places(schema: Schema) -> list[int]:
    """Where each C++ argument stands in the schema's text: a factory's options are four there and one in C++."""
    text = schema.text.partition("(")[2].rpartition(") -> ")[0]
    names = [part.partition("=")[0].split()[-1] for part in split_top(text) if part != "*"]
    if all(name in names for name in OPTION_NAMES):
        at = names.index("dtype")
        assert names[at : at + 4] == list(OPTION_NAMES), schema.text
    return [names.index("dtype" if a.name == "options" else a.name) for a in schema.arguments]


def call(schema: Schema, name: str) -> str | None:
    given = [getter(a, i) for a, i in zip(schema.arguments, places(schema), strict=True)]
    return None if None in given else f"mica::{name}({', '.join(given)})"


def forms(op: Op):
    """(schema's text, call) of what torch.ops.aten has of an operation; a call that cannot be boxed is None."""
    for schema in op.schemas:
        in_place = op.kind == "inplace" or is_inplace_schema(schema)
        name = schema.name + ("_" if op.kind == "inplace" and not schema.name.endswith("_") else "")
        if in_place or op.has("function") or op.has("method"):
            yield schema.text, call(schema, name)
        if not in_place and wants_inplace(op, schema):
            changing = parse_schema(inplace_text(schema))
            yield changing.text, call(changing, changing.name)


def with_aliases(op: Op):
    for text, body in forms(op):
        yield text, body
        for alias in op.aliases:
            yield alias + text.removeprefix(op.name), body


def returns_known(text: str) -> bool:
    return all(
        r.type.base in ("Tensor", "int", "SymInt", "float", "bool", "Scalar") for r in parse_schema(text).returns
    )


def source(family: str, rows: list[tuple[str, str]], is_layer: bool) -> str:
    """The C++ source. Schemas that call the same function share it."""
    numbers: dict[str, int] = {}
    for _, body in rows:
        numbers.setdefault(body, len(numbers))
    header = f"mica/generated/layers/{family}.h" if is_layer else "mica/ops.h"
    lines = [f"// Generated from ops/: the operations of {family}, by name.", f'#include "{header}"']
    lines += ['#include "program/call.h"', "", "namespace mica::program {", ""]
    lines += [f"static void {family}_{i}(Call& c) {{ c.give({body}); }}" for body, i in numbers.items()]
    lines += ["", f"extern const Operator operators_of_{family}[] = {{"]
    lines += [f"    {{{json.dumps(text)}, {family}_{numbers[body]}}}," for text, body in rows]
    lines += ["};", f"extern const size_t count_of_{family} = {len(rows)};", "", "}  // namespace mica::program", ""]
    return "\n".join(lines)


def table(families: list[str]) -> str:
    lines = ["// Generated from ops/: where the operations of each family are.", '#include "program/call.h"', ""]
    lines += ["namespace mica::program {", ""]
    for family in families:
        lines.append(f"extern const Operator operators_of_{family}[];")
        lines.append(f"extern const size_t count_of_{family};")
    lines += ["", "std::vector<ArrayRef<Operator>> all_operators() {", "  return {"]
    lines += [f"      {{operators_of_{family}, count_of_{family}}}," for family in families]
    lines += ["  };", "}", "", "}  // namespace mica::program", ""]
    return "\n".join(lines)


def full_name(text: str) -> str:
    return text.partition("(")[0]


def operators(ops: list[Op], names: dict):
    """(operation, schema's text, call) of everything that a file may name."""
    also = set(names["also"])
    for op in ops:
        if op.kind != "declared":
            yield from ((op, text, body) for text, body in with_aliases(op) if op.python or full_name(text) in also)
    for op in only_aten(ops):
        yield from ((op, *form) for form in with_aliases(op))


def python_names(names: dict) -> str:
    """The overloads' names as targets of nodes, for Python's reader and writer."""

    def target(name: str) -> str:
        return f"aten.{name}" if "." in name else f"aten.{name}.default"

    lines = ['"""Overloads that torch has under another name. Generated from ops/modes/archives.toml."""', ""]
    lines += ["OVERLOADS = {"]
    lines += [f'    "{target(ours)}": "{target(theirs)}",' for ours, theirs in names["overloads"].items()]
    return "\n".join([*lines, "}", ""])


def generate(ops: list[Op]) -> dict[str, str]:
    names = tomllib.loads((Path(__file__).parent.parent / "ops" / "modes" / "archives.toml").read_text())
    families: dict[str, dict[str, str]] = {}
    layers: dict[str, bool] = {}
    for op, text, body in operators(ops, names):
        if body is None or not returns_known(text):
            continue
        layers[op.family] = op.is_layer
        rows = families.setdefault(op.family, {})
        rows.setdefault(text, body)
        if theirs := (names["overloads"] | names["names"]).get(full_name(text)):
            rows.setdefault(theirs + text.removeprefix(full_name(text)), body)
    files = {f"program/{name}.cpp": source(name, sorted(rows.items()), layers[name]) for name, rows in families.items()}
    files["program/all_operators.cpp"] = table(list(families))
    files["package/_generated/archive_names.py"] = python_names(names)
    return files
