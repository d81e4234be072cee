"""Strided data with a sparse mask: what the mask does not hold is masked out."""

import mica as torch
import pytest


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod", "mean", "var", "norm"])
def test_a_sparse_mask(name, layout):
    x = torch.tensor([[1.0, 0, 2.0, 0], [0, 0, 3.0, 1.0]])
    mask = torch.tensor([[True, False, True, True], [False, True, False, True]])
    reduce = getattr(torch.masked, name)
    args = (2.0, 1) if name == "norm" else (1,)
    extra = {"unbiased": False} if name == "var" else {}
    got = reduce(x, *args, mask=mask.to_sparse(layout=layout), **extra)
    torch.testing.assert_close(got, reduce(x, *args, mask=mask, **extra))
