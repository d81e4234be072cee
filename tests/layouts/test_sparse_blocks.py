"""Between sparse layouts: no dense form in between, indices of the width that they had, sums that stay in blocks."""

import mica as torch
import pytest

DENSE = torch.tensor([[1.0, 0, 2, 0], [0, 0, 3, 0], [0, 4, 0, 0], [5, 0, 0, 6]])
LAYOUTS = ("csr", "csc", "bsr", "bsc")


def in_layout(x, name, block=(2, 2)):
    return getattr(x, f"to_sparse_{name}")(*([block] if name[0] == "b" else []))


def indices(x):
    names = ("crow", "col") if x.layout in (torch.sparse_csr, torch.sparse_bsr) else ("ccol", "row")
    return [getattr(x, f"{name}_indices")() for name in names]


def narrow(x):
    return torch.sparse_compressed_tensor(
        *(part.to(torch.int32) for part in indices(x)), x.values(), x.shape, layout=x.layout
    )


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_conversion(source, target):
    made = in_layout(narrow(in_layout(DENSE, source)), target)
    assert made.layout is getattr(torch, f"sparse_{target}")
    assert all(part.dtype is torch.int32 for part in indices(made))
    assert torch.equal(made.to_dense(), DENSE)


@pytest.mark.parametrize("block", [(1, 1), (1, 2), (4, 2), (2, 1)])
@pytest.mark.parametrize("target", ["bsr", "bsc"])
def test_blocks_of_any_size(target, block):
    for source in (DENSE.to_sparse(), DENSE.to_sparse_csr(), DENSE.to_sparse_bsr((2, 2))):
        made = in_layout(source, target, block)
        expected = in_layout(DENSE, target, block)
        assert torch.equal(made.to_dense(), DENSE)
        if source.layout is not torch.sparse_bsr:  # its blocks hold zeros, which are elements
            assert all(map(torch.equal, indices(made), indices(expected)))
            assert torch.equal(made.values(), expected.values())


def test_a_large_matrix_never_becomes_dense():
    size = 1 << 20  # dense it would take 4 TiB
    where = torch.tensor([[0, 5, size - 1, 5], [3, 7, size - 2, 6]])
    made = torch.sparse_coo_tensor(where, torch.tensor([1.0, 2.0, 3.0, 4.0]), (size, size)).to_sparse_bsr((2, 2))
    assert made.values().shape == (3, 2, 2) and made.col_indices().tolist() == [1, 3, size // 2 - 1]
    assert made.values()[1].tolist() == [[0, 0], [4, 2]]
    turned = made.to_sparse_bsc((2, 2))
    assert turned.row_indices().tolist() == [0, 2, size // 2 - 1] and torch.equal(turned.values(), made.values())


def test_gradients_pass_through_blocks():
    x = DENSE.to_sparse().requires_grad_()
    weight = torch.arange(16.0).reshape(4, 4)
    (grad,) = torch.autograd.grad((x.to_sparse_bsr((2, 2)).to_dense() * weight).sum(), x)
    assert torch.equal(grad.to_dense(), torch.where(DENSE != 0, weight, torch.zeros(())))


@pytest.mark.parametrize("name", LAYOUTS)
def test_sums_keep_layout_and_indices(name):
    x = narrow(in_layout(DENSE, name))
    for made, expected in ((x + x, 2 * DENSE), (x - x.clone(), 0 * DENSE), (torch.add(x, x, alpha=3), 4 * DENSE)):
        assert made.layout is x.layout and all(part.dtype is torch.int32 for part in indices(made))
        assert torch.equal(made.to_dense(), expected)
    empty = torch.zeros_like(x)
    assert empty.values().shape[0] == 0 and torch.equal(empty.to_dense(), torch.zeros(4, 4))


def test_batches_are_not_made_into_blocks():
    batch = torch.eye(4).expand(2, 4, 4)
    for name in ("csr", "csc"):
        compressed = getattr(batch, f"to_sparse_{name}")()
        for wanted in ("bsr", "bsc"):
            with pytest.raises(RuntimeError, match=f"to_sparse_{wanted}: .* for batched inputs is not supported"):
                getattr(compressed, f"to_sparse_{wanted}")((1, 1))
