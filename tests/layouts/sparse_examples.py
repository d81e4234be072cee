"""Sparse tensors that the tests of layouts share."""

import mica as torch

COMPRESSED = [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
LAYOUTS = [torch.sparse_coo, *COMPRESSED]


def dense_example(rows=4, columns=6, dtype=torch.float64):
    x = torch.arange(1, rows * columns + 1).reshape(rows, columns)
    return torch.where(x % 3 == 0, x, torch.zeros_like(x)).to(dtype)


def in_layout(x, layout):
    block = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return x.to_sparse(layout=layout, blocksize=block)


def coo(dtype=torch.float32):
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], torch.tensor([3, 4, 5], dtype=dtype), (2, 3))
