"""torch.Tag: what the author of an operator says about it."""

import enum


class Tag(enum.IntEnum):
    """What an operator's author says about it. `inplace` and `out` let it return an argument that it has written."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    __str__ = enum.Enum.__str__


Tag.__module__ = "torch"
