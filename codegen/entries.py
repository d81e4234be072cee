"""The entry of every operation: what its generated C++ functions do, form by form."""

from __future__ import annotations

from cpp import (
    inplace_signature,
    is_factory,
    kernel_parameters,
    names,
    out_schema,
    out_signature,
    output_names,
    pointwise_constant,
    signature,
)
from derivative import Derivative, derivative_for, make_node
from dispatched import DispatchedForms
from model import Op
from rare import RareForms
from schema import Schema


class Writer(RareForms, DispatchedForms):
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

    def special(self) -> None:
        """Sends rare kinds of tensors to their own function, before dense code sees them: see rare.py."""
        if self.schema.tensors:
            self.put(
                f"if ({self.tests_special()}) [[unlikely]]",
                f"  return rare_{self.schema.name}({', '.join(a.name for a in self.schema.arguments)});",
            )

    def has_rare_functional(self) -> bool:
        composed = self.op.kind == "composite" and not self.derivative
        return bool(self.schema.tensors) and (not composed or self.is_listed())

    def modes(self, call: str, given: list[str], casts: bool = False, dispatched: str = "") -> None:
        """Writes the branch for what is usually off: a mode that takes calls over, a recording of what runs, and autocast. After
        recording and autocast the entry runs a second time."""
        inputs = ", ".join(self.tensors())
        name = call.removesuffix("_out").removeprefix("functional_")
        said = self.op.copies if self.op.kind == "inplace" or not call.endswith("_") else ""
        copies = f", profiler::Copies::{said.capitalize()}" if said else ""
        self.put("if (thread_modes & mode_bit::kProfile) [[unlikely]] {")
        if self.dispatch_way() == "unseen":
            self.put_aside(call, given)
        elif dispatched:
            self.put_branch(dispatched, given)
        self.put(
            f'  if (profiler::Scope scope("aten::{name}"{copies}); scope.entered({inputs}))',
            f"    return scope.finish(mica::{call}({', '.join(given)}));",
            "}",
        )
        if casts:
            self.put_autocast(call)

    def put_autocast(self, call: str) -> None:
        inputs = ", ".join(self.tensors())
        if not self.op.autocast or not inputs:
            return
        cpu, cuda = (f"autocast::Policy::{self.op.autocast.get(d, 'none').capitalize()}" for d in ("cpu", "cuda"))
        cast = [f"cast({a.name})" if a.type.base == "Tensor" else a.name for a in self.schema.arguments]
        self.put(
            "if (thread_modes & mode_bit::kAutocast) [[unlikely]] {",
            f"  if (autocast::Cast cast({cpu}, {cuda}, {inputs}); cast.active())",
            f"    return mica::{call}({', '.join(cast)});",
            "}",
        )

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
        self.put(f"if ({condition}) {{", f"  const Ref<Node> node = {make_node(self.derivative, self.schema)};")
        flags = self.op.output_differentiability or [True] * len(outputs)
        for name, flag in zip(outputs, flags, strict=True):
            self.put(f"  set_history({name}, node);" if flag else f"  node->add_input({name});")
        for s in self.derivative.saved:
            if s.is_output:
                node = f"static_cast<{self.derivative.node}*>(node.get())"
                self.put(f"  {node}->{s.member}_ = SavedTensor({s.member}, true);")
        self.put("}")

    # ---- functional forms
    def functional(self) -> str:
        op, schema = self.op, self.schema
        handed = f"dispatched_{schema.name}" if self.dispatch_way() not in ("", "unseen") else ""
        self.modes(schema.name, [a.name for a in schema.arguments], casts=True, dispatched=handed)
        body = getattr(self, f"functional_{op.kind}")
        body()
        return f"{signature(schema, schema.name, False)} {{\n" + "\n".join(self.take()) + "\n}\n"

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def functional_pointwise(self) -> None:
        self.special()
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
        self.put(f"PointwisePlan plan({pointwise_constant(op)});")
        operands = op.operand_numbers()
        for a in self.schema.arguments:
            if a.type.base == "Tensor" or a.name in operands:
                self.put(f"plan.input({a.name});")
        if op.result_dtype:
            self.put(f"plan.set_result_dtype({op.result_dtype});")

    def launch(self) -> None:
        extra = "".join(f", {a.name}" for a in self.kernel_args())
        self.put(
            "plan.prepare();",
            f'if (plan.has_kernel()) plan.run("{self.op.kernel}", '
            f"{self.kernel_macro()}(plan.loop.device, {self.op.kernel}){extra});",
        )

    def kernel_macro(self) -> str:
        return "MICA_LAYER_KERNEL" if self.op.is_layer else "MICA_KERNEL"

    def kernel_args(self):
        return [self.schema.argument(a.name) for a in kernel_parameters(self.op)]

    def functional_native(self) -> None:
        op = self.op
        self.special()
        self.check()
        self.needs()
        outs, results = output_names(self.schema), self.results()
        self.put(f"Out {', '.join(outs)};")
        self.put(
            "{", "  NoGradGuard below;", f"  shapes::{op.implementation}({', '.join(outs)}, {names(self.schema)});", "}"
        )
        for out, result in zip(outs, results, strict=True):
            self.put(f"Tensor {result} = {out}.finish();")
        self.history(results)
        self.put(f"return {results[0]};" if len(results) == 1 else f"return {{{', '.join(results)}}};")

    def functional_view(self) -> None:
        op, schema = self.op, self.schema
        self.special()
        self.needs()
        if schema.returns[0].type.is_list:
            self.put(f"std::vector<Tensor> result = views::{op.implementation}({names(schema)});")
            if self.derivative:
                self.put("if (needs && !result.empty() && is_differentiable(result[0])) {")
                self.put(f"  const Ref<Node> node = {make_node(self.derivative, schema)};")
                self.put("  for (const Tensor& t : result) set_history(t, node);", "}")
            self.put("for (const Tensor& t : result) set_view(t, self, ViewInfo::Creation::MultiOutput);")
        else:
            self.put(f"Tensor result = views::{op.implementation}({names(schema)});")
            self.history(["result"])
            if op.differentiable:
                self.put("set_view(result, self, ViewInfo::Creation::Normal);")
        self.put("return result;")

    def functional_composite(self) -> None:
        call = f"composite::{self.op.implementation}({names(self.schema)})"
        if self.has_rare_functional():
            self.special()
        if not self.derivative:
            self.put(f"return {call};")
            return
        self.call_with_history(call, "Tensor")

    def call_with_history(self, call: str, kind: str) -> None:
        """Writes a call under which nothing is recorded, and the node of its result, which is a `kind` or several tensors."""
        self.needs()
        results = self.results()
        if len(results) == 1:
            self.put(f"{kind} result;", "{", "  NoGradGuard below;", f"  result = {call};", "}")
        else:
            self.put(
                f"Tensor {', '.join(results)};",
                "{",
                "  NoGradGuard below;",
                f"  std::tie({', '.join(results)}) = {call};",
                "}",
            )
        self.history(results)
        self.put("return result;" if len(results) == 1 else f"return {{{', '.join(results)}}};")

    # ---- in-place forms
    def inplace(self) -> str:
        op, schema = self.op, self.schema
        name = schema.name if schema.name.endswith("_") else schema.name + "_"
        if schema.arguments[0].name != "self":
            self.put(f"const Tensor& {schema.arguments[0].name} = self;")
        handed = f"dispatched_{name}" if self.dispatches_inplace() else ""
        # The name of the first argument in the schema is an alias of self, declared above.
        self.modes(name, ["self", *(a.name for a in schema.arguments[1:])], dispatched=handed)
        self.put(
            f"if ({self.tests_special()}) [[unlikely]]",
            f"  return rare_{name}({', '.join(a.name for a in schema.arguments)});",
        )
        self.check()
        if self.derivative:
            self.needs()
            self.put("check_inplace(self, needs);", "Ref<Node> node;")
            self.put(f"if (needs) node = {make_node(self.derivative, schema, in_place=True)};")
        elif op.kind != "composite":
            self.put("check_inplace(self, false);")
        self.inplace_body()
        if op.kind == "composite" and not self.derivative:
            self.put("return self;")
        else:
            self.put("mark_changed(self);")
            if self.derivative:
                self.put("if (needs) {", f"  {op.rebase}(self, node);")
                for s in self.derivative.saved:
                    if s.is_output:
                        node = f"static_cast<{self.derivative.node}*>(node.get())"
                        self.put(f"  {node}->{s.member}_ = SavedTensor(self, true);")
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
            self.put("plan.finish();")
        elif op.kind == "native":
            self.put(f'Out out("{self.schema.name}_", self, entry::inputs({", ".join(self.tensors())}), true);')
            self.put(
                "{",
                "  NoGradGuard below;",
                "  const UncountedSteps steps(self);",
                f"  shapes::{op.implementation}(out, {names(self.schema)});",
                "  out.finish();",
                "}",
            )
        elif op.kind == "inplace":
            rest = names(self.schema, skip=1)
            self.put(
                "{", "  NoGradGuard below;", f"  inplace::{op.implementation}(self{', ' + rest if rest else ''});", "}"
            )
        elif op.writes_self:
            self.put(f"composite::{op.implementation}_({names(self.schema)});")
        else:
            guard = "  NoGradGuard below;\n  const UncountedSteps steps(self);" if self.derivative else ""
            value, rest = "self" if self.derivative else "entry::value_of(self)", names(self.schema, skip=1)
            self.put(
                "{",
                guard,
                f'  entry::write_in_place("{self.schema.name}_", self, '
                f"composite::{op.implementation}({value}{', ' + rest if rest else ''}));",
                "}",
            )

    # ---- out= forms
    def out(self) -> str:
        op, schema = self.op, self.schema
        outs = output_names(schema)
        inputs = ", ".join(self.tensors()) or "Tensor()"
        given = out_schema(schema).arguments
        handed = f"dispatched_{schema.name}_out" if self.dispatches_out() else ""
        self.modes(f"{schema.name}_out", [*outs, *(a.name for a in given)], dispatched=handed)
        if is_factory(schema) and not op.writes_out:
            self.put(f"const TensorOptions options = {outs[0]}.options();")
        self.put(f'entry::check_out("{schema.name}", entry::inputs({inputs}), {{{", ".join(outs)}}});')
        if self.tensors():
            self.put(
                f"if ({self.tests_special()} || entry::special_in<tensor_bit::kSpecial & ~tensor_bit::kLazyBits>"
                f"({', '.join(outs)})) [[unlikely]]",
                f"  return rare_{schema.name}_out({', '.join([*outs, *(a.name for a in given)])});",
            )
        self.put("NoGradGuard below;")
        if op.kind == "pointwise":
            self.check()
            self.plan()
            for i, o in enumerate(outs):
                self.put(f"plan.into({o}, {i});")
            self.launch()
            self.put("plan.finish();")
        else:
            steps = [f"const UncountedSteps {o}_steps({o});" for o in outs]
            lines = self.out_of_native(outs, inputs) if op.kind == "native" else self.out_by_steps(outs, given)
            self.put("{", *(f"  {line}" for line in (*steps, *lines)), "}")
        self.put(*(f"mark_changed({o});" for o in outs))
        self.put(f"return {outs[0]};" if len(outs) == 1 else f"return {{{', '.join(outs)}}};")
        return f"{out_signature(schema, False)} {{\n" + "\n".join(self.take()) + "\n}\n"

    def out_of_native(self, outs: list[str], inputs: str) -> list[str]:
        """The lines of a shape rule and its kernel."""
        call = f"shapes::{self.op.implementation}({', '.join(o + '_' for o in outs)}, {names(self.schema)});"
        given = [f'Out {o}_("{self.schema.name}", {o}, entry::inputs({inputs}));' for o in outs]
        return [*given, call, *(f"{o}_.finish();" for o in outs)]

    def out_by_steps(self, outs: list[str], given: list) -> list[str]:
        """The lines that write a composite's or a view's result by other operations."""
        op, schema = self.op, self.schema
        if op.writes_out:
            return [f"composite::{op.implementation}_out({', '.join([*outs, *(a.name for a in given)])});"]
        call = f"{'views' if op.kind == 'view' else 'composite'}::{op.implementation}({names(schema)})"
        frequencies = schema.name in ("fft_fftfreq", "fft_rfftfreq")
        if is_factory(schema) and (schema.has_argument("start") or frequencies):
            # A sequence fills a tensor of any shape with as many elements. For other tensors arange warns, and so do frequencies.
            warns = "true" if schema.name == "arange" or frequencies else "false"
            return [f"entry::write_sequence({outs[0]}, {call}, {warns});"]
        if is_factory(schema):
            return [f"entry::write_new({outs[0]}, {call});"]
        if len(outs) == 1:
            return [f'write_out("{schema.name}", {outs[0]}, {call});']
        writes = [f'write_out("{schema.name}", {o}, std::get<{i}>(results));' for i, o in enumerate(outs)]
        return [f"auto results = {call};", *writes]
