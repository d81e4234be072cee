"""The C++ declarations that follow from the table: functions, methods, the kernel table, what is written by hand."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import contracts
from model import Op
from schema import Schema


def parameters(schema: Schema, defaults: bool, skip: int = 0) -> str:
    """A parameter list; a default is dropped if a parameter without one follows."""
    texts: list[str] = []
    allowed = defaults
    for a in reversed(schema.arguments[skip:]):
        default = a.cpp_default()
        allowed = allowed and default is not None
        texts.append(f"{a.type.cpp_argument()} {a.name}" + (f" = {default}" if allowed else ""))
    return ", ".join(reversed(texts))


def names(schema: Schema, skip: int = 0) -> str:
    return ", ".join(a.name for a in schema.arguments[skip:])


def output_names(schema: Schema) -> list[str]:
    if len(schema.returns) == 1:
        return ["out"]
    return [r.name or f"out{i}" for i, r in enumerate(schema.returns)]


def is_inplace_schema(schema: Schema) -> bool:
    return bool(schema.arguments) and schema.arguments[0].type.mutable


def signature(schema: Schema, name: str, defaults: bool) -> str:
    return f"{schema.cpp_return()} {name}({parameters(schema, defaults)})"


def inplace_signature(schema: Schema, defaults: bool) -> str:
    rest = parameters(schema, defaults, skip=1)
    name = schema.name if schema.name.endswith("_") else schema.name + "_"
    return f"const Tensor& {name}(const Tensor& self{', ' + rest if rest else ''})"


def is_factory(schema: Schema) -> bool:
    return any(a.type.base == "Options" for a in schema.arguments)


def out_schema(schema: Schema) -> Schema:
    """The arguments of the out= form: a factory takes its options from the tensor that it fills."""
    return replace(schema, arguments=tuple(a for a in schema.arguments if a.type.base != "Options"))


def out_signature(schema: Schema, defaults: bool) -> str:
    outs = ", ".join(f"const Tensor& {n}" for n in output_names(schema))
    rest = parameters(out_schema(schema), defaults)
    count = len(schema.returns)
    returned = "const Tensor&" if count == 1 else f"std::tuple<{', '.join(['Tensor'] * count)}>"
    return f"{returned} {schema.name}_out({outs}{', ' + rest if rest else ''})"


def factory_signatures(schema: Schema) -> list[str]:
    """The declaration; a random factory can be called without its generator as well: randn({2, 3}, DType::Float64)."""
    generator = next((a for a in schema.arguments if a.type.base == "Generator"), None)
    if generator is None or not is_factory(schema):
        return [signature(schema, schema.name, True) + ";"]
    named = tuple(replace(a, default=None) if a is generator else a for a in schema.arguments)
    plain = replace(schema, arguments=tuple(a for a in schema.arguments if a is not generator))
    values = ", ".join("std::nullopt" if a is generator else a.name for a in schema.arguments)
    return [
        signature(replace(schema, arguments=named), schema.name, True) + ";",
        f"inline {signature(plain, schema.name, True)} {{ return {schema.name}({values}); }}",
    ]


def wants_inplace(op: Op, schema: Schema) -> bool:
    first = schema.arguments[0] if schema.arguments else None
    return (op.has("inplace") or op.has("inplace_function")) and first is not None and first.type.is_tensor


def wants_out(op: Op, schema: Schema) -> bool:
    return op.has("out") and all(r.type.is_tensor for r in schema.returns)


# ------------------------------------------------------------------------------------------------- headers
def ops_header(ops: list[Op], source: str = "ops/*.toml") -> str:
    lines = [
        f"// Generated from {source}: every operation as a free function.",
        "#pragma once",
        "",
        "#include <cmath>",
        "#include <string_view>",
        "",
        '#include "mica/tensor.h"',
        "",
        "namespace mica {",
        "",
    ]
    for op in ops:
        if op.doc:
            lines.append(f"// {op.doc.strip().splitlines()[0]}")
        for schema in op.schemas:
            if op.kind == "inplace":
                lines.append(inplace_signature(schema, True) + ";")
                continue
            lines += factory_signatures(schema)
            if wants_inplace(op, schema):
                lines.append(inplace_signature(schema, True) + ";")
            if wants_out(op, schema):
                lines.append(out_signature(schema, False) + ";")
    lines += ["", "}  // namespace mica", ""]
    return "\n".join(lines)


def method_schemas(ops: list[Op]):
    """(op, schema, method name, is in place) for every Tensor method, aliases not included."""
    for op in ops:
        for schema in op.schemas:
            first = schema.arguments[0] if schema.arguments else None
            if first is None or not first.type.is_tensor or first.name != "self":
                continue
            if op.kind == "inplace":
                if op.has("method"):
                    yield op, schema, schema.name, True
                continue
            if op.has("method"):
                yield op, schema, schema.name, False
            if op.has("inplace") and wants_inplace(op, schema):
                yield op, schema, schema.name + "_", True


def methods_include(ops: list[Op]) -> str:
    lines = ["// Generated from ops/*.toml: the operations as methods of Tensor.", "// clang-format off"]
    for _, schema, name, in_place in method_schemas(ops):
        returned = "const Tensor&" if in_place else schema.cpp_return()
        lines.append(f"  {returned} {name}({parameters(schema, True, skip=1)}) const;")
    lines.append("// clang-format on")
    return "\n".join(lines) + "\n"


def methods_source(ops: list[Op]) -> str:
    lines = [
        "// Generated from ops/*.toml: Tensor's methods forward to the free functions.",
        '#include "mica/ops.h"',
        "",
        "namespace mica {",
        "",
    ]
    for _, schema, name, in_place in method_schemas(ops):
        returned = "const Tensor&" if in_place else schema.cpp_return()
        rest = names(schema, skip=1)
        call = f"mica::{name}(*this{', ' + rest if rest else ''})"
        lines.append(f"{returned} Tensor::{name}({parameters(schema, False, skip=1)}) const {{ return {call}; }}")
    lines += ["", "}  // namespace mica", ""]
    return "\n".join(lines)


def layers_header(families: list[str]) -> str:
    lines = ["// Generated from ops/layers/*.toml: the operations of every family of layers.", "#pragma once", ""]
    lines += [f'#include "mica/generated/layers/{f}.h"' for f in families]
    return "\n".join(lines) + "\n"


def kernel_slots(ops: list[Op], kernels: list[dict]) -> dict[str, str]:
    """slot name -> parameter list."""
    slots: dict[str, str] = {}
    for k in kernels:
        slots[k["name"]] = k["arguments"]
    for op in ops:
        if op.kind != "pointwise":
            continue
        arguments = "const PointwiseLoop& loop"
        for a in kernel_parameters(op):
            arguments += f", {plain_parameter(a)} {a.name}"
        known = slots.setdefault(op.kernel, arguments)
        if known != arguments:
            raise ValueError(f"kernel {op.kernel}: {op.name} wants ({arguments}), declared as ({known})")
    return dict(sorted(slots.items()))


def plain_parameter(a) -> str:
    """Kernel parameters are plain data by value."""
    return a.type.cpp_argument().removeprefix("const ").removesuffix("&")


def kernel_parameters(op: Op):
    schema = op.schema
    operands = {a.name for a in schema.arguments if a.type.base == "Tensor"} | op.operand_numbers()
    return [a for a in schema.arguments if a.name not in operands]


def pointwise_constant(op: Op) -> str:
    """The constant that says a pointwise operation's name and promotion."""
    return "k" + "".join(p.capitalize() for p in op.name.split("_")) + op.unique_number


def kernel_table(ops: list[Op], kernels: list[dict], name: str = "Kernel", source: str = "ops/*.toml") -> str:
    slots = kernel_slots(ops, kernels)
    known = contracts.by_slot(ops, kernels)
    digest = hashlib.sha256(repr([(slot, slots[slot], known[slot].writes) for slot in slots]).encode()).hexdigest()[:16]
    lines = [
        f"// Generated from {source}: one slot per kernel with its contract, which is the same on every backend. What all",
        "// contracts have in common is in docs/backends.md. An empty slot means that the backend has no such kernel.",
        "#pragma once",
        "",
        "#include <optional>",
        "#include <string_view>",
        "",
        '#include "mica/backend/kernel_types.h"',
        "",
        "namespace mica {",
        "",
        f"inline constexpr uint64_t k{name}TableHash = 0x{digest}ull;",
        "",
        f"struct {name}Table {{",
    ]
    for slot, arguments in slots.items():
        lines += contracts.comment(known[slot])
        lines.append(f"  void (*{slot})({arguments}) = nullptr;")
    lines += ["};", ""]
    lines += contracts.slot_list(f"MICA_{name.upper().replace('LAYERKERNEL', 'LAYER_KERNEL')}_SLOTS", slots, known)
    lines += ["}  // namespace mica", ""]
    return "\n".join(lines)


def kernel_registry(engine: dict[str, str], layers: dict[str, str]) -> str:
    """Slots by name, so that a kernel file need not be compiled again when a table grows."""
    both = engine.keys() & layers.keys()
    if both:
        raise ValueError(f"kernel slots of both the engine and the layers: {sorted(both)}")
    lines = [
        "// Generated from ops/*.toml: the CPU's kernels find their slots here as the library is loaded.",
        "#include <cstddef>",
        "#include <typeinfo>",
        "",
        '#include "backends/cpu/register.h"',
        '#include "mica/backend/layer_backend.h"',
        "",
        "namespace mica {",
        "",
        "constinit KernelTable cpu_kernels;",
        "constinit LayerKernelTable cpu_layer_kernels;",
        "",
        "namespace cpu {",
        "",
        "const KernelSlot* find_kernel_slot(std::string_view name) {",
        "  static const KernelSlot slots[] = {",
    ]
    for table, slots in (("cpu_kernels", engine), ("cpu_layer_kernels", layers)):
        lines += [f'      {{"{slot}", &typeid({table}.{slot}), &{table}.{slot}}},' for slot in slots]
    lines += [
        "  };",
        "  for (const KernelSlot& s : slots)",
        "    if (s.name == name) return &s;",
        "  return nullptr;",
        "}",
        "",
        "}  // namespace cpu",
        "}  // namespace mica",
        "",
    ]
    return "\n".join(lines)


def implementations_header(ops: list[Op], source: str = "ops/*.toml") -> str:
    """Declarations of the functions that are written by hand. One whose definition is missing or differs fails to link."""
    groups: dict[str, list[str]] = {"shapes": [], "views": [], "composite": [], "inplace": [], "checks": []}
    seen = set()
    for op in ops:
        for schema in op.schemas:
            for group, text in implementation_declarations(op, schema):
                if text not in seen:
                    seen.add(text)
                    groups[group].append(text)
    lines = [
        f"// Generated from {source}: the functions that are written by hand, in src/<namespace>/.",
        "#pragma once",
        "",
        '#include "core/out.h"',
        '#include "mica/tensor.h"',
        "",
        "namespace mica {",
    ]
    for group, texts in groups.items():
        lines += ["", f"namespace {group} {{"] + texts + [f"}}  // namespace {group}"]
    lines += ["", "}  // namespace mica", ""]
    return "\n".join(lines)


def implementation_declarations(op: Op, schema: Schema):
    if op.check:
        yield "checks", f"void {op.check}({parameters(schema, False)});"
    if op.kind == "native":
        outs = ", ".join(f"Out& {n}" for n in output_names(schema))
        yield "shapes", f"void {op.implementation}({outs}, {parameters(schema, False)});"
    elif op.kind == "view":
        yield "views", f"{schema.cpp_return()} {op.implementation}({parameters(schema, False)});"
    elif op.kind == "composite":
        yield "composite", f"{schema.cpp_return()} {op.implementation}({parameters(schema, False)});"
        if op.writes_out and wants_out(op, schema):
            outs = [f"const Tensor& {n}" for n in output_names(schema)]
            given = ", ".join(filter(None, [*outs, parameters(out_schema(schema), False)]))
            yield "composite", f"void {op.implementation}_out({given});"
        if op.writes_self and wants_inplace(op, schema):
            rest = parameters(schema, False, skip=1)
            yield "composite", f"void {op.implementation}_(const Tensor& self{', ' + rest if rest else ''});"
    elif op.kind == "inplace":
        rest = parameters(schema, False, skip=1)
        yield "inplace", f"void {op.implementation}(const Tensor& self{', ' + rest if rest else ''});"
