"""Products of matrices in groups, for mixtures of experts."""

from mica import _C

__all__ = ["grouped_mm"]


def _bounds(offs):
    ends = offs.tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _check(mat_a, mat_b, offs, bias):
    if mat_a.dim() not in (2, 3) or mat_b.dim() not in (2, 3):
        raise RuntimeError(f"mat_a and mat_b have to be 2d or 3d, got {mat_a.dim()}d and {mat_b.dim()}d")
    needed = mat_a.dim() == 2 or mat_b.dim() == 2
    if (offs is not None) != needed:
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if offs is not None and (offs.dim() != 1 or offs.dtype != _C.int32):
        raise RuntimeError(f"Offsets have to be a 1d tensor of int32, got {offs.dim()}d of {offs.dtype}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(
            "contraction dimension of mat_a and mat_b must match, but mat_a has "
            f"{mat_a.shape[-1]} columns and mat_b {mat_b.shape[-2]} rows"
        )
    if bias is not None:
        raise RuntimeError("Bias not supported yet: add it to the result")


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of the groups of two matrices; `offs` says where each group of a 2-d one ends.

    A 2-d first matrix is split by rows, a 2-d second one by columns, two 2-d ones along what is summed over.
    """
    _check(mat_a, mat_b, offs, bias)
    if mat_a.dim() == 3 and mat_b.dim() == 3:
        out = _C.bmm(mat_a, mat_b)
    elif mat_a.dim() == 2 and mat_b.dim() == 3:
        parts = [mat_a[start:end] @ mat_b[i] for i, (start, end) in enumerate(_bounds(offs))]
        rest = mat_a.shape[0] - int(offs[-1])
        if rest > 0:  # rows after the last group belong to none
            parts.append(mat_a.new_zeros(rest, mat_b.shape[-1]))
        out = _C.cat(parts)
    elif mat_a.dim() == 3:
        parts = [mat_a[i] @ mat_b[:, start:end] for i, (start, end) in enumerate(_bounds(offs))]
        out = _C.cat(parts, 1)
    else:
        out = _C.stack([mat_a[:, start:end] @ mat_b[start:end] for start, end in _bounds(offs)])
    return out if out_dtype is None else out.to(out_dtype)
