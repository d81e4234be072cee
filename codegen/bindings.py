"""The Python side of the table: one CPython entry per Python name, for the function and the method alike.

An entry lists its signatures as text, picks the one that fits, converts the arguments and calls the engine:

    // add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
    static PyObject* add(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try { ... }

Signatures are ordered and worded as torch's, so that the same call means the same and fails with the same words.
"""

from __future__ import annotations

from aten import only_aten
from cpp import is_factory, output_names
from model import Op
from overloads import Group, Overload, absent_value, collect
from schema import Argument, Schema

BANNER = "// Generated from ops/{folder}{family}.toml: the Python entries of its operations.\n"

RESERVED = {"default", "register", "signed", "unsigned", "int", "float", "double", "bool", "char", "long", "short",
            "new", "delete", "template", "this", "class", "a"}  # fmt: skip


# --------------------------------------------------------------------------------------------------- bodies
SCALAR_ACCESSORS = {
    "Scalar": "scalar", "int": "integer", "SymInt": "integer", "float": "number", "bool": "flag", "str": "text",
    "ScalarType": "dtype", "Layout": "layout", "Device": "device", "MemoryFormat": "memory_format",
    "Generator": "generator",
}  # fmt: skip
LIST_ACCESSORS = {"int": "ints", "SymInt": "ints", "float": "numbers", "bool": "flags", "Scalar": "scalars",
                  "Tensor": "tensors"}  # fmt: skip


def local_name(name: str) -> str:
    return name + "_" if name in RESERVED else name


def declaration(a: Argument, index: int, quantized: bool = False) -> str:
    name, t = local_name(a.name), a.type
    if t.is_tensor:
        return f"const Tensor& {name} = a.tensor({index});"
    if t.base == "Options":
        return f"const TensorOptions {name} = a.options({index});"
    if t.is_list:
        accessor = LIST_ACCESSORS[t.base]
        if t.optional and accessor == "ints":
            accessor = "optional_ints"
    else:
        accessor = SCALAR_ACCESSORS[t.base]
        if quantized and accessor == "dtype":
            accessor = "any_dtype"
        if t.optional:
            accessor = "optional_" + accessor
    return f"const auto {name} = a.{accessor}({index});"


def passed(a: Argument, index: int | None) -> str:
    """The argument as the C++ call takes it."""
    name = local_name(a.name)
    if index is None:
        return absent_value(a)
    if a.type.is_list and a.type.optional and a.type.base not in ("int", "SymInt", "Tensor"):
        return f"a.has({index}) ? {a.type.cpp_argument()}({name}) : std::nullopt"
    return name


def return_type_name(group: Group, out: bool = False) -> str:
    return f"{group.identifier}_{'out_' if out else ''}result"


def is_named(schema: Schema) -> bool:
    return (
        len(schema.returns) > 1
        and all(r.name for r in schema.returns)
        and all(r.type.is_tensor for r in schema.returns)
    )


def body(group: Group, o: Overload, number: int) -> list[str]:
    schema = o.schema
    by_name = {a.name: a for a in o.arguments}
    lines = [f"    case {number}: {{  // {schema.text}"]
    for a in o.arguments:
        if a.name != "inplace" or schema.has_argument("inplace"):
            lines.append("      " + declaration(typed_as(schema, a), o.index(a.name), "quantized" in o.op.takes))
    values = [passed(a, o.index(a.name) if a.name in by_name else None) for a in schema.arguments]
    call_arguments = ", ".join(values)
    name = schema.name
    if o.in_place:
        target = name if name.endswith("_") else name + "_"
        index = o.index(schema.arguments[0].name)
        lines.append(f"      MICA_RETURN_ARGUMENT({index}, mica::{target}({call_arguments}));")
        return [*lines, "    }"]
    if "inplace" in by_name and not schema.has_argument("inplace"):
        index = o.index(o.arguments[0].name)
        lines.append(
            f"      if (a.flag({o.index('inplace')})) MICA_RETURN_ARGUMENT({index}, mica::{name}_({call_arguments}));"
        )
    if o.out:
        given = [v for v, a in zip(values, schema.arguments, strict=True) if a.type.base != "Options"]
        lines += out_call(group, o, ", ".join(given))
    lines.append("      " + plain_return(group, o, f"mica::{name}({call_arguments})"))
    return [*lines, "    }"]


def typed_as(schema: Schema, a: Argument) -> Argument:
    """A Python argument with the optionality that the C++ function gives it."""
    if not schema.has_argument(a.name):
        return a
    t = schema.argument(a.name).type
    return Argument(a.name, t, a.default, a.keyword_only)


def out_call(group: Group, o: Overload, call_arguments: str) -> list[str]:
    schema, index = o.schema, o.index("out")
    rest = f", {call_arguments}" if call_arguments else ""
    if len(schema.returns) == 1:
        call = f"mica::{schema.name}_out(a.tensor({index}){rest})"
        if is_factory(schema):
            call = f"fill_out(a.tensor({index}), options, [&] {{ {call}; }})"
        return [f"      if (a.has({index})) MICA_RETURN_ARGUMENT({index}, {call});"]
    outs = ", ".join(f"a.out({index}, {i})" for i in range(len(output_names(schema))))
    call = f"mica::{schema.name}_out({outs}{rest})"
    if is_named(schema):
        return [f"      if (a.has({index})) MICA_RETURN_NAMED({return_type_name(group, True)}, {call});"]
    return [f"      if (a.has({index})) MICA_RETURN({call});"]


def plain_return(group: Group, o: Overload, call: str) -> str:
    schema = o.schema
    if not schema.returns:
        return f"MICA_RETURN_NONE({call});"
    if is_named(schema):
        return f"MICA_RETURN_NAMED({return_type_name(group)}, {call});"
    options = [a for a in schema.arguments if a.type.base == "Options"]
    if options and schema.returns[0].type.is_tensor:
        sizes = [a for a in o.arguments if a.name == "size" and a.type.is_list]
        count = f"count_of({local_name(sizes[0].name)})" if sizes else "0"
        return f"MICA_RETURN_NEW({count}, {local_name(options[0].name)}, {call});"
    return f"MICA_RETURN({call});"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def entry(group: Group) -> list[str]:
    """The C++ function of a group, and one more for each alias."""
    lines = []
    if any(is_named(o.schema) for o in group.overloads if not o.in_place):
        lines += return_types(group)
    names = [group.name, *group.aliases]
    texts = ["static constexpr SignatureText " + f"{group.identifier}_texts[] = {{"]
    for o in group.overloads:
        texts.append(f"    {{{o.flags}, {quoted(o.signature())}}},")
    lines += [*texts, "};"]
    parameters = "PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames"
    space = f', "{group.space}"' if group.space else ""
    if group.aliases:
        lines.append(f"static PyObject* {group.identifier}_call(Parser& parser, {parameters}) try {{")
    else:
        lines.append(f"static PyObject* {group.identifier}({parameters}) try {{")
        lines.append(f'  static constinit Parser parser("{group.name}", {group.identifier}_texts{space});')
    lines += ["  Arguments a;", "  switch (parser.parse(a, self, args, nargs, kwnames)) {"]
    for i, o in enumerate(group.overloads):
        lines += body(group, o, i)
    lines += ["    default: return a.result;", "  }", "} catch (...) {", "  return raise_current_exception();", "}"]
    for name in names if group.aliases else []:
        function = group.identifier if name == group.name else f"{group.identifier}_as_{name}"
        lines += [
            f"static PyObject* {function}({parameters}) {{",
            f'  static constinit Parser parser("{name}", {group.identifier}_texts{space});',
            f"  return {group.identifier}_call(parser, self, args, nargs, kwnames);",
            "}",
        ]
    return [*lines, ""]


def return_types(group: Group) -> list[str]:
    named = [o for o in group.overloads if is_named(o.schema)]
    fields = ", ".join(f'"{r.name}"' for r in named[0].schema.returns)
    name = f"{group.space}_{group.name}" if group.space else group.name
    lines = [f'static constinit ReturnType {return_type_name(group)}{{"{name}", {{{fields}}}}};']
    if any(o.out for o in named):
        lines.append(f'static constinit ReturnType {return_type_name(group, True)}{{"{name}_out", {{{fields}}}}};')
    return lines


def rows(group: Group) -> list[str]:
    forms = {(True, True): "kBoth", (True, False): "kFunction", (False, True): "kMethod"}[
        any(o.function for o in group.overloads), any(o.method for o in group.overloads)
    ]
    lines = []
    for name in [group.name, *group.aliases]:
        function = group.identifier if name == group.name else f"{group.identifier}_as_{name}"
        doc = quoted(group.doc) if group.doc else "nullptr"
        lines.append(f'    {{{{"{name}", as_cfunction({function}), kEntryFlags, {doc}}}, "{group.space}", {forms}}},')
    return lines


def family_source(family: str, groups: list[Group]) -> str:
    is_layer = groups[0].is_layer
    lines = [BANNER.format(folder="layers/" if is_layer else "", family=family), '#include "operations/entry.h"']
    if is_layer:
        lines.append(f'#include "mica/generated/layers/{family}.h"')
    lines += ["", "namespace mica::python {", ""]
    for g in groups:
        lines += entry(g)
    entries, return_types = f"entries_of_{family}", f"return_types_of_{family}"
    lines.append(f"static Entry {entries}[] = {{")
    for g in groups:
        lines += rows(g)
    lines.append("};")
    types = [line.split()[3].split("{")[0] for g in groups for line in named_type_lines(g)]
    if types:
        lines.append(f"static ReturnType* const {return_types}[] = {{" + ", ".join("&" + t for t in types) + "};")
        pair = f"{return_types}, std::size({return_types})"
    else:
        pair = "nullptr, 0"
    lines += [
        "",
        f"extern const Family kFamily_{family};",
        f"const Family kFamily_{family}{{{entries}, std::size({entries}), {pair}}};",
        "",
        "}  // namespace mica::python",
        "",
    ]
    return "\n".join(lines)


def named_type_lines(group: Group) -> list[str]:
    has_named = any(is_named(o.schema) for o in group.overloads if not o.in_place)
    return return_types(group) if has_named else []


def registry_source(families: list[str]) -> str:
    lines = ["// Generated from ops/*.toml: the families of entries.\n", '#include "operations/entry.h"', "",
             "namespace mica::python {", ""]  # fmt: skip
    lines += [f"extern const Family kFamily_{f};" for f in families]
    lines += ["", "const Family* const kFamilies[] = {"]
    lines += [f"    &kFamily_{f}," for f in families]
    lines += ["};", "const size_t kNumFamilies = std::size(kFamilies);", "", "}  // namespace mica::python", ""]
    return "\n".join(lines)


def generate(ops: list[Op]) -> dict[str, str]:
    """relative path -> text"""
    families: dict[str, list[Group]] = {}
    for g in collect([*ops, *only_aten(ops)]):
        families.setdefault(g.family, []).append(g)
    files = {f"python/functions_{f}.cpp": family_source(f, groups) for f, groups in families.items()}
    files["python/registry.cpp"] = registry_source(list(families))
    return files
