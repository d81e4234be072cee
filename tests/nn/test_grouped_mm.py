"""grouped_mm: products of matrices in groups."""

import mica
import mica.nn.functional as F
import pytest

OFFSETS = mica.tensor([2, 2, 5], dtype=mica.int32)


def groups():
    return [(0, 2), (2, 2), (2, 5)]


def test_rows_in_groups():
    a = mica.randn(5, 4, dtype=mica.float64, requires_grad=True)
    b = mica.randn(3, 4, 6, dtype=mica.float64, requires_grad=True)
    wanted = mica.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(groups())])
    assert mica.equal(F.grouped_mm(a, b, offs=OFFSETS), wanted)
    assert mica.autograd.gradcheck(lambda a, b: F.grouped_mm(a, b, offs=OFFSETS), (a, b))
    padded = F.grouped_mm(mica.cat([a, a[:1]]), b, offs=OFFSETS)
    assert mica.equal(padded[:5], wanted) and (padded[5] == 0).all()


def test_columns_sums_and_batches():
    a, b = mica.randn(3, 6, 4), mica.randn(4, 5)
    wanted = mica.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(groups())], 1)
    assert mica.allclose(F.grouped_mm(a, b, offs=OFFSETS), wanted)
    left, right = mica.randn(4, 5), mica.randn(5, 6)
    wanted = mica.stack([left[:, i:j] @ right[i:j] for i, j in groups()])
    assert mica.allclose(F.grouped_mm(left, right, offs=OFFSETS), wanted)
    whole = mica.randn(3, 2, 4)
    assert mica.equal(F.grouped_mm(whole, a.transpose(1, 2)), whole @ a.transpose(1, 2))
    assert F.grouped_mm(whole, a.transpose(1, 2), out_dtype=mica.bfloat16).dtype == mica.bfloat16


def test_errors():
    a, b = mica.randn(5, 4), mica.randn(3, 4, 6)
    for call, words in [
        (lambda: F.grouped_mm(a, b), "Have to provide offsets"),
        (lambda: F.grouped_mm(a, b, offs=OFFSETS.long()), "Offsets have to be a 1d tensor of int32"),
        (lambda: F.grouped_mm(a[:, :3], b, offs=OFFSETS), "contraction dimension"),
        (lambda: F.grouped_mm(a[0], b, offs=OFFSETS), "have to be 2d or 3d"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()
