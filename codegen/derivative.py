"""From the derivative expressions of an entry to the Node class that evaluates them.

An expression may use `grad` (or `grads[i]` when there are several outputs), every argument by its name, `result` (or
`result0`, `result1`...), and facts such as `self.sizes()`, saved instead of the tensor. `seen(self)` is the tensor while a
dispatch mode is active, which is handed it, and no tensor otherwise: then it is not kept. A key `"self, weight"`
stands for one expression that returns a tuple; `needs_mask` is then an array of the gradients that are wanted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from model import Op
from schema import Argument, Schema

# NAME.fact() in an expression is computed in the forward and saved as this type.
FACTS = {
    "sizes": "DimVector",
    "strides": "DimVector",
    "dtype": "DType",
    "device": "Device",
    "options": "TensorOptions",
    "dim": "int64_t",
    "numel": "int64_t",
    "storage_offset": "int64_t",
    "defined": "bool",
    "is_complex": "bool",
}


@dataclass
class Saved:
    """A member of the node: how it is declared, how the forward fills it, how the backward reads it."""

    member: str
    ctype: str
    fill: str
    is_output: bool = False
    is_tensor: bool = False
    is_list: bool = False
    edges: list[int] | None = None  # the inputs whose gradients need it; None means all
    is_shown: bool = True  # whether programs find it at the node, as torch's _saved_self


@dataclass
class Derivative:
    node: str
    label: str  # as x.grad_fn shows it
    saved: list[Saved]
    targets: list[tuple[tuple[str, ...], str]]
    inputs: list[Argument]  # tensors for which an edge exists, in the order of the edges
    uses_self_value: bool
    frees_number: bool = False  # see NUMBERS_FREED


# In torch, products with a number save the number as a tensor. It is freed with the graph, so that a second backward pass
# is refused.
NUMBERS_FREED = {"mul.Scalar", "div.Scalar"}


def derivative_for(op: Op, schema: Schema) -> Derivative | None:
    targets = []
    for key, expression in op.grad.items():
        names = tuple(n.strip() for n in key.split(","))
        names_here = [n for n in names if schema.has_argument(n) and schema.argument(n).type.base == "Tensor"]
        if not names_here:
            continue
        targets.append((names, expression))
    if not targets:
        return None
    wanted = {n for names, _ in targets for n in names}
    inputs = [a for a in schema.tensors if a.name in wanted]
    saved: dict[str, Saved] = {}
    rewritten = []
    for names, expression in targets:
        text = expression
        for match in re.findall(r"\bseen\((\w+)\)", text):
            member, fill = f"{match}_seen", f"dispatch::active ? {match} : Tensor()"
            saved[member] = Saved(member, "SavedTensor", fill, is_tensor=True, is_shown=False)
            text = text.replace(f"seen({match})", member)
        for fact, ctype in FACTS.items():
            for match in re.findall(rf"\b(\w+)\.{fact}\(\)", text):
                if schema.has_argument(match) and schema.argument(match).type.is_tensor:
                    member = f"{match}_{fact}"
                    fill = f"{match}.{fact}()"
                    if fact != "defined" and schema.argument(match).type.optional:
                        fill = f"({match}.defined() ? {ctype}({fill}) : {ctype}())"
                    saved[member] = Saved(member, ctype, fill)
                    text = re.sub(rf"\b{match}\.{fact}\(\)", member, text)
        for match in re.findall(r"\bsizes_of\((\w+)\)", text):
            saved[f"{match}_sizes"] = Saved(f"{match}_sizes", "std::vector<DimVector>", f"sizes_of({match})")
            text = text.replace(f"sizes_of({match})", f"{match}_sizes")
        for match in re.findall(r"\bdtypes_of\((\w+)\)", text):
            saved[f"{match}_dtypes"] = Saved(f"{match}_dtypes", "std::vector<DType>", f"dtypes_of({match})")
            text = text.replace(f"dtypes_of({match})", f"{match}_dtypes")
        rewritten.append((names, text))
    everything = " ".join(text for _, text in rewritten)
    identifiers = identifiers_in(everything)
    for argument in schema.arguments:
        if argument.name in identifiers and argument.name not in saved:
            t = argument.type
            if t.is_tensor:
                saved[argument.name] = Saved(argument.name, "SavedTensor", argument.name, is_tensor=True)
            elif t.is_tensor_list:
                saved[argument.name] = Saved(argument.name, "std::vector<SavedTensor>", argument.name, is_list=True)
            else:
                saved[argument.name] = Saved(argument.name, t.cpp_value(), argument.name)
    guard_inputs(saved, rewritten, inputs)
    outputs = len(schema.returns)
    for i in range(outputs):
        name = "result" if outputs == 1 else f"result{i}"
        if name in identifiers:
            saved[name] = Saved(name, "SavedTensor", name, is_output=True, is_tensor=True)
    return Derivative(
        node=op.node_class(schema),
        label=op.node_label(schema),
        saved=list(saved.values()),
        targets=rewritten,
        inputs=inputs,
        uses_self_value="self" in saved,
        frees_number=f"{schema.name}.{schema.overload}" in NUMBERS_FREED,
    )


def identifiers_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.:])([A-Za-z_]\w*)", text))


def guard_inputs(saved: dict[str, Saved], targets: list[tuple[tuple[str, ...], str]], inputs: list[Argument]) -> None:
    """Notes which gradients need a saved tensor. Where none of these is asked for, it is neither saved nor guarded."""
    if any(a.type.is_list for a in inputs):
        return
    edge = {a.name: i for i, a in enumerate(inputs)}
    for s in saved.values():
        users = {n for names, text in targets if s.member in identifiers_in(text) for n in names if n in edge}
        if s.is_tensor and len(users) < len(inputs):
            s.edges = sorted(edge[n] for n in users)


def node_class(d: Derivative, schema: Schema) -> str:
    """The declaration and the apply of one node."""
    lines = [f"struct {d.node} final : Node {{"]
    for s in d.saved:
        lines.append(f"  {s.ctype} {s.member}_{{}};")
    for a in d.inputs:
        if a.type.is_list:
            lines.append(f"  size_t {a.name}_count_ = 0;")
    if d.frees_number:
        lines.append("  bool freed_ = false;")
    lines.append(f'  const char* name() const override {{ return "{d.label}"; }}')
    lines.append("  void apply(TensorVec& grads, TensorVec& out) override {")
    if len(schema.returns) == 1 and not schema.returns[0].type.is_list:
        lines.append("    const Tensor& grad = grads[0];")
        lines.append("    if (!grad.defined()) return;")
    else:
        lines.append("    if (!any_defined(grads)) return;")
    if d.frees_number:
        lines.append("    MICA_CHECK(!freed_, kGraphFreed);")
    for s in d.saved:
        if s.is_output:
            lines.append(f"    const Tensor {s.member} = {s.member}_.unpack(Ref<Node>(this));")
        elif s.is_tensor:
            lines.append(f"    const Tensor {s.member} = {s.member}_.unpack();")
        elif s.is_list:
            lines.append(f"    const TensorVec {s.member} = unpack_list({s.member}_);")
        else:
            lines.append(f"    const auto& {s.member} = {s.member}_;")
    positions, at = {}, "0"
    for a in d.inputs:
        positions[a.name] = at
        at = f"{at} + {a.name}_count_" if a.type.is_list else (str(int(at) + 1) if at.isdigit() else f"{at} + 1")
    lines.append(f"    out.resize({at});")
    for names, expression in sorted(d.targets):  # torch's order: a mode sees it
        here = [n for n in names if n in positions]
        if len(names) > 1:
            mask = ", ".join(f"needs({positions[n]})" if n in positions else "false" for n in names)
            lines.append(f"    if ({' || '.join(f'needs({positions[n]})' for n in here)}) {{")
            lines.append(f"      [[maybe_unused]] const std::array<bool, {len(names)}> needs_mask{{{mask}}};")
            lines.append(f"      auto gradients = {expression};")
            for i, n in enumerate(names):
                if n in positions:
                    lines.append(f"      out[{positions[n]}] = std::get<{i}>(gradients);")
            lines.append("    }")
            continue
        name = here[0]
        if schema.argument(name).type.is_list:
            lines.append(f"    if ({name}_count_) {{")
            lines.append(f"      TensorVec list = {expression};")
            lines.append(
                f"      for (size_t i = 0; i < list.size(); ++i) out[{positions[name]} + i] = std::move(list[i]);"
            )
            lines.append("    }")
        else:
            lines.append(f"    if (needs({positions[name]})) out[{positions[name]}] = {expression};")
    lines.append("  }")
    tensors = [s for s in d.saved if s.is_tensor or s.is_list]
    if tensors or d.frees_number:
        lines.append("  void release_saved() override {")
        if d.frees_number:
            lines.append("    freed_ = true;")
        for s in tensors:
            if s.is_list:
                lines.append(f"    for (auto& s : {s.member}_) s.reset();")
            else:
                lines.append(f"    {s.member}_.reset();")
        lines.append("  }")
    lines += [*node_maker(d, schema), "};"]
    return "\n".join(lines)


SHOWN_FACTS = ("sizes", "strides", "numel", "storage_offset")


def saved_fields(d: Derivative) -> list[str]:
    """The entry, if any, by which programs read what a node saves, under torch's names. Values that may be symbolic have the
    prefix sym_."""

    def shown(member: str) -> str:
        for fact in SHOWN_FACTS:
            if member.endswith("_" + fact):
                return f"{member.removesuffix(fact)}sym_{fact}"
        return member

    found = [s for s in d.saved if s.is_shown]
    if not found:
        return []
    shows = " ".join(f'search("{shown(s.member)}", node->{s.member}_);' for s in found)
    return [
        f'    {{"{d.label}", [](Node& base, SavedFieldSearch& search) {{ '
        f"if (auto* node = dynamic_cast<{d.node}*>(&base)) {{ {shows} }} }}}},"
    ]


def fill_lines(d: Derivative) -> list[str]:
    """Statements that give the node `made` its edges and what it saves of the inputs."""
    lines = []
    if any(a.type.is_list for a in d.inputs):
        for a in d.inputs:
            if a.type.is_list:
                lines.append(f"made->{a.name}_count_ = {a.name}.size();")
                lines.append(f"for (const Tensor& t : {a.name}) made->next_edges.push_back(gradient_edge(t));")
            else:
                lines.append(f"made->next_edges.push_back(gradient_edge({a.name}));")
    else:
        lines.append(f"made->next_edges.reserve({len(d.inputs)});")
        for a in d.inputs:
            lines.append(f"made->next_edges.push_back(gradient_edge({a.name}));")
    for s in d.saved:
        if s.is_output:
            continue
        if s.is_list:
            lines.append(f"made->{s.member}_ = save_list({s.fill});")
        elif s.is_tensor:
            value = "in_place ? self.clone() : self" if s.fill == "self" else s.fill
            guard = f"if ({' || '.join(f'made->leads_on({i})' for i in s.edges)}) " if s.edges else ""
            lines.append(f"{guard}made->{s.member}_ = SavedTensor({value});")
        elif s.ctype.startswith("std::optional<DimVector>"):
            lines.append(f"if ({s.fill}) made->{s.member}_ = DimVector(*{s.fill});")
        elif s.ctype.startswith("std::optional<std::vector"):
            lines.append(f"if ({s.fill}) made->{s.member}_ = {s.fill}->vec();")
        elif s.ctype.startswith("std::optional<std::string>"):
            lines.append(f"if ({s.fill}) made->{s.member}_ = std::string(*{s.fill});")
        elif s.ctype.startswith("std::vector") and s.fill.isidentifier():
            lines.append(f"made->{s.member}_ = {s.fill}.vec();")
        else:
            lines.append(f"made->{s.member}_ = {s.ctype}({s.fill});")
    return lines


def read_by_node(d: Derivative, schema: Schema) -> tuple[list[Argument], bool]:
    """The arguments from which a node is filled, and whether it matters to it that self is changed in place."""
    used = identifiers_in(" ".join(fill_lines(d)))
    return [a for a in schema.arguments if a.name in used], "in_place" in used


def node_maker(d: Derivative, schema: Schema) -> list[str]:
    """The function that makes a node with its edges and its saved inputs. All forms of an operation call it: with a copy in each,
    generated sources took 7 % longer to compile."""
    arguments, places = read_by_node(d, schema)
    kinds = ["const Tensor&" if a.type.is_tensor else a.type.cpp_argument() for a in arguments]
    given = [f"{kind} {a.name}" for kind, a in zip(kinds, arguments, strict=True)] + ["bool in_place"] * places
    return [
        f"  [[gnu::noinline]] static Ref<Node> of({', '.join(given)}) {{",
        f"    auto* made = new {d.node};",
        "    Ref<Node> node = Ref<Node>::adopt(made);",
        *("    " + line for line in fill_lines(d)),
        "    return node;",
        "  }",
    ]


def make_node(d: Derivative, schema: Schema, in_place: bool = False) -> str:
    """An expression for a new node."""
    arguments, places = read_by_node(d, schema)
    given = [a.name for a in arguments] + [str(in_place).lower()] * places
    return f"{d.node}::of({', '.join(given)})"
