"""The C++ side of the table: declarations, Tensor methods, the kernel table, and the entry of every operation."""

from __future__ import annotations

import hashlib

from derivative import Derivative, derivative_for, make_node, node_class
from model import Op, Schema

BANNER = "// Generated from ops/{family}.toml. `python3 codegen/generate.py show {example}` prints all of an operation.\n"


def parameters(schema: Schema, defaults: bool, skip: int = 0) -> str:
    """A parameter list; a default is dropped if a parameter without one follows."""
    arguments = schema.arguments[skip:]
    out, allowed = [], defaults
    texts = []
    for a in reversed(arguments):
        default = a.cpp_default()
        allowed = allowed and default is not None
        texts.append(f"{a.type.cpp_argument().replace('Tensor&', 'Tensor&')} {a.name}" + (f" = {default}" if allowed else ""))
    out = list(reversed(texts))
    return ", ".join(out).replace("const const", "const")


def inputs_only(schema: Schema) -> Schema:
    return schema


def names(schema: Schema, skip: int = 0) -> str:
    return ", ".join(a.name for a in schema.arguments[skip:])


def output_names(schema: Schema) -> list[str]:
    if len(schema.returns) == 1:
        return ["out"]
    return [r.name or f"out{i}" for i, r in enumerate(schema.returns)]


def is_inplace_schema(schema: Schema) -> bool:
    return bool(schema.arguments) and schema.arguments[0].type.mutable


def const_self(text: str) -> str:
    """In-place and out= forms take their targets as const Tensor&: a Tensor is a reference, like a shared_ptr."""
    return text if text.startswith("const ") else "const " + text


def signature(schema: Schema, name: str, defaults: bool) -> str:
    return f"{schema.cpp_return()} {name}({parameters(schema, defaults)})"


def inplace_signature(schema: Schema, defaults: bool) -> str:
    rest = parameters(schema, defaults, skip=1)
    name = schema.name if schema.name.endswith("_") else schema.name + "_"
    return f"const Tensor& {name}(const Tensor& self{', ' + rest if rest else ''})"


def out_signature(schema: Schema, defaults: bool) -> str:
    outs = ", ".join(f"const Tensor& {n}" for n in output_names(schema))
    rest = parameters(schema, defaults)
    count = len(schema.returns)
    returned = "const Tensor&" if count == 1 else f"std::tuple<{', '.join(['Tensor'] * count)}>"
    return f"{returned} {schema.name}_out({outs}{', ' + rest if rest else ''})"


def wants_inplace(op: Op, schema: Schema) -> bool:
    first = schema.arguments[0] if schema.arguments else None
    return (op.has("inplace") or op.has("inplace_function")) and first is not None and first.type.is_tensor


def wants_out(op: Op, schema: Schema) -> bool:
    return op.has("out") and all(r.type.is_tensor for r in schema.returns)


# ------------------------------------------------------------------------------------------------- headers
def ops_header(ops: list[Op]) -> str:
    lines = ["// Generated from ops/*.toml: every operation as a free function.", "#pragma once", "",
             "#include <cmath>", "#include <string_view>", "", '#include "mica/tensor.h"', "", "namespace mica {", ""]  # fmt: skip
    for op in ops:
        if op.doc:
            lines.append(f"// {op.doc.strip().splitlines()[0]}")
        for schema in op.schemas:
            if op.kind == "inplace":
                lines.append(inplace_signature(schema, True) + ";")
                continue
            lines.append(signature(schema, schema.name, True) + ";")
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
    lines = ["// Generated from ops/*.toml: Tensor's methods forward to the free functions.", '#include "mica/ops.h"', "",
             "namespace mica {", ""]  # fmt: skip
    for _, schema, name, in_place in method_schemas(ops):
        returned = "const Tensor&" if in_place else schema.cpp_return()
        rest = names(schema, skip=1)
        call = f"mica::{name}(*this{', ' + rest if rest else ''})"
        lines.append(f"{returned} Tensor::{name}({parameters(schema, False, skip=1)}) const {{ return {call}; }}")
    lines += ["", "}  // namespace mica", ""]
    return "\n".join(lines)


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
    operands = {a.name for a in schema.arguments if a.type.base == "Tensor"} | set(operand_numbers(op))
    chosen = [a for a in schema.arguments if a.name not in operands]
    if op.kernel_arguments is not None:
        chosen = [schema.argument(n) for n in op.kernel_arguments]
    return chosen


def operand_numbers(op: Op) -> set[str]:
    """Arguments that are a tensor in one overload and a number in another: they are operands in both."""
    kinds: dict[str, set[str]] = {}
    for schema in op.schemas:
        for a in schema.arguments:
            kinds.setdefault(a.name, set()).add(a.type.base)
    return {n for n, k in kinds.items() if "Tensor" in k and "Scalar" in k}


def kernel_table(ops: list[Op], kernels: list[dict]) -> str:
    slots = kernel_slots(ops, kernels)
    digest = hashlib.sha256(repr(slots).encode()).hexdigest()[:16]
    lines = ["// Generated from ops/*.toml: one slot per kernel. An empty slot means that the backend has no such kernel.",
             "#pragma once", "", "#include <optional>", "#include <string_view>", "", '#include "mica/kernel_types.h"', "",
             "namespace mica {", "", f"inline constexpr uint64_t kKernelTableHash = 0x{digest}ull;", "", "struct KernelTable {"]  # fmt: skip
    for slot, arguments in slots.items():
        lines.append(f"  void (*{slot})({arguments}) = nullptr;")
    lines += ["};", "", "}  // namespace mica", ""]
    return "\n".join(lines)


def kernel_registry(ops: list[Op], kernels: list[dict]) -> str:
    """Slots by name, so that a kernel file need not be compiled again when the table grows."""
    lines = ["// Generated from ops/*.toml: the CPU's kernels find their slots here as the library is loaded.",
             "#include <cstddef>", "#include <typeinfo>", "", '#include "backends/cpu/register.h"', '#include "mica/backend.h"', "",
             "namespace mica {", "", "constinit KernelTable cpu_kernels;", "", "namespace cpu {", "",
             "const KernelSlot* find_kernel_slot(std::string_view name) {", "  static const KernelSlot slots[] = {"]  # fmt: skip
    for slot in kernel_slots(ops, kernels):
        lines.append(f'      {{"{slot}", &typeid(cpu_kernels.{slot}), &cpu_kernels.{slot}}},')
    lines += ["  };", "  for (const KernelSlot& s : slots)", "    if (s.name == name) return &s;", "  return nullptr;", "}", "",
              "}  // namespace cpu", "}  // namespace mica", ""]  # fmt: skip
    return "\n".join(lines)


def implementations_header(ops: list[Op]) -> str:
    """What is written by hand: an operation whose definition is missing or differs from its schema fails to link."""
    groups: dict[str, list[str]] = {"shapes": [], "views": [], "composite": [], "inplace": [], "checks": []}
    seen = set()
    for op in ops:
        for schema in op.schemas:
            for group, text in implementation_declarations(op, schema):
                if text not in seen:
                    seen.add(text)
                    groups[group].append(text)
    lines = ["// Generated from ops/*.toml: the functions that are written by hand, in src/<namespace>/.", "#pragma once", "",
             '#include "core/out.h"', '#include "mica/tensor.h"', "", "namespace mica {"]  # fmt: skip
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
    elif op.kind == "inplace":
        rest = parameters(schema, False, skip=1)
        yield "inplace", f"void {op.implementation}(const Tensor& self{', ' + rest if rest else ''});"


# ------------------------------------------------------------------------------------------------- entries
class Writer:
    """The entries of one operation, one overload at a time."""

    def __init__(self, op: Op, schema: Schema):
        self.op, self.schema = op, schema
        self.derivative: Derivative | None = None
        if op.grad and op.kind != "declared":
            self.derivative = derivative_for(op, schema)
        self.lines: list[str] = []

    def put(self, *lines: str) -> None:
        self.lines += ["  " + line if line else "" for line in lines]

    def tensors(self) -> list[str]:
        return [a.name for a in self.schema.tensors]

    def special(self, call: str, skip_self: bool = False) -> None:
        """Lazily conjugated or negated inputs are made plain before anything dense sees them."""
        plain = [a.name for a in self.schema.tensors]
        if not plain:
            return
        arguments = ", ".join(
            f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in self.schema.arguments
        )
        self.put(f"if (entry::special({', '.join(plain)})) [[unlikely]]", f"  return {call}({arguments});")

    def needs(self) -> None:
        if self.derivative:
            inputs = ", ".join(a.name for a in self.derivative.inputs)
            self.put(f"const bool needs = compute_requires_grad({inputs});")

    def check(self) -> None:
        if self.op.check:
            self.put(f"checks::{self.op.check}({names(self.schema)});")

    def history(self, outputs: list[str]) -> None:
        if not self.derivative:
            return
        condition = f"needs && is_differentiable({outputs[0]})" if len(outputs) == 1 else "needs"
        self.put(f"if ({condition}) {{", "  Ref<Node> node;")
        self.lines += make_node(self.derivative, "    ")
        flags = self.op.output_differentiability or [True] * len(outputs)
        for name, flag in zip(outputs, flags, strict=True):
            self.put(f"  set_history({name}, node);" if flag else f"  node->add_input({name});")
        for s in self.derivative.saved:
            if s.is_output:
                self.put(f"  made->{s.member}_ = SavedTensor({s.member}, true);")
        self.put("}")

    # ---- functional forms
    def functional(self) -> str:
        op, schema = self.op, self.schema
        body = getattr(self, f"functional_{op.kind}")
        body()
        return f"{signature(schema, schema.name, False)} {{\n" + "\n".join(self.take()) + "\n}\n"

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def functional_pointwise(self) -> None:
        self.special(self.schema.name)
        self.check()
        self.needs()
        self.plan()
        outs = self.results()
        for i, name in enumerate(outs):
            self.put(f"Tensor {name} = plan.fresh({i});")
        self.launch()
        self.history(outs)
        self.put(f"return {outs[0]};" if len(outs) == 1 else f"return {{{', '.join(outs)}}};")

    def results(self) -> list[str]:
        n = len(self.schema.returns)
        return ["result"] if n == 1 else [f"result{i}" for i in range(n)]

    def plan(self) -> None:
        op = self.op
        self.put(f"PointwisePlan plan(k{op.notes['descriptor']});")
        operands = operand_numbers(op)
        for a in self.schema.arguments:
            if a.type.base == "Tensor" or a.name in operands:
                self.put(f"plan.input({a.name});")
        if op.result_dtype:
            self.put(f"plan.set_result_dtype({op.result_dtype});")

    def launch(self) -> None:
        extra = "".join(f", {a.name}" for a in self.kernel_args())
        self.put("plan.prepare();",
                 f"if (plan.has_work()) MICA_KERNEL(plan.loop.device, {self.op.kernel})(plan.loop{extra});")  # fmt: skip

    def kernel_args(self):
        return [self.schema.argument(a.name) for a in kernel_parameters(self.op)]

    def functional_native(self) -> None:
        op = self.op
        self.special(self.schema.name)
        self.check()
        self.needs()
        outs, results = output_names(self.schema), self.results()
        self.put(f"Out {', '.join(outs)};")
        self.put("{", "  NoGradGuard below;", f"  shapes::{op.implementation}({', '.join(outs)}, {names(self.schema)});", "}")
        for out, result in zip(outs, results, strict=True):
            self.put(f"Tensor {result} = {out}.finish();")
        self.history(results)
        self.put(f"return {results[0]};" if len(results) == 1 else f"return {{{', '.join(results)}}};")

    def functional_view(self) -> None:
        op, schema = self.op, self.schema
        self.needs()
        if schema.returns[0].type.is_list:
            self.put(f"std::vector<Tensor> result = views::{op.implementation}({names(schema)});")
            if self.derivative:
                self.put("if (needs && !result.empty() && is_differentiable(result[0])) {", "  Ref<Node> node;")
                self.lines += make_node(self.derivative, "    ")
                self.put("  for (const Tensor& t : result) set_history(t, node);", "}")
            self.put("for (const Tensor& t : result) set_view(t, self, ViewInfo::Creation::MultiOutput);")
        else:
            self.put(f"Tensor result = views::{op.implementation}({names(schema)});")
            self.history(["result"])
            replay = self.replay()
            self.put(f"set_view(result, self, ViewInfo::Creation::Normal{replay});")
        self.put("return result;")

    def replay(self) -> str:
        """Views that as_strided cannot reproduce carry the call that made them."""
        if not self.op.notes.get("needs_replay"):
            return ""
        return f", [=](const Tensor& self) {{ return mica::{self.schema.name}({names(self.schema)}); }}"

    def functional_composite(self) -> None:
        call = f"composite::{self.op.implementation}({names(self.schema)})"
        if not self.derivative:
            self.put(f"return {call};")
            return
        self.special(self.schema.name)
        self.needs()
        results = self.results()
        if len(results) == 1:
            self.put("Tensor result;", "{", "  NoGradGuard below;", f"  result = {call};", "}")
        else:
            self.put(f"Tensor {', '.join(results)};", "{", "  NoGradGuard below;",
                     f"  std::tie({', '.join(results)}) = {call};", "}")  # fmt: skip
        self.history(results)
        self.put("return result;" if len(results) == 1 else f"return {{{', '.join(results)}}};")

    # ---- in-place forms
    def inplace(self) -> str:
        op, schema = self.op, self.schema
        name = schema.name if schema.name.endswith("_") else schema.name + "_"
        others = [a for a in schema.arguments[1:]]
        plain = [a.name for a in schema.tensors]
        arguments = ", ".join(f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in others)
        self.put(f"if (entry::special({', '.join(plain)})) [[unlikely]]",
                 f"  return entry::through_plain(self, [&](const Tensor& plain) {{ mica::{name}(plain{', ' + arguments if arguments else ''}); }});")  # fmt: skip
        self.check()
        if self.derivative:
            self.needs()
            self.put("check_inplace(self, needs);", "Ref<Node> node;")
            outputs = [s for s in self.derivative.saved if s.is_output]
            self.put(f"{self.derivative.node}* recorded = nullptr;" if outputs else "")
            self.put("if (needs) {")
            self.lines += make_node(self.derivative, "    ", in_place=True)
            self.put("  recorded = made;" if outputs else "", "}")
        elif op.kind != "composite":
            self.put("check_inplace(self, false);")
        self.inplace_body()
        if op.kind == "composite" and not self.derivative:
            self.put("return self;")
        else:
            self.put("mark_changed(self);")
            if self.derivative:
                self.put("if (needs) {", "  rebase_history(self, node);")
                for s in self.derivative.saved:
                    if s.is_output:
                        self.put(f"  recorded->{s.member}_ = SavedTensor(self, true);")
                self.put("}")
            self.put("return self;")
        lines = [line for line in self.take() if line.strip()]
        return f"{inplace_signature(schema, False)} {{\n" + "\n".join(lines) + "\n}\n"

    def inplace_body(self) -> None:
        op = self.op
        if op.kind == "pointwise":
            self.plan()
            self.put("plan.in_place(self);")
            self.launch()
        elif op.kind == "native":
            self.put(f'Out out("{self.schema.name}_", self, entry::inputs({", ".join(self.tensors())}), true);')
            self.put("{", "  NoGradGuard below;", f"  shapes::{op.implementation}(out, {names(self.schema)});",
                     "  out.finish();", "}")  # fmt: skip
        elif op.kind == "inplace":
            rest = names(self.schema, skip=1)
            self.put("{", "  NoGradGuard below;", f"  inplace::{op.implementation}(self{', ' + rest if rest else ''});", "}")
        else:
            guard = "  NoGradGuard below;" if self.derivative else ""
            self.put("{", guard, f'  entry::write_in_place("{self.schema.name}_", self, composite::{op.implementation}({names(self.schema)}));', "}")  # fmt: skip

    # ---- out= forms
    def out(self) -> str:
        op, schema = self.op, self.schema
        outs = output_names(schema)
        inputs = ", ".join(self.tensors()) or "Tensor()"
        self.put(f'entry::check_out("{schema.name}", entry::inputs({inputs}), {{{", ".join(outs)}}});')
        plain = self.tensors()
        if plain:
            arguments = ", ".join(f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in schema.arguments)
            self.put(f"if (entry::special({', '.join(plain)})) [[unlikely]]", f"  return {schema.name}_out({', '.join(outs)}, {arguments});")
        self.put("NoGradGuard below;")
        if op.kind == "pointwise":
            self.check()
            self.plan()
            for i, o in enumerate(outs):
                self.put(f"plan.into({o}, {i});")
            self.launch()
            self.put("plan.finish();")
        elif op.kind == "native":
            for o in outs:
                self.put(f'Out {o}_("{schema.name}", {o}, entry::inputs({inputs}));')
            self.put(f"shapes::{op.implementation}({', '.join(o + '_' for o in outs)}, {names(schema)});")
            for o in outs:
                self.put(f"{o}_.finish();")
        else:
            call = f"{'views' if op.kind == 'view' else 'composite'}::{op.implementation}({names(schema)})"
            if len(outs) == 1:
                self.put(f'write_out("{schema.name}", {outs[0]}, {call});')
            else:
                self.put(f"auto results = {call};")
                for i, o in enumerate(outs):
                    self.put(f'write_out("{schema.name}", {o}, std::get<{i}>(results));')
        for o in outs:
            self.put(f"mark_changed({o});")
        self.put(f"return {outs[0]};" if len(outs) == 1 else f"return {{{', '.join(outs)}}};")
        return f"{out_signature(schema, False)} {{\n" + "\n".join(self.take()) + "\n}\n"


PROMOTION_CPP = {"arithmetic": "Arithmetic", "float": "Float", "compare": "Compare", "real": "Real",
                 "float_real": "FloatReal", "none": "None"}  # fmt: skip


def family_source(family: str, ops: list[Op]) -> str:
    lines = [BANNER.format(family=family, example=ops[0].name)]
    lines += ['#include <array>', '', '#include "autograd/formulas.h"', '#include "core/entry.h"', '#include "core/out.h"', '#include "core/pointwise.h"',
              '#include "mica/autograd.h"', '#include "mica/backend.h"', '#include "mica/generated/implementations.h"',
              '#include "mica/ops.h"', "", "namespace mica {", "", "using namespace formulas;  // NOLINT: what derivative expressions call", "namespace {", ""]  # fmt: skip
    public: list[str] = []
    for op in ops:
        if op.kind == "pointwise":
            op.notes["descriptor"] = "".join(p.capitalize() for p in op.name.split("_")) + str(op.notes.get("uid", ""))
            count = len(op.schema.returns)
            lines.append(
                f'constexpr PointwiseOp k{op.notes["descriptor"]}{{"{op.name}", Promotion::{PROMOTION_CPP[op.promotion]}, {count}}};'
            )
        for schema in op.schemas:
            if op.kind == "declared":
                continue
            w = Writer(op, schema)
            if w.derivative:
                lines.append(node_class(w.derivative, schema))
            public.append(f"// {schema.text}")
            if op.kind == "inplace":
                public.append(w.inplace())
                continue
            public.append(w.functional())
            if wants_inplace(op, schema):
                public.append(w.inplace())
            if wants_out(op, schema):
                public.append(w.out())
    lines += ["", "}  // namespace", "", *public, "}  // namespace mica", ""]
    return "\n".join(lines)
