"""Where operations go while a dispatch mode is active: the function beside each entry that hands the call to the mode.

torch's modes see operations below autograd: the operation records its node around what the mode returns. Which
operations a mode sees, and by which name, follows from their kind; ops/modes/dispatch.toml has the exceptions.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cpp import inplace_signature, is_factory, is_inplace_schema, out_schema, out_signature, output_names, signature
from derivative import make_node
from rare import COLD
from schema import Schema


def out_overload(schema: Schema) -> str:
    """The overload that torch.ops.aten has for the form with out=."""
    return "out" if schema.overload in ("", "Tensor") else f"{schema.overload}_out"


class DispatchedForms:
    """Methods of entries.Writer: how one overload is handed to a mode."""

    def dispatch_way(self) -> str:
        """How a mode meets the overload.

        "below": the mode sees it, and autograd records its own node. "whole": the mode sees it, and autograd records the
        operations that it is composed of. "parted": as "whole", but the mode sees the parts where autograd records them.
        "opened", "lowered": other operations compute it. "unseen": it runs without modes. "": it runs as without a mode, which
        sees its parts.
        """
        op, schema = self.op, self.schema
        listed = op.dispatch.get(schema.full_name)
        if listed:
            return "" if listed == "through" else listed
        if not schema.returns or any(r.type.base != "Tensor" for r in schema.returns):
            return ""
        composed = op.kind == "composite" and not self.derivative
        return "" if composed or op.kind == "declared" else "below"

    def dispatch_name(self, in_place: bool = False) -> str:
        schema = self.schema
        overload = self.op.dispatch_overloads.get(schema.full_name, schema.overload)
        name = schema.name + ("_" if in_place and not schema.name.endswith("_") else "")
        return f"{name}.{overload}" if overload else name

    def put_branch(self, function: str, given: list[str]) -> None:
        """Writes the branch for a dispatch mode, within the entry's test of its modes."""
        asked = "dispatch::active"
        if is_factory(self.schema) and not self.derivative:  # a mode does not see what the engine makes for itself
            like = bool(self.schema.tensors)  # of a class that answers for its tensors, such a factory makes others
            direct = "std::exchange(dispatch::direct, false)"
            asked += f" && ({direct} || dispatch::in_parts)" if like else f" && {direct}"
        self.put(f"  if ({asked}) return {function}({', '.join(given)});")

    def put_aside(self, call: str, given: list[str]) -> None:
        self.put("  if (dispatch::active) {", "    const dispatch::Aside aside;")
        self.put(f"    return mica::{call}({', '.join(given)});", "  }")

    def dispatched_functional(self) -> str:
        schema, way = self.schema, self.dispatch_way()
        self.put_autocast(schema.name)
        arguments = [a.name for a in schema.arguments]
        if way in ("lowered", "opened"):
            where = "dispatch::lowered" if way == "lowered" else "composite"
            called = schema.name if way == "lowered" else self.op.implementation
            self.put(f"return {where}::{called}({', '.join(arguments)});")
        else:
            if way in ("whole", "parted") and self.op.kind == "composite":
                self.put_parts(arguments, "" if way == "parted" else "dispatch::in_parts && ")
            self.hand_over(way == "below", arguments)
        text = signature(schema, "dispatched_" + schema.name, False)
        return f"{COLD}{text} {{\n" + "\n".join(self.take()) + "\n}\n"

    def put_parts(self, arguments: list[str], asked: str) -> None:
        """Writes the call of an operation's parts, where the engine itself records what a class or a mode answers: parts
        have nodes."""
        tensors = [a.name for a in self.schema.arguments if a.type.base == "Tensor" and not a.type.optional]
        if tensors and not is_factory(self.schema):
            self.put(f"if ({asked}compute_requires_grad({', '.join(tensors)}))")
            self.put(f"  return composite::{self.op.implementation}({', '.join(arguments)});")

    def hand_over(self, below: bool, arguments: list[str]) -> None:
        schema = self.schema
        self.put_plain(below)
        function, given = self.handed_call(arguments)
        self.put(*(f"static_cast<void>({name});" for name in arguments if not re.search(rf"\b{name}\b", given)))
        results = self.results()
        is_list = schema.returns[0].type.is_list
        before, self.derivative = self.derivative, self.derivative if below else None
        if self.derivative:
            inputs = ", ".join(a.name for a in self.derivative.inputs)
            self.put(f"const bool needs = recorded && compute_requires_grad({inputs});")
        if is_list:
            self.put(f"std::vector<Tensor> result = {function}({given}, dispatch::kAnyNumber, recorded);")
        elif len(results) == 1:
            function = function.replace("dispatch::call", "dispatch::call_one")
            self.put(f"Tensor result = {function}({given}, recorded);")
        else:
            count = "" if "lowered::" in function else f", {len(results)}"
            self.put(f"std::vector<Tensor> made_ = {function}({given}{count}, recorded);")
            self.put(*(f"Tensor {name} = std::move(made_[{i}]);" for i, name in enumerate(results)))
        if is_list and self.derivative:
            self.put("if (needs && !result.empty() && is_differentiable(result[0])) {")
            self.put(f"  const Ref<Node> node = {make_node(self.derivative, schema)};")
            self.put("  for (const Tensor& t : result) set_history(t, node);", "}")
        else:
            self.history(results)
        if self.op.kind == "view" and below:
            self.restore_views(is_list)
        self.derivative = before
        self.put("return result;" if len(results) == 1 else f"return {{{', '.join(results)}}};")

    def handed_call(self, arguments: list[str], in_place: bool = False) -> tuple[str, str]:
        """The function that hands the call over, and its first arguments."""
        name, given = self.dispatch_name(in_place), ", ".join(arguments)
        handed = self.op.dispatch_handed.get(self.schema.full_name)
        if handed:
            name, _, rest = handed.partition("(")
            given = rest.removesuffix(")")
            if name.startswith("lowered::"):
                return f"dispatch::{name}", given
            name += "_" if in_place else ""
        return "dispatch::call", f'"{name}", {{{given}}}'

    def put_plain(self, below: bool) -> None:
        """Declares whether the entry records a node. Rare tensors record in their own ways, within the call."""
        if not below:
            self.put("const bool recorded = false;")
        elif self.schema.tensors:
            self.put(f"const bool recorded = !{self.tests_special()};")
        else:
            self.put("const bool recorded = true;")

    def restore_views(self, is_list: bool) -> None:
        """Makes a view differentiable again: the mode made it while nothing was recorded, but the program did not ask
        for that."""
        if is_list:
            self.put(
                "for (const Tensor& t : result)",
                "  if (recorded && dispatch::shares_memory(t, self)) set_view(t, self, ViewInfo::Creation::MultiOutput);",
            )
        else:
            self.put(
                "if (recorded && dispatch::shares_memory(result, self))",
                "  set_view(result, self, ViewInfo::Creation::Normal);",
            )

    def dispatched_inplace(self) -> str:
        schema = self.schema
        name = schema.name if schema.name.endswith("_") else schema.name + "_"
        first = schema.arguments[0].name
        if first != "self":
            self.put(f"const Tensor& {first} = self;")
        below = self.dispatch_way() == "below"
        self.put_plain(below)
        derivative = self.derivative if below else None
        if derivative:
            inputs = ", ".join(a.name for a in derivative.inputs)
            self.put(f"const bool needs = recorded && compute_requires_grad({inputs});")
            self.put("if (recorded) check_inplace(self, needs);", "Ref<Node> node;")
            self.put(f"if (needs) node = {make_node(derivative, schema, in_place=True)};")
        _, given = self.handed_call([a.name for a in schema.arguments], in_place=True)
        self.put(f"dispatch::call_none({given}, recorded);")
        if derivative:
            self.put("if (needs) {", f"  {self.op.rebase}(self, node);")
            node = f"static_cast<{derivative.node}*>(node.get())"
            self.put(*(f"  {node}->{s.member}_ = SavedTensor(self, true);" for s in derivative.saved if s.is_output))
            self.put("}")
        self.put("return self;")
        text = inplace_signature(schema, False).replace(f" {name}(", f" dispatched_{name}(", 1)
        return f"{COLD}{text} {{\n" + "\n".join(self.take()) + "\n}\n"

    def dispatched_out(self) -> str:
        schema = self.schema
        outs = output_names(schema)
        given = [*(a.name for a in out_schema(schema).arguments), *outs]
        overload = self.op.dispatch_overloads.get(schema.full_name, schema.overload)
        name = f"{schema.name}.{out_overload(replace(schema, overload=overload))}"
        self.put(f'dispatch::call_none("{name}", {{{", ".join(given)}}}, true);')
        self.put(f"return {outs[0]};" if len(outs) == 1 else f"return {{{', '.join(outs)}}};")
        text = out_signature(schema, False).replace(f" {schema.name}_out(", f" dispatched_{schema.name}_out(", 1)
        return f"{COLD}{text} {{\n" + "\n".join(self.take()) + "\n}\n"

    def dispatches_inplace(self) -> bool:
        return self.dispatch_way() in ("below", "whole", "parted")

    def dispatches_out(self) -> bool:
        return self.dispatch_way() in ("below", "whole", "parted") and not is_inplace_schema(self.schema)
