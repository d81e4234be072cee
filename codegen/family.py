"""The C++ source of a family: the autograd nodes and the entries of its operations, with all that they include."""

from __future__ import annotations

from cpp import pointwise_constant, wants_inplace, wants_out
from derivative import node_class, saved_fields
from entries import Writer
from model import Op
from rare import forward_declarations

BANNER = (
    "// Generated from ops/{folder}{family}.toml. `python3 codegen/generate.py show {example}` prints all of an "
    "operation.\n"
)

PROMOTION_CPP = {
    "arithmetic": "Arithmetic",
    "float": "Float",
    "compare": "Compare",
    "real": "Real",
    "float_real": "FloatReal",
    "none": "None",
}


def family_source(family: str, ops: list[Op]) -> str:
    is_layer = ops[0].is_layer
    lines = [BANNER.format(folder="layers/" if is_layer else "", family=family, example=ops[0].name)]
    own = [f'#include "{header}"' for header in ops[0].includes]
    if is_layer:
        own += [
            '#include "mica/backend/layer_backend.h"',
            f'#include "mica/generated/layers/{family}.h"',
            f'#include "mica/generated/layers/{family}_implementations.h"',
        ]
    else:
        own += ['#include "mica/backend.h"', '#include "mica/generated/implementations.h"']
    lines += [
        "#include <array>",
        "#include <utility>",
        "",
        '#include "autograd/formulas/formulas.h"',
        '#include "autograd/saved_fields.h"',
        '#include "dispatch/lowered.h"',
        '#include "core/entry.h"',
        '#include "core/out.h"',
        '#include "core/pointwise.h"',
        '#include "mica/autocast.h"',
        '#include "mica/autograd.h"',
        '#include "mica/names.h"',
        '#include "mica/ops.h"',
        '#include "mica/profiler.h"',
        *own,
        "",
        "namespace mica {",
        "",
        *forward_declarations(ops),
        "using namespace formulas;  // NOLINT: what derivative expressions call",
        "namespace {",
        "",
    ]
    public: list[str] = []
    fields: list[str] = []
    for op in ops:
        if op.kind == "pointwise":
            count = len(op.schema.returns)
            lines.append(
                f'constexpr PointwiseOp {pointwise_constant(op)}{{"{op.name}", '
                f"Promotion::{PROMOTION_CPP[op.promotion]}, {count}}};"
            )
        for schema in op.schemas:
            if op.kind == "declared":
                continue
            w = Writer(op, schema)
            if w.derivative:
                lines.append(node_class(w.derivative, schema))
                fields += saved_fields(w.derivative)
            for derivative in w.layout_derivatives():
                lines.append(node_class(derivative, schema))
                fields += saved_fields(derivative)
            public.append(f"// {schema.text}")
            if op.kind == "inplace":
                lines.append(w.rare_inplace())
                if w.dispatches_inplace():
                    lines.append(w.dispatched_inplace())
                public.append(w.inplace())
                continue
            if w.has_rare_functional():
                lines.append(w.rare_functional())
            if w.dispatch_way() not in ("", "unseen"):
                lines.append(w.dispatched_functional())
            public.append(w.functional())
            if wants_inplace(op, schema):
                lines.append(w.rare_inplace())
                if w.dispatches_inplace():
                    lines.append(w.dispatched_inplace())
                public.append(w.inplace())
            if wants_out(op, schema):
                if w.dispatches_out():
                    lines.append(w.dispatched_out())
                if schema.tensors:
                    lines.append(w.rare_out())
                public.append(w.out())
    if fields:
        name = f"saved_fields_of_{family}"
        lines += [f"constexpr SavedFields {name}[] = {{", *fields, "};"]
        lines.append(f"const SavedFieldsTable {name}_table({name}, std::size({name}));")
    lines += ["", "}  // namespace", "", *public, "}  // namespace mica", ""]
    return "\n".join(lines)
