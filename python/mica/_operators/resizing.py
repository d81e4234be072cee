"""Interpolation to a size, as operators of aten ask for it."""

import mica
from mica.nn import functional as F


def resized(input, output_size, mode, align_corners, antialias, scales):
    """F.interpolate to a size. Each of `scales`, if it is not None, says how positions along a dimension are computed."""
    given = [0.0 if scale is None else float(scale) for scale in scales]
    if not any(given) or input.dim() != 2 + len(given):
        return F.interpolate(input, list(output_size), None, mode, align_corners, antialias=antialias)
    return mica._C._upsample(input, list(output_size), mode, bool(align_corners), antialias, given)
