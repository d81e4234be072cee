"""Interpolation to a size, as operators of aten ask for it."""

import mica
from mica.nn import functional as F


def resized(input, output_size, mode, align_corners, antialias, scales):
    """F.interpolate to a size. Scales beside it, None or one for each of its dimensions, say how places are found."""
    given = [0.0 if scale is None else float(scale) for scale in scales]
    if not any(given) or input.dim() != 2 + len(given):
        return F.interpolate(input, list(output_size), None, mode, align_corners, antialias=antialias)
    return mica._C._upsample(input, list(output_size), mode, bool(align_corners), antialias, given)
