"""Masked tensors of sparse data: what torch computes of them, and what it leaves out."""

import mica as torch
import pytest
from mica.masked import masked_tensor

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
LAYOUTS = {"coo": torch.sparse_coo, "csr": torch.sparse_csr}


def data():
    return torch.tensor([[1.0, 0, -2], [0, 3, 0]])


def mask():
    return torch.tensor([[True, False, True], [False, True, True]])


def sparse(tensor, layout):
    return getattr(tensor, f"to_sparse_{layout}")()


def example(layout, **options):
    return masked_tensor(sparse(data(), layout), sparse(mask(), layout), **options)


def parts(x):
    return x.get_data().to_dense().tolist(), x.get_mask().to_dense().tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_it_is(layout):
    x = example(layout)
    assert x.layout == LAYOUTS[layout] and x.is_sparse and x.is_sparse_coo() == (layout == "coo") != x.is_sparse_csr()
    assert x.get_data()._nnz() == 4  # a zero where the mask marks one that the data has not
    assert (
        repr(x) == "MaskedTensor(\n  [\n    [  1.0000,       --,  -2.0000],\n    [      --,   3.0000,   0.0000]\n  ]\n)"
    )
    assert x.to_tensor(9.0).tolist() == [[1, 9, -2], [9, 3, 0]]
    for there in (x.to_dense(), x.to_sparse_coo(), x.to_sparse_csr(), x.to_dense().to_sparse(layout=LAYOUTS[layout])):
        assert parts(there) == (data().tolist(), mask().tolist())
    assert x.to_dense().layout == torch.strided and x.to_sparse_csr().layout == torch.sparse_csr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pointwise_functions_work_on_the_values(layout):
    x = example(layout)
    for result, expected in (
        (torch.sin(x), data().sin()),
        (-x, -data()),
        (x * x, data() * data()),
        (x + 1, (data() + 1) * mask()),
        (2 - x, (2 - data()) * mask()),
        (x**2, data() ** 2),
        (x.clone().mul_(2), data() * 2),
        (x.double(), data().double()),
        (torch.where(sparse(mask(), layout), x, x), data()),
    ):
        assert result.layout == LAYOUTS[layout] and result.get_data()._nnz() == 4
        assert parts(result) == (expected.tolist(), mask().tolist())
    assert parts(x == x)[0] == mask().tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions_and_shapes(layout):
    x = example(layout)
    assert [getattr(x, name)().get_data().item() for name in ("sum", "mean", "amax", "amin")] == [2, 0.5, 3, -2]
    assert x.sum(0).get_data().tolist() == [1, 3, -2] and x.amax(1, keepdim=True).get_data().tolist() == [[1], [3]]
    assert parts(x.t()) == (data().t().tolist(), mask().t().tolist()) and x.t().layout == LAYOUTS[layout]
    assert parts(x[0]) == ([1, 0, -2], [True, False, True]) and x[0].layout == torch.sparse_coo
    softmax = torch.softmax(x, 1)
    torch.testing.assert_close(
        softmax.get_data().to_dense()[0], torch.tensor([0.952574, 0, 0.047426]), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout):
    x = example(layout, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.layout == LAYOUTS[layout] and parts(x.grad) == ((2 * data()).tolist(), mask().tolist())
    y = masked_tensor(data(), mask(), requires_grad=True)
    torch.sin(y.to_sparse(layout=LAYOUTS[layout])).to_dense().sum().backward()
    torch.testing.assert_close(y.grad.get_data(), data().cos() * mask())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions_of_sparse_tensors(layout):
    x, marks = sparse(data(), layout), sparse(mask(), layout)
    for name, columns, rows in (
        ("sum", [[1, 3, -2]], [[-1], [3]]),
        ("prod", [[1, 3, 0]], [[-2], [0]]),
        ("amax", [[1, 3, 0]], [[1], [3]]),
        ("amin", [[1, 3, -2]], [[-2], [0]]),
        ("mean", [[1, 3, -1]], [[-0.5], [1.5]]),
    ):
        for dim, expected in ((0, columns), (1, rows)):
            found = getattr(torch.masked, name)(x, dim, keepdim=True, mask=marks)
            assert found.layout == LAYOUTS[layout] and found.to_dense().tolist() == expected, name
            same = getattr(torch.masked, name)(example(layout), dim, keepdim=True)
            assert same.to_dense().tolist() == expected, name
    half = torch.masked.sum(x, 1, keepdim=True, mask=sparse(torch.tensor([[True, False, False], [False] * 3]), layout))
    assert half._nnz() == 1 and half.to_dense().tolist() == [[1], [0]]
    assert torch.masked.sum(x, 0, keepdim=True).to_dense().tolist() == [[1, 3, -2]]
    if layout == "coo":
        assert torch.masked.amax(x, mask=marks).to_dense().item() == 3
        assert torch.masked.sum(x, 1, mask=marks).to_dense().tolist() == [-1, 3]
    else:
        with pytest.raises(RuntimeError, match="CSR tensors with keepdim=False is unsupported"):
            torch.masked.sum(x, 1, mask=marks)
    with pytest.raises(ValueError, match=f"masked amax expects explicit mask for sparse_{layout} tensor input"):
        torch.masked.amax(x, 1)
    with pytest.raises(ValueError, match="masked argmax expects strided tensor"):
        torch.masked.argmax(x, 1, mask=marks)


def test_what_is_refused():
    other = torch.tensor([[True, True, False], [False, False, True]])
    three = torch.tensor([[1.0, 0, 0], [0, 3, 1]])
    x = example("coo")
    for error, words, call in (
        (TypeError, "data and mask must have the same layout", lambda: masked_tensor(data().to_sparse(), mask())),
        (TypeError, "data layout of torch.sparse_csc is not supported", lambda: masked_tensor(sparse(data(), "csc"), sparse(mask(), "csc"))),
        (TypeError, "mask must have dtype bool", lambda: masked_tensor(data().to_sparse(), data().to_sparse())),
        (ValueError, "do not have the same indices", lambda: masked_tensor(three.to_sparse(), other.to_sparse())),
        (ValueError, "do not share either crow or col", lambda: masked_tensor(sparse(three, "csr"), sparse(other, "csr"))),
        (ValueError, "Input masks must match", lambda: x * masked_tensor(data().to_sparse(), (data() != 0).to_sparse())),
        (ValueError, "must have the same layout", lambda: x * masked_tensor(data(), mask())),
        (TypeError, "a sparse MaskedTensor and a plain tensor", lambda: x * data()),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


def test_reductions_to_one_number_leave_nothing_out():
    """Recorded from torch 2.13: the identity where all is masked out, nothing where the number is zero."""
    x = torch.tensor([[2.0, 3.0], [0.0, 5.0]]).to_sparse()
    none, every = torch.zeros(2, 2, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool)
    for name, expected in (("prod", [1.0]), ("amax", [-torch.inf]), ("amin", [torch.inf]), ("sum", [])):
        got = getattr(torch.masked, name)(x, dim=(), mask=none.to_sparse())
        assert got.layout == torch.sparse_coo and got.shape == () and got._values().tolist() == expected, name
    assert torch.masked.prod(x, dim=(), mask=every)._nnz() == 0
    assert torch.masked.sum(x, dim=(), mask=every)._values().tolist() == [10.0]
