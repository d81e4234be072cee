"""The operation table in memory: TOML entries parsed into Op objects.

Everything that is generated for operations is a function of these objects. The tables of ops/optim/ and ops/nn/ are
read by optimizers.py and module_table.py.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from schema import Schema, TableError, parse_schema

KINDS = ("pointwise", "native", "view", "composite", "inplace", "declared")
FORMS = ("function", "method", "inplace", "inplace_function", "out")
PROMOTIONS = (
    "arithmetic",  # inputs meet in their common dtype, which is the result's
    "float",  # as arithmetic, but integers and bool become the default float
    "compare",  # inputs meet in their common dtype, the result is bool
    "real",  # as arithmetic; a complex result is its real counterpart (abs, angle)
    "float_real",  # as float; a complex result is its real counterpart
    "none",  # every input keeps its dtype; the `result_dtype` expression says what comes out
)

COPIES = (
    "asked",  # a call of it asks for a copy, except a call of its in-place form
    "reshape",  # it shows the elements in another shape, and copies where strides allow no view
)

# The message about an out= whose dtype is not the result's. {result} and {given} are the names of the two dtypes as
# Tensor.type() has them, {c10 result} and {c10 given} those of C++.
OUT_DTYPES = {
    # Operations that torch declares with their meta function: out= has the result's dtype.
    "structured": {"exact": "Expected out tensor to have dtype {c10 result}, but got {c10 given} instead"},
    # The result is converted to any dtype.
    "any": {"any": ""},
}


# -------------------------------------------------------------------------------------------------- layouts
LAYOUTS = ("sparse", "quantized")


@dataclass
class LayoutEntry:
    """What ops/layouts/<layout>.toml says of one overload: which function of src/layouts/<layout>/ serves it."""

    implementation: str
    inplace: str = ""  # a function that changes self; else the result of `implementation` is written into it
    composite: bool = False  # made of operations that record their own derivatives
    grad: dict[str, str] = field(default_factory=dict)  # where it differs from the dense operation's


# -------------------------------------------------------------------------------------------------- entries
@dataclass
class Op:
    """One entry of ops/*.toml or ops/layers/*.toml."""

    family: str
    name: str
    schemas: list[Schema]
    kind: str
    forms: list[str]
    promotion: str = "none"
    result_dtype: str = ""
    kernel: str = ""
    check: str = ""
    implementation: str = ""
    grad: dict[str, str] = field(default_factory=dict)
    differentiable: bool = True
    node_name: str = ""
    output_differentiability: list[bool] | None = None
    namespace: str = ""
    sharding: str = ""  # how spread tensors go through it, in the words of docs/sharding.md; pointwise ones need none
    copies: str = ""  # one of COPIES: what inspect.copies() says of the copies that it makes
    out_dtype: dict[str, str] = field(
        default_factory=dict
    )  # which dtypes out= may have: exact, castable or any -> words
    changes_geometry: bool = False  # an in-place operation that changes sizes and strides, and no element
    writes_out: bool = False  # a composite whose out= form is a function of its own, and no copy of the result
    writes_self: bool = False  # the same of its in-place form
    python: bool = True
    python_name: str = ""
    python_schemas: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    doc: str = ""
    samples: list[str] = field(default_factory=list)
    place: int = 0  # among the entries of one name, which each have overloads of it
    first_node: int = 0  # the number of its first node class: SumBackward0, SumBackward1
    # Operations of layers have headers and a kernel table of their own, one header per family, so that they can grow
    # without compiling the engine again.
    is_layer: bool = False
    includes: list[str] = field(default_factory=list)  # headers that the family's entries and derivatives need
    autocast: dict[str, str] = field(default_factory=dict)  # type of device -> lower, float32 or widest
    dispatch: dict[str, str] = field(default_factory=dict)  # overload -> how a dispatch mode meets it, where listed
    dispatch_overloads: dict[str, str] = field(default_factory=dict)  # overload -> the overload that a mode sees
    dispatch_handed: dict[str, str] = field(default_factory=dict)  # overload -> the call that a mode is handed
    takes: list[str] = field(default_factory=list)  # layouts that the whole family is made for
    layouts: dict[str, dict[str, LayoutEntry]] = field(default_factory=dict)  # overload -> layout -> its entry
    name_rules: dict[str, str] = field(default_factory=dict)  # overload -> the names of its result

    @cached_property
    def schema(self) -> Schema:
        return self.schemas[0]

    def layouts_of(self, schema: Schema) -> dict[str, LayoutEntry]:
        return self.layouts.get(schema.full_name, {})

    def operand_numbers(self) -> set[str]:
        """Arguments that are a tensor in one overload and a number in another: they are operands in both."""
        kinds: dict[str, set[str]] = {}
        for schema in self.schemas:
            for a in schema.arguments:
                kinds.setdefault(a.name, set()).add(a.type.base)
        return {n for n, k in kinds.items() if "Tensor" in k and "Scalar" in k}

    def has(self, form: str) -> bool:
        return form in self.forms

    def node_class(self, schema: Schema) -> str:
        index = self.schemas.index(schema)
        base = self.node_name or camel(self.schema.name) + "Backward"
        return f"{base}{self.first_node + index}"

    @property
    def rebase(self) -> str:
        """The function that puts the in-place form into the history of its tensor."""
        return "rebase_geometry" if self.changes_geometry else "rebase_history"

    @property
    def unique_number(self) -> str:
        """A number that is put behind a name of this entry, so that no other entry with its name has the same. The first
        has none."""
        return str(self.place or "")

    def node_label(self, schema: Schema) -> str:
        """The name that x.grad_fn shows, which is torch's: see TORCH_NODE_NUMBERS."""
        node = self.node_class(schema)
        full_name = f"{schema.name}.{schema.overload}" if schema.overload else schema.name
        number = TORCH_NODE_NUMBERS.get(full_name)
        return node if number is None else f"{node.rstrip('0123456789')}{number}"


# torch numbers the nodes of one name in the order of its own table. Where that differs from the order here, the number
# is given. Its Python makes numbers tensors in sums and products, so that x * 2 has the node of x * y.
TORCH_NODE_NUMBERS = {
    "add.Scalar": 0,
    "sub.Scalar": 0,
    "mul.Scalar": 0,
    "div.Scalar": 0,
    "div.Scalar_mode": 2,
    "div.Tensor_mode": 2,
    "rsub.Scalar": 1,
    "fill_.Scalar": 2,
    "fill_.Tensor": 3,
    "copy_": "",
    "where.ScalarSelf": 0,
    "where.ScalarOther": 0,
    "max.dim": 0,
    "max": 1,
    "min.dim": 0,
    "min": 1,
    "t": 0,
    "t_": 1,
    "as_strided": 0,
    "as_strided_": 1,
    "transpose.int": 0,
    "transpose_": 1,
    "unsqueeze": 0,
    "unsqueeze_": 1,
    "squeeze": 0,
    "squeeze.dim": 1,
    "squeeze.dims": 2,
    "squeeze_": 3,
    "squeeze_.dim": 4,
    "squeeze_.dims": 5,
    "clamp_.Tensor": 0,
    "clamp_": 1,
    "hardtanh": 0,
    "relu6": 0,
    "selu": 0,
    "_linear": 0,
    "_cross_entropy": 0,
}


def camel(name: str) -> str:
    return "".join(part.title() for part in name.strip("_").split("_"))  # a letter after a digit too: Log1P


KNOWN_KEYS = {
    "schema", "schemas", "kind", "forms", "promotion", "result_dtype", "kernel", "check",
    "implementation", "copies", "out_dtype", "changes_geometry", "writes_out", "writes_self", "sharding", "grad", "differentiable", "node_name", "output_differentiability", "namespace", "python",
    "python_name", "python_schemas", "aliases", "doc", "samples",
}  # fmt: skip


def read_entry(family: str, entry: dict) -> Op:
    text = entry.get("schema") or (entry.get("schemas") or ["?"])[0]
    where = f"ops/{family}.toml: {text.split('(')[0]}"
    unknown = set(entry) - KNOWN_KEYS
    if unknown:
        raise TableError(f"{where}: unknown keys {sorted(unknown)}; known are {sorted(KNOWN_KEYS)}")
    try:
        schemas = [parse_schema(s) for s in entry.get("schemas", [entry["schema"]] if "schema" in entry else [])]
    except TableError as e:
        raise TableError(f"{where}: {e}") from None
    if not schemas:
        raise TableError(f"{where}: an entry needs `schema` or `schemas`")
    kind = entry.get("kind", "composite")
    if kind not in KINDS:
        raise TableError(f"{where}: kind {kind!r} is not one of {KINDS}")
    forms = entry.get("forms", "function").split()
    for f in forms:
        if f not in FORMS:
            raise TableError(f"{where}: form {f!r} is not one of {FORMS}")
    promotion = entry.get("promotion", "none")
    if promotion not in PROMOTIONS:
        raise TableError(f"{where}: promotion {promotion!r} is not one of {PROMOTIONS}")
    if entry.get("copies", "asked") not in COPIES:
        raise TableError(f"{where}: copies {entry['copies']!r} is not one of {COPIES}")
    rule = entry.get("out_dtype", {})
    rule = OUT_DTYPES.get(rule, {"": rule}) if isinstance(rule, str) else rule
    if rule and (len(rule) != 1 or not set(rule) <= {"exact", "castable", "any"}):
        raise TableError(f"{where}: out_dtype is one of {sorted(OUT_DTYPES)}, or words under exact or castable: {rule}")
    if entry.get("writes_out") and not (kind == "composite" and "out" in forms):
        raise TableError(f"{where}: writes_out is for composites with the form out; others write into out= anyway")
    if entry.get("writes_self") and not (kind == "composite" and {"inplace", "inplace_function"} & set(forms)):
        raise TableError(f"{where}: writes_self is for composites with an in-place form; others change self anyway")
    grad = entry.get("grad", {})
    if grad and entry.get("writes_self"):
        raise TableError(f"{where}: writes_self is for composites whose parts record their derivatives")
    differentiable = entry.get("differentiable", True)
    if kind in ("pointwise", "native", "view", "inplace") and not grad and differentiable:
        raise TableError(f"{where}: give `grad` or say `differentiable = false`")
    for key in grad:
        for name in key.split(","):
            if not any(s.has_argument(name.strip()) for s in schemas):
                raise TableError(f"{where}: grad.{name} is not an argument")
    known = {
        k: entry[k]
        for k in KNOWN_KEYS & set(entry)
        if k not in ("schema", "schemas", "kind", "forms", "grad", "out_dtype")
    }
    op = Op(
        family=family, name=schemas[0].name, schemas=schemas, kind=kind, forms=forms, grad=grad, out_dtype=rule, **known
    )
    op.kernel = op.kernel or op.name
    op.implementation = op.implementation or op.name
    return op


def read_tables(folder: Path):
    """(path, whether it is a family of layers, contents) of every file of the table: the engine's, then the layers'."""
    for path in [*sorted(folder.glob("*.toml")), *sorted(folder.glob("layers/*.toml"))]:
        try:
            yield path, path.parent.name == "layers", tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as e:
            raise TableError(f"{path.name}: {e}") from None


def autocast_policies(folder: Path) -> dict[str, dict[str, str]]:
    """name of an operation -> type of device -> how autocast treats it."""
    policies: dict[str, dict[str, str]] = {}
    for device, lists in tomllib.loads((folder / "modes" / "autocast.toml").read_text()).items():
        for policy, names in lists.items():
            for name in names:
                policies.setdefault(name, {})[device] = policy
    return policies


def dispatch_table(folder: Path) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """overload -> how a dispatch mode meets it; overload -> the overload, or the call, that it is to the mode."""
    table = tomllib.loads((folder / "modes" / "dispatch.toml").read_text())
    overloads, handed = table.pop("overloads"), table.pop("handed")
    ways: dict[str, str] = {}
    for way, names in table.items():
        for name in names:
            if name in ways:
                raise TableError(f"ops/modes/dispatch.toml: {name} is both {ways[name]} and {way}")
            ways[name] = way
    return ways, overloads, handed


def layout_tables(folder: Path) -> dict[str, dict[str, LayoutEntry]]:
    """overload -> layout -> what the layout's table says of it."""
    found: dict[str, dict[str, LayoutEntry]] = {}
    for layout in LAYOUTS:
        for entry in tomllib.loads((folder / "layouts" / f"{layout}.toml").read_text()).get("op", []):
            name = entry.pop("schema")
            implementation = entry.pop("implementation", name.replace(".", "_"))
            if unknown := set(entry) - {"inplace", "composite", "grad"}:
                raise TableError(f"ops/layouts/{layout}.toml: {name}: unknown keys {sorted(unknown)}")
            found.setdefault(name, {})[layout] = LayoutEntry(implementation, **entry)
    return found


def load(folder: Path) -> list[Op]:
    ops: list[Op] = []
    policies = autocast_policies(folder)
    layouts = layout_tables(folder)
    dispatch, dispatch_overloads, dispatch_handed = dispatch_table(folder)
    name_rules = tomllib.loads((folder / "layouts" / "named.toml").read_text())["rules"]
    for path, is_layer, table in read_tables(folder):
        for entry in table.get("op", []):
            op = read_entry(path.stem, entry)
            op.is_layer = is_layer
            op.includes = table.get("includes", [])
            op.autocast = policies.get(op.name, {})
            op.takes = table.get("takes", [])
            if is_layer and op.has("inplace") and not op.takes:
                raise TableError(f"ops/layers/{path.name}: {op.name}: layers have no in-place forms")
            for schema in op.schemas if op.kind != "declared" else ():
                if schema.full_name in dispatch:
                    op.dispatch[schema.full_name] = dispatch[schema.full_name]
                if schema.full_name in dispatch_overloads:
                    op.dispatch_overloads[schema.full_name] = dispatch_overloads[schema.full_name]
                if schema.full_name in dispatch_handed:
                    op.dispatch_handed[schema.full_name] = dispatch_handed[schema.full_name]
                if schema.full_name in layouts:
                    op.layouts[schema.full_name] = layouts[schema.full_name]
                if schema.full_name in name_rules:
                    op.name_rules[schema.full_name] = name_rules[schema.full_name]
            ops.append(op)
    known = {s.full_name for op in ops for s in op.schemas}
    for folder_name, names in (
        ("layouts", [*layouts, *name_rules]),
        ("modes", [*dispatch, *dispatch_overloads, *dispatch_handed]),
    ):
        for name in names:
            if name not in known:
                raise TableError(f"ops/{folder_name}/: {name} is no overload of an operation")
    check_unique(ops)
    number_nodes(ops)
    names: dict[str, int] = {}
    for op in ops:
        op.place = names.get(op.name, 0)
        names[op.name] = op.place + 1
    return ops


def check_unique(ops: list[Op]) -> None:
    owners: dict[str, str] = {}
    for op in ops:
        for schema in op.schemas if op.kind != "declared" else ():  # a declared one is another Python name
            owner = owners.setdefault(schema.text, op.family) if op.kind != "declared" else op.family
            if owner != op.family:
                raise TableError(f"{schema.text!r} is in both {owner}.toml and {op.family}.toml")


def number_nodes(ops: list[Op]) -> None:
    """Overloads of one name get consecutive node classes: SumBackward0, SumBackward1."""
    seen: dict[str, int] = {}
    for op in ops:
        base = op.node_name or camel(op.schema.name) + "Backward"
        op.first_node = seen.get(base, 0)
        if op.grad:
            seen[base] = seen.get(base, 0) + len(op.schemas)
