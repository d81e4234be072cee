"""Everything that a Python name can mean: the overloads of an operation as Python has them, in torch's order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cpp import is_inplace_schema, wants_inplace, wants_out
from model import Op
from schema import Argument, Schema, TableError, Type, parse_schema

# Functions in which a number may stand for any tensor, as in torch.add(2, x).
NUMBERS_ALLOWED = {
    "add",
    "sub",
    "subtract",
    "mul",
    "multiply",
    "div",
    "divide",
    "true_divide",
    "floor_divide",
    "rsub",
    "copy",
}
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
    """Whether type a has to be tried before type b, because b would take some of its arguments too."""
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
    # Overloads that torch does not mention come behind the others, and deprecated forms come last.
    ordered.sort(key=lambda o: (o.deprecated, o.hidden))
    return ordered
