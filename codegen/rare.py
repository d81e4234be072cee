"""Where rare kinds of tensors go: the function beside each entry that looks at the kinds one after the other.

An entry tests its inputs' rare bits once. Where one is set it calls its rare function, which is generated here:

1. named: the rule of ops/layouts/named.toml says what the result is called; the operation runs without names.
2. sparse, quantized: the implementation that ops/layouts/<layout>.toml names, with the operation's own derivative unless
   the table gives another; torch's error where there is none.
3. lazily conjugated or negated: made plain.
"""

from __future__ import annotations

from dataclasses import replace

from cpp import inplace_signature, is_factory, out_schema, out_signature, output_names, parameters, signature
from derivative import derivative_for
from model import LAYOUTS, LayoutEntry, Op, camel
from schema import Schema

BITS = {"sparse": "tensor_bit::kSparse", "quantized": "tensor_bit::kQuantized"}
COLD = "MICA_COLD "


def layout_declarations(op: Op, schema: Schema) -> list[tuple[str, str]]:
    """(layout, declaration) of what is written by hand in src/layouts/<layout>/ for one overload."""
    found = []
    for layout, e in op.layouts_of(schema).items():
        if op.kind != "inplace":
            found.append((layout, f"{signature(schema, e.implementation, False)};"))
        if e.inplace:
            rest = parameters(schema, False, skip=1)
            found.append((layout, f"void {e.inplace}(const Tensor& self{', ' + rest if rest else ''});"))
    return found


class RareForms:
    """Methods of entries.Writer: the rare functions of one overload."""

    def is_listed(self) -> bool:
        """Whether a table of ops/layouts/ says what rare tensors do here, so that a composite has to ask."""
        return bool(self.op.layouts_of(self.schema)) or self.schema.full_name in self.op.name_rules

    def mask(self) -> str:
        """The bits that lead to the rare function, without those of layouts that the whole family is made for."""
        base = "tensor_bit::kSpecialView" if self.op.kind == "view" else "tensor_bit::kSpecial"
        if self.op.kind == "view" and "quantized" in self.op.layouts_of(self.schema):
            base = "(tensor_bit::kSpecialView | tensor_bit::kQuantized)"
        return base + "".join(f" & ~{BITS[t]}" for t in self.op.takes if t in BITS)

    def tests_special(self, *extra: str) -> str:
        plain = ", ".join([*extra, *self.tensors()])
        if self.op.kind != "view" and not self.op.takes:
            return f"entry::special({plain})"
        return f"entry::special_in<{self.mask()}>({plain})"

    def name_rule(self) -> str | None:
        rule = self.op.name_rules.get(self.schema.full_name)
        if rule is None and self.op.kind == "pointwise":
            rule = f"broadcast({{{', '.join(self.tensors())}}})"
        return rule

    def nameless(self, skip: int = 0) -> str:
        return ", ".join(
            f"without_names({a.name})" if a.type.base == "Tensor" else a.name for a in self.schema.arguments[skip:]
        )

    def put_bits(self, *extra: str) -> None:
        self.put(f"const uint32_t bits = entry::all_bits({', '.join([*extra, *self.tensors()])});")

    def put_refusal(self, name: str) -> None:
        overload = f".{self.schema.overload}" if self.schema.overload else ""
        refused = "tensor_bit::kForeignLayout"
        if self.op.takes:
            refused = f"({refused}{''.join(f' & ~{BITS[t]}' for t in self.op.takes if t in BITS)})"
        self.put(
            f"if (bits & {refused})",
            f'  entry::refuse_layout("{name}{overload}", entry::inputs({", ".join(self.tensors())}));',
        )

    # ---- functional
    def rare_functional(self) -> str:
        schema, op = self.schema, self.op
        self.put_bits()
        rule = self.name_rule()
        composed = op.kind == "composite" and not self.derivative
        if rule is not None or not composed:
            self.put("if (bits & tensor_bit::kNamed) {")
        if rule is None and not composed:
            self.put(f'  names::refuse("{schema.name}");')
        elif rule is None:
            pass  # the operations that it is composed of have rules
        elif op.kind == "view":
            self.put(
                f"  const DimNames given = names::{rule};",
                "  const Tensor alias = without_names(self);",
                f"  auto result = mica::{schema.name}({', '.join(['alias', *(a.name for a in schema.arguments[1:])])});",
                "  view_of_original(result, self, alias);",
                "  return names::give(std::move(result), given);",
            )
        else:
            self.put(
                f"  const DimNames given = names::{rule};",
                f"  return names::give(mica::{schema.name}({self.nameless()}), given);",
            )
        if rule is not None or not composed:
            self.put("}")
        for layout, e in op.layouts_of(schema).items():
            self.put(f"if (bits & {BITS[layout]}) {{")
            self.layout_body(layout, e)
            self.put("}")
        if composed:
            arguments = ", ".join(a.name for a in schema.arguments)
            self.put(f"return composite::{op.implementation}({arguments});")
        elif op.kind == "view":
            if rule is None and not op.layouts_of(schema):
                self.put(*(f"static_cast<void>({a.name});" for a in schema.arguments if a.type.base != "Tensor"))
            self.put(f'entry::refuse_layout("{schema.full_name}", entry::inputs({", ".join(self.tensors())}));')
        else:
            self.put_refusal(schema.name)
            arguments = ", ".join(
                f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in schema.arguments
            )
            self.put(f"return mica::{schema.name}({arguments});")
        return f"{COLD}{signature(schema, 'rare_' + schema.name, False)} {{\n" + "\n".join(self.take()) + "\n}\n"

    def layout_body(self, layout: str, e: LayoutEntry) -> None:
        """A call of the layout's implementation, recorded as the dense one is."""
        schema = self.schema
        call = f"layouts::{layout}::{e.implementation}({', '.join(a.name for a in schema.arguments)})"
        derivative = self.layout_derivative(layout, e)
        if e.composite or derivative is None:
            self.put(f"  return {call};")
            return
        before, self.derivative = self.derivative, derivative
        body, self.lines = self.lines, []
        self.call_with_history(call, schema.cpp_return())
        self.lines = body + ["  " + line for line in self.lines]
        self.derivative = before

    def layout_derivative(self, layout: str, e: LayoutEntry):
        if e.composite or not e.grad:
            return None if e.composite else self.derivative
        index = self.op.schemas.index(self.schema)
        node = f"{camel(layout)}{camel(self.schema.name)}{index}{self.op.unique_number}Backward"
        changed = replace(self.op, grad=e.grad, node_name=node)
        found = derivative_for(changed, self.schema)
        found.label = self.derivative.label if self.derivative else f"{camel(self.schema.name)}Backward0"
        return found

    def layout_derivatives(self):
        """Derivatives that only a layout has; each needs a node class."""
        for layout, e in self.op.layouts_of(self.schema).items():
            if e.grad and not e.composite:
                yield self.layout_derivative(layout, e)

    # ---- in place
    def rare_inplace(self) -> str:
        op, schema = self.op, self.schema
        name = schema.name if schema.name.endswith("_") else schema.name + "_"
        others = schema.arguments[1:]
        if schema.arguments[0].name != "self":
            self.put(f"const Tensor& {schema.arguments[0].name} = self;")
        self.put_bits()
        rule = self.name_rule()
        self.put("if (bits & tensor_bit::kNamed) {")
        if rule is None and not (op.kind == "composite" and not self.derivative):
            self.put(f'  names::refuse("{name}");')
        else:
            rest = self.nameless(skip=1)
            given = f"names::{rule}" if rule else "names::same(self)"
            self.put(
                f"  const DimNames given = {given};",
                "  const Tensor alias = without_names(self);",
                f"  mica::{name}(alias{', ' + rest if rest else ''});",
                "  take_history(self, alias);",
                "  names::give(self, given);",
                "  return self;",
            )
        self.put("}")
        arguments = ", ".join(a.name for a in schema.arguments)
        functional = f'return entry::write_rare("{name}", self, mica::{schema.name}({arguments}));'
        for layout, e in op.layouts_of(schema).items():
            self.put(f"if (bits & {BITS[layout]}) {{")
            if e.inplace:
                needs = f"compute_requires_grad({', '.join(self.tensors())})"
                if op.kind != "inplace":
                    self.put(f"  if ({needs})", f"    {functional}")
                self.put(
                    f"  check_inplace(self, {needs});",
                    f"  layouts::{layout}::{e.inplace}({arguments});",
                    "  mark_changed(self);",
                    "  return self;",
                )
            else:
                self.put(f"  {functional}")
            self.put("}")
        if op.kind == "composite" and not self.derivative:
            self.put(f"if (bits & tensor_bit::kForeignLayout) {functional}")
        else:
            self.put_refusal(name)
        plain = ", ".join(f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in others)
        self.put(
            "return entry::through_plain(self, [&](const Tensor& plain) "
            f"{{ mica::{name}(plain{', ' + plain if plain else ''}); }});"
        )
        text = inplace_signature(schema, False).replace(f" {name}(", f" rare_{name}(", 1)
        return f"{COLD}{text} {{\n" + "\n".join(self.take()) + "\n}\n"

    # ---- out=
    def rare_out(self) -> str:
        schema = self.schema
        outs = output_names(schema)
        given = out_schema(schema).arguments
        inputs = ", ".join(self.tensors())
        plain = ", ".join(f"entry::plain({a.name})" if a.type.base == "Tensor" else a.name for a in given)
        rare = "(tensor_bit::kSpecial & ~tensor_bit::kLazyBits)"
        self.put(
            f"if (!(entry::all_bits({', '.join(outs)}, {inputs}) & {rare}))",
            f"  return mica::{schema.name}_out({', '.join(outs)}, {plain});",
            "NoGradGuard below;",
        )
        if is_factory(schema):
            self.put(f"const TensorOptions options = {outs[0]}.options();")
        call = f"mica::{schema.name}({', '.join(a.name for a in schema.arguments)})"
        if len(outs) == 1:
            self.put(f'return entry::write_rare_out("{schema.name}", out, {call});')
        else:
            self.put(f"const auto results = {call};")
            for i, o in enumerate(outs):
                self.put(f'entry::write_rare_out("{schema.name}", {o}, std::get<{i}>(results));')
            self.put(f"return {{{', '.join(outs)}}};")
        text = out_signature(schema, False).replace(f" {schema.name}_out(", f" rare_{schema.name}_out(", 1)
        return f"{COLD}{text} {{\n" + "\n".join(self.take()) + "\n}\n"


def layout_header(layout: str, ops: list[Op]) -> str:
    """What src/layouts/<layout>/ defines."""
    lines = [
        f"// Generated from ops/layouts/{layout}.toml: the operations that {layout} tensors have, written by hand in",
        f"// src/layouts/{layout}/.",
        "#pragma once",
        "",
        "#include <string_view>",
        "",
        '#include "mica/tensor.h"',
        "",
        f"namespace mica::layouts::{layout} {{",
        "",
    ]
    for op in ops:
        for schema in op.schemas:
            lines += [text for name, text in layout_declarations(op, schema) if name == layout and text not in lines]
    return "\n".join([*lines, "", f"}}  // namespace mica::layouts::{layout}", ""])


def forward_declarations(ops: list[Op]) -> list[str]:
    """The declarations for a family's source: only those that it calls, so that a new implementation compiles one family."""
    lines: list[str] = []
    for layout in LAYOUTS:
        own: list[str] = []
        for op in ops:
            for schema in op.schemas:
                own += [text for name, text in layout_declarations(op, schema) if name == layout and text not in own]
        if own:
            lines += [f"namespace layouts::{layout} {{", *own, f"}}  // namespace layouts::{layout}", ""]
    return lines
