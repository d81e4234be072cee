"""The Python side of the table: one CPython entry per Python name, for the function and the method alike.

An entry lists its signatures as text, picks the one that fits, converts the arguments and calls the engine:

    // add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
    static PyObject* add(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try { ... }

Signatures are ordered and worded as torch's, so that the same call means the same and fails with the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cpp import is_factory, is_inplace_schema, output_names, wants_inplace, wants_out
from model import Argument, Op, Schema, TableError, Type, parse_schema

BANNER = "// Generated from ops/{folder}{family}.toml: the Python entries of its operations.\n"

# Functions in which a number may stand for any tensor, as in torch.add(2, x).
NUMBERS_ALLOWED = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "rsub"}
# Overloads for a number that torch does not mention in its messages, and those that torch does not have.
UNMENTIONED = {"add", "sub", "mul", "div", "subtract", "multiply", "divide", "true_divide", "floor_divide"}
BEYOND_TORCH = {"reshape.copy"}

# Positional forms of old that torch still takes, with a warning: the coefficients before the tensors.
DEPRECATED = {
    "add": ["Tensor self, Scalar alpha, Tensor other"],
    "sub": ["Tensor self, Scalar alpha, Tensor other"],
    "addcmul": ["Tensor self, Scalar value, Tensor tensor1, Tensor tensor2"],
    "addcdiv": ["Tensor self, Scalar value, Tensor tensor1, Tensor tensor2"],
} | {
    name: [f"Scalar beta, Tensor self, Scalar alpha, {rest}", f"Scalar beta, Tensor self, {rest}"]
    for name, rest in {
        "addmm": "Tensor mat1, Tensor mat2",
        "addmv": "Tensor mat, Tensor vec",
        "addr": "Tensor vec1, Tensor vec2",
        "addbmm": "Tensor batch1, Tensor batch2",
        "baddbmm": "Tensor batch1, Tensor batch2",
    }.items()
}

RESERVED = {"default", "register", "signed", "unsigned", "int", "float", "double", "bool", "char", "long", "short",
            "new", "delete", "template", "this", "class", "a"}  # fmt: skip


# ------------------------------------------------------------------------------------------------ overloads
@dataclass
class Overload:
    """One way to call a Python name."""

    op: Op
    schema: Schema  # of the C++ function
    arguments: list[Argument]  # as Python has them
    function: bool
    method: bool
    in_place: bool = False  # calls name_(), returns self
    out: bool = False
    deprecated: bool = False

    @property
    def hidden(self) -> bool:
        if self.schema.full_name in BEYOND_TORCH:
            return True
        return self.schema.overload == "Scalar" and self.schema.name.rstrip("_") in UNMENTIONED

    @property
    def flags(self) -> str:
        text = {(True, True): "kBoth", (True, False): "kFunction", (False, True): "kMethod"}[self.function, self.method]
        if self.deprecated:
            text += " | kDeprecated"
        elif self.hidden:
            text += " | kHidden"
        elif self.schema.name.rstrip("_") in NUMBERS_ALLOWED:
            text += " | kNumbers"
        return text

    def signature(self) -> str:
        parts, keyword_only = [], False
        arguments = self.arguments + ([out_argument(self.schema)] if self.out else [])
        # torch puts out= before the options of a factory.
        arguments.sort(key=lambda a: (a.keyword_only, a.keyword_only and a.type.base == "Options"))
        self.order = {}
        index = 0
        for a in arguments:
            if a.keyword_only and not keyword_only:
                parts.append("*")
                keyword_only = True
            self.order[a.name] = index
            if a.type.base == "Options":
                parts.append(
                    "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=False, "
                    "bool? requires_grad=False"
                )
                index += 5
            else:
                default = "" if a.default is None else f"={a.default}"
                parts.append(f"{type_text(a.type)} {a.name}{default}")
                index += 1
        return ", ".join(parts)

    def index(self, name: str) -> int:
        return self.order[name]


def type_text(t: Type) -> str:
    base = "int" if t.base == "SymInt" else t.base
    if not t.is_list:
        return base + ("?" if t.optional else "")
    inner = base + ("?" if t.element_optional else "")
    return f"{inner}[{t.list_size or ''}]" + ("?" if t.optional else "")


def out_argument(schema: Schema) -> Argument:
    count = len(schema.returns)
    t = Type("Tensor") if count == 1 else Type("Tensor", is_list=True, list_size=count)
    return Argument("out", t, "None", True)


def absent_value(a: Argument) -> str | None:
    """What the C++ function gets for an argument that Python does not have: its default, or zero for a number."""
    if a.default is None and a.type.base in ("Scalar", "int", "float") and not a.type.is_list:
        return "0"
    return a.cpp_default()


def python_arguments(op: Op) -> list[tuple[Schema, list[Argument]]]:
    """Each Python signature of an operation with the C++ schema that serves it."""
    if not op.python_schemas:
        return [(s, list(s.arguments)) for s in op.schemas]
    pairs = []
    for text in op.python_schemas:
        parsed = parse_schema(text if "->" in text else text + " -> Tensor")
        # out= follows from the operation's forms, requires_grad from its being a factory.
        arguments = [a for a in parsed.arguments if a.name not in ("out", "requires_grad")]
        names = {a.name for a in arguments} - {"inplace"}
        for schema in op.schemas:
            known = {a.name for a in schema.arguments}
            rest = [a for a in schema.arguments if a.name not in names]
            if names <= known and all(absent_value(a) for a in rest):
                pairs.append((schema, arguments))
                break
        else:
            raise TableError(f"ops/{op.family}.toml: {op.name}: no schema serves the Python signature {text!r}")
    return pairs


# --------------------------------------------------------------------------------------------------- groups
@dataclass
class Group:
    """Everything that one Python name can mean."""

    space: str
    name: str
    family: str
    is_layer: bool = False
    doc: str = ""
    overloads: list[Overload] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)

    @property
    def identifier(self) -> str:
        prefix = self.space.replace(".", "_") + "_" if self.space else ""
        return f"py_{prefix}{self.name}"


def collect(ops: list[Op]) -> list[Group]:
    groups: dict[tuple[str, str], Group] = {}

    def group(op: Op, name: str, aliases: list[str]) -> Group:
        g = groups.setdefault((op.namespace, name), Group(op.namespace, name, op.family, op.is_layer))
        g.doc = g.doc or op.doc.strip()
        g.aliases += [a for a in aliases if a not in g.aliases]
        return g

    for op in ops:
        if not op.python:
            continue
        base = op.python_name or op.name
        for schema, arguments in python_arguments(op):
            if op.kind == "inplace" or is_inplace_schema(schema):
                g = group(op, base, op.aliases)
                g.overloads.append(Overload(op, schema, arguments, op.has("function"), op.has("method"), in_place=True))
                continue
            if op.has("function") or op.has("method"):
                method = op.has("method") and any(a.name == "self" and a.type.is_tensor for a in arguments)
                g = group(op, base, op.aliases)
                out = wants_out(op, schema) and op.has("function")
                g.overloads.append(Overload(op, schema, arguments, op.has("function"), method, out=out))
            if wants_inplace(op, schema):
                g = group(op, base + "_", [a + "_" for a in op.aliases])
                function = op.has("inplace_function")
                g.overloads.append(Overload(op, schema, arguments, function, op.has("inplace"), in_place=True))
    for g in groups.values():
        g.overloads = in_torch_order(g.overloads + deprecated_overloads(g))
    return list(groups.values())


def deprecated_overloads(group: Group) -> list[Overload]:
    found = []
    for text in DEPRECATED.get(group.name.rstrip("_"), []) if not group.space else []:
        arguments = list(parse_schema(f"{group.name}({text}) -> Tensor").arguments)
        names = {a.name for a in arguments}
        for o in group.overloads:
            known = {a.name: a.type for a in o.schema.arguments}
            if names <= set(known) and all(known[a.name].base == a.type.base for a in arguments):
                found.append(replace(o, arguments=arguments, deprecated=True))
                break
    return found


def is_narrower(a: Type, b: Type) -> bool:
    """Whether an argument of type a fits where b is tried first."""
    x, y = type_text(a), type_text(b)
    return (
        (x == "Scalar" and y == "Tensor")
        or (x == "Scalar?" and y == "Tensor?")
        or (x == "int[]" and y in ("int", "int?"))
        or (x == "Tensor[]" and y.endswith("[]"))
        or (x == "int" and y == "Tensor")
    )


def in_torch_order(overloads: list[Overload]) -> list[Overload]:
    """Overloads in the order in which torch tries them: alphabetical, but a tensor before a number."""

    def key(o: Overload) -> str:
        names = {"int": "int64_t", "float": "double", "str": "c10::string_view"}
        list_names = {"int": "IntArrayRef", "SymInt": "SymIntArrayRef", "Tensor": "TensorList", "Scalar": "ScalarList"}
        text = []
        for a in o.arguments:
            if a.type.is_list:
                word = list_names.get(a.type.base, a.type.base) + (f"[{a.type.list_size}]" if a.type.list_size else "")
            else:
                word = names.get(a.type.base, a.type.base)
            word += "?" if a.type.optional else ""
            text.append(("*, " if a.keyword_only else "") + f"{word} {a.name}" + (f"={a.default}" if a.default else ""))
        return ", ".join(text)

    def after(a: Overload, b: Overload) -> bool:
        if len(a.arguments) != len(b.arguments):
            return False
        pairs = [(x.type, y.type) for x, y in zip(a.arguments, b.arguments, strict=True)]
        differ = any(type_text(x) != type_text(y) for x, y in pairs)
        return differ and all(type_text(x) == type_text(y) or is_narrower(x, y) for x, y in pairs)

    overloads = sorted(overloads, key=key)
    before = [{j for j, other in enumerate(overloads) if after(o, other)} for o in overloads]
    ready = [i for i, others in enumerate(before) if not others]
    for done in ready:
        for i, others in enumerate(before):
            if done in others:
                others.remove(done)
                if not others:
                    ready.append(i)
    ordered = [overloads[i] for i in ready]
    if len(ordered) < len(overloads):
        raise TableError(f"{overloads[0].schema.text}: overloads cannot be ordered")
    # What torch does not mention comes last, deprecated forms after all.
    ordered.sort(key=lambda o: (o.deprecated, o.hidden))
    return ordered


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
    lines = [BANNER.format(folder="layers/" if is_layer else "", family=family), '#include "entry.h"']
    if is_layer:
        lines.append(f'#include "mica/generated/layers/{family}.h"')
    lines += ["", "namespace mica::python {", ""]
    for g in groups:
        lines += entry(g)
    lines.append("static Entry entries[] = {")
    for g in groups:
        lines += rows(g)
    lines.append("};")
    types = [line.split()[3].split("{")[0] for g in groups for line in named_type_lines(g)]
    if types:
        lines.append("static ReturnType* const return_types[] = {" + ", ".join("&" + t for t in types) + "};")
        pair = "return_types, std::size(return_types)"
    else:
        pair = "nullptr, 0"
    lines += [
        "",
        f"extern const Family kFamily_{family};",
        f"const Family kFamily_{family}{{entries, std::size(entries), {pair}}};",
        "",
        "}  // namespace mica::python",
        "",
    ]
    return "\n".join(lines)


def named_type_lines(group: Group) -> list[str]:
    has_named = any(is_named(o.schema) for o in group.overloads if not o.in_place)
    return return_types(group) if has_named else []


def registry_source(families: list[str]) -> str:
    lines = ["// Generated from ops/*.toml: the families of entries.\n", '#include "entry.h"', "",
             "namespace mica::python {", ""]  # fmt: skip
    lines += [f"extern const Family kFamily_{f};" for f in families]
    lines += ["", "const Family* const kFamilies[] = {"]
    lines += [f"    &kFamily_{f}," for f in families]
    lines += ["};", "const size_t kNumFamilies = std::size(kFamilies);", "", "}  // namespace mica::python", ""]
    return "\n".join(lines)


def generate(ops: list[Op]) -> dict[str, str]:
    """relative path -> text"""
    families: dict[str, list[Group]] = {}
    for g in collect(ops):
        families.setdefault(g.family, []).append(g)
    files = {f"python/functions_{f}.cpp": family_source(f, groups) for f, groups in families.items()}
    files["python/registry.cpp"] = registry_source(list(families))
    return files
