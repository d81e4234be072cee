"""Operations on sparse tensors: arithmetic, shapes, products, and gradients through them."""

import mica as torch
import pytest
from mica.autograd import gradcheck
from sparse_examples import LAYOUTS, coo, dense_example, in_layout

# ---- arithmetic


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["abs", "neg", "sqrt", "sin", "tanh", "expm1", "log1p", "sign", "floor", "relu"])
def test_functions_that_are_zero_at_zero(layout, name):
    x = dense_example()
    y = getattr(in_layout(x, layout), name)()
    assert y.layout is layout
    torch.testing.assert_close(y.to_dense(), getattr(x, name)())


def test_sums_of_sparse_tensors():
    x, y = dense_example(), dense_example().flip(1)
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        a, b = in_layout(x, layout), in_layout(y, layout)
        assert torch.equal((a + b).to_dense(), x + y) and torch.equal((a - b).to_dense(), x - y)
        assert torch.equal(torch.add(a, b, alpha=3).to_dense(), x + 3 * y)
    assert torch.equal(y + x.to_sparse(), x + y)
    with pytest.raises(RuntimeError, match="add\\(sparse, dense\\) is not supported"):
        x.to_sparse() + y


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_with_numbers_and_tensors(layout):
    x, y = dense_example(), dense_example().flip(1) + 1
    s = in_layout(x, layout)
    assert torch.equal((s * 2).to_dense(), x * 2) and torch.equal((s / 2).to_dense(), x / 2)
    assert torch.equal((s * y).to_dense(), x * y)
    assert torch.equal((s * torch.tensor(3.0)).to_dense(), x * 3)
    assert torch.equal((s**2).to_dense(), x**2)


def test_elementwise_product_of_sparse_tensors():
    x, y = dense_example(), dense_example().flip(1)
    assert torch.equal((x.to_sparse() * y.to_sparse()).to_dense(), x * y)


def test_in_place():
    x = dense_example()
    s = x.to_sparse()
    version = s._version
    s.mul_(2)
    assert torch.equal(s.to_dense(), 2 * x) and s._version > version
    s.add_(x.to_sparse())
    assert torch.equal(s.to_dense(), 3 * x)
    d = torch.ones_like(x)
    d.add_(s, alpha=-1)
    assert torch.equal(d, 1 - 3 * x)
    s.zero_()
    assert s._nnz() == 0
    s.copy_(x.to_sparse())
    assert torch.equal(s.to_dense(), x)


def test_an_operation_that_sparse_tensors_do_not_have():
    with pytest.raises(
        NotImplementedError, match="Could not run 'aten::cos' with arguments from the 'SparseCPU' backend"
    ):
        coo().cos()
    with pytest.raises(NotImplementedError, match="'SparseCsrCPU' backend"):
        coo().to_sparse_csr().cumsum(0)
    for call in (lambda s: s.numpy(), lambda s: s.untyped_storage(), lambda s: s.data_ptr()):
        with pytest.raises((TypeError, NotImplementedError, RuntimeError)):
            call(coo())


# ---- shape


@pytest.mark.parametrize("layout", LAYOUTS)
def test_transposes(layout):
    x = dense_example()
    s = in_layout(x, layout)
    assert torch.equal(s.t().to_dense(), x.t()) and torch.equal(s.transpose(0, 1).to_dense(), x.t())


def test_shapes_of_coo_tensors():
    x = dense_example()
    s = x.to_sparse()
    assert torch.equal(s[1].to_dense(), x[1]) and torch.equal(s[:, 2].to_dense(), x[:, 2])
    assert torch.equal(s[1:3].to_dense(), x[1:3]) and torch.equal(s.narrow_copy(1, 2, 3).to_dense(), x[:, 2:5])
    assert torch.equal(s.unsqueeze(1).to_dense(), x.unsqueeze(1))
    assert torch.equal(s.unsqueeze(0).squeeze(0).to_dense(), x)
    assert torch.equal(s.permute(1, 0).to_dense(), x.t())
    index = torch.tensor([2, 0, 2])
    assert torch.equal(s.index_select(0, index).to_dense(), x[index])
    assert torch.equal(torch.cat([s, s]).to_dense(), torch.cat([x, x]))
    assert torch.equal(torch.cat([s, s], 1).to_dense(), torch.cat([x, x], 1))
    assert torch.equal(torch.stack([s, s]).to_dense(), torch.stack([x, x]))
    assert torch.equal(s.reshape(8, 3).to_dense(), x.reshape(8, 3))
    assert torch.equal(s[1, 2], x[1, 2])
    with pytest.raises(IndexError):
        s[7]


def test_reductions():
    x = dense_example()
    for layout in LAYOUTS:
        assert torch.equal(in_layout(x, layout).sum(), x.sum())
    s = x.to_sparse()
    assert torch.equal(torch.sparse.sum(s, 0).to_dense(), x.sum(0))
    assert torch.equal(torch.sparse.sum(s, [0, 1]), x.sum())
    assert torch.equal(s.sum(1, keepdim=True).to_dense(), x.sum(1, keepdim=True))
    torch.testing.assert_close(s.norm(), x.norm())


def test_softmax():
    s = torch.sparse_coo_tensor([[0, 0, 1], [0, 2, 1]], [1.0, 2.0, 5.0], (2, 3))
    d = torch.full((2, 3), -torch.inf)
    d[0, 0], d[0, 2], d[1, 1] = 1, 2, 5
    expected = d.softmax(1)
    torch.testing.assert_close(torch.sparse.softmax(s, 1).to_dense(), expected)
    logs = torch.sparse.log_softmax(s, 1).coalesce().values()
    torch.testing.assert_close(logs, expected[[0, 0, 1], [0, 2, 1]].log())


def test_spdiags():
    table = torch.tensor([[1, 2, 3], [4, 5, 6]])
    made = torch.sparse.spdiags(table, torch.tensor([0, -1]), (3, 3)).to_dense()
    assert made.tolist() == [[1, 0, 0], [4, 2, 0], [0, 5, 3]]
    with pytest.raises(RuntimeError, match="duplicate"):
        torch.sparse.spdiags(table, torch.tensor([0, 0]), (3, 3))


# ---- products


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.int64])
def test_product_with_a_dense_matrix(layout, dtype):
    x = dense_example(dtype=dtype)
    y = torch.arange(6 * 37).reshape(6, 37).to(dtype)
    s = in_layout(x, layout)
    torch.testing.assert_close(s @ y, x @ y)
    torch.testing.assert_close(torch.sparse.mm(s, y), x @ y)
    torch.testing.assert_close(s @ y[:, 0], x @ y[:, 0])
    torch.testing.assert_close(y.t() @ s.t(), y.t() @ x.t())
    torch.testing.assert_close(
        torch.sparse.addmm(torch.ones(4, 37, dtype=dtype), s, y, beta=2, alpha=3), 2 + 3 * (x @ y)
    )


def test_product_of_sparse_matrices():
    x, y = dense_example(), dense_example(6, 5)
    torch.testing.assert_close(torch.sparse.mm(x.to_sparse(), y.to_sparse()).to_dense(), x @ y)
    torch.testing.assert_close((x.to_sparse_csr() @ y.to_sparse_csr()).to_dense(), x @ y)


def test_reduce_by_its_short_names():
    x, y = torch.tensor([[1.0, 2.0], [0.0, 3.0]]).to_sparse_csr(), torch.tensor([[4.0, -1.0], [1.0, 5.0]])
    for short, known in (("max", "amax"), ("min", "amin")):
        assert torch.equal(torch.sparse.mm(x, y, short), torch.sparse.mm(x, y, known))
    with pytest.raises(RuntimeError, match="reduce argument must be either sum, prod, mean, amax or amin, got best"):
        torch.sparse.mm(x, y, "best")


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_product_with_reduce(reduce):
    x, y = dense_example(), torch.arange(12.0, dtype=torch.float64).reshape(6, 2) - 5
    got = torch.sparse.mm(x.to_sparse_csr(), y, reduce)
    for i in range(4):
        held = x[i].nonzero()[:, 0]
        terms = x[i, held, None] * y[held]
        expected = {"sum": terms.sum(0), "mean": terms.mean(0), "amax": terms.amax(0), "amin": terms.amin(0)}[reduce]
        torch.testing.assert_close(got[i], expected)


@pytest.mark.parametrize(
    ("reduce", "of_sparse", "of_dense"),
    [
        ("amax", [[2, 0, 50], [0, 1200, 0]], [[1, 0], [300, 3000], [0, 20]]),
        ("amin", [[12, 0, 0], [0, 1200, 0]], [[1, 10], [300, 3000], [0, 0]]),
    ],
)
def test_of_equal_terms_the_first_has_the_gradient(reduce, of_sparse, of_dense):
    x = torch.tensor([[1.0, 1, 2], [0, 3, 0]]).to_sparse_csr().requires_grad_()
    y = torch.tensor([[2.0, 1], [2, 1], [1, 5]], requires_grad=True)
    torch.sparse.mm(x, y, reduce).backward(torch.tensor([[1.0, 10], [100, 1000]]))
    assert x.grad.to_dense().tolist() == of_sparse and y.grad.tolist() == of_dense
    empty = torch.zeros(2, 3).to_sparse_csr().requires_grad_()
    assert torch.sparse.mm(empty, y, reduce).tolist() == [[0, 0], [0, 0]]


def test_sampled_addmm():
    x = dense_example()
    a, b = torch.rand(4, 3, dtype=torch.float64), torch.rand(3, 6, dtype=torch.float64)
    got = torch.sparse.sampled_addmm(x.to_sparse_csr(), a, b, beta=2, alpha=3)
    torch.testing.assert_close(got.to_dense(), torch.where(x != 0, 2 * x + 3 * (a @ b), torch.zeros_like(x)))
    out = torch.zeros_like(got)
    assert torch.sparse.sampled_addmm(x.to_sparse_csr(), a, b, beta=2, alpha=3, out=out) is out
    assert torch.equal(out.to_dense(), got.to_dense())
    with pytest.raises(RuntimeError, match="Expected out to have torch.sparse_csr layout"):
        torch.sparse.sampled_addmm(x.to_sparse_csr(), a, b, out=torch.zeros(3, 4))


def test_batched_product():
    x, y = torch.stack([dense_example(), dense_example().flip(0)]), torch.rand(2, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.bmm(x.to_sparse(), y), torch.bmm(x, y))


def test_shapes_that_do_not_fit():
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.sparse.mm(coo(), torch.ones(5, 2))


# ---- gradients


def test_gradients_reach_values():
    v = torch.tensor([2.0, 3.0], requires_grad=True)
    x = torch.ones(2, 2, requires_grad=True)
    torch.sparse.mm(torch.sparse_coo_tensor([[0, 1], [1, 0]], v, (2, 2)), x).sum().backward()
    assert v.grad.tolist() == [2, 2] and x.grad.tolist() == [[3, 3], [2, 2]]


def test_a_sparse_leaf_has_a_sparse_gradient():
    s = coo().requires_grad_()
    torch.sparse.mm(s, torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert s.grad.is_sparse and s.grad.to_dense().tolist() == [[0, 0, 3], [1, 0, 3]]
    torch.sparse.mm(s, torch.ones(3, 1)).sum().backward()
    assert s.grad.to_dense().tolist() == [[0, 0, 4], [2, 0, 4]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masked_and_unmasked_gradients_of_to_dense(layout):
    x = in_layout(dense_example(), layout).requires_grad_()
    weights = torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
    (x.to_dense() * weights).sum().backward()
    held = in_layout(dense_example(), layout).to_dense() != 0
    if layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        assert torch.equal(x.grad.to_dense(), weights * held)
    x.grad = None
    (x.to_dense(masked_grad=False) * weights).sum().backward()
    assert torch.equal(x.grad.to_dense(), weights)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_gradcheck_of_products(layout):
    pattern = in_layout(dense_example(), layout)
    check = torch.sparse.as_sparse_gradcheck(gradcheck)
    dense = torch.rand(6, 3, dtype=torch.float64, requires_grad=True)
    assert check(torch.sparse.mm, (pattern.requires_grad_(), dense), masked=True)
    assert check(lambda s: (s * 2).sin().sum(), (in_layout(dense_example(), layout).requires_grad_(),), masked=True)


@pytest.mark.parametrize(
    "layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
)
def test_gradcheck_without_a_mask_varies_zeros_too(layout):
    block = (1, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64).to_sparse(layout=layout, blocksize=block)
    check = torch.sparse.as_sparse_gradcheck(gradcheck)
    assert check(lambda s: s.to_dense() * 3, x.requires_grad_())
    if layout is torch.sparse_coo:
        assert check(lambda s: s.to_sparse_csr(), x)


def test_gradcheck_of_values():
    indices = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])
    values = torch.rand(4, dtype=torch.float64, requires_grad=True)

    def make(v):
        return torch.sparse_coo_tensor(indices, v, (2, 3))

    assert gradcheck(lambda v: make(v).coalesce().values(), (values,))
    assert gradcheck(lambda v: make(v).to_dense(), (values,))
    assert gradcheck(lambda v: (make(v) + make(v * v)).to_dense(), (values,))
    assert gradcheck(lambda v: torch.sparse.softmax(make(v), 1).to_dense(), (values,))
    assert gradcheck(lambda v: torch.sparse.sum(make(v), 0).to_dense(), (values,))
    assert gradcheck(lambda v: torch.sparse.mm(make(v), make(v * 2).t()).to_dense(), (values,))
    assert gradcheck(lambda v: make(v).index_select(1, torch.tensor([2, 0])).to_dense(), (values,))


def test_embedding_with_sparse_gradients():
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 4, sparse=True, padding_idx=1)
    dense = torch.nn.Embedding(10, 4, padding_idx=1)
    dense.load_state_dict(table.state_dict())
    index = torch.tensor([[1, 2, 2], [7, 1, 0]])
    for module in (table, dense):
        (module(index) ** 2).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad._nnz() == 4
    torch.testing.assert_close(table.weight.grad.to_dense(), dense.weight.grad)
    before = table.weight.detach().clone()
    torch.optim.SGD(table.parameters(), lr=0.1).step()
    torch.testing.assert_close(table.weight.detach(), before - 0.1 * dense.weight.grad)


def test_sparse_adam_touches_only_what_the_gradient_holds():
    torch.manual_seed(0)
    table = torch.nn.Embedding(6, 3, sparse=True)
    start = table.weight.detach().clone()
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (table(torch.tensor([1, 4, 4])) ** 2).sum().backward()
        optimizer.step()
    moved = (table.weight.detach() != start).any(1)
    assert moved.tolist() == [False, True, False, False, True, False]
    assert (table.weight[1].abs() < start[1].abs()).all()


def test_sums_over_dimensions_are_coalesced():
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], torch.tensor([3.0, 4, 5]), (2, 3))
    for given in (s, s.coalesce()):
        total = torch.sparse.sum(given, 0)
        assert total.is_coalesced() and total.indices().tolist() == [[0, 2]] and total.values().tolist() == [4, 8]
        assert torch.sparse.sum(given, 1).values().tolist() == [3, 9]
    hybrid = torch.sparse_coo_tensor([[1, 1]], torch.ones(2, 3), (2, 3))
    assert torch.sparse.sum(hybrid, 1).values().tolist() == [6]
    values = torch.ones(3, requires_grad=True)
    total = torch.sparse.sum(torch.sparse_coo_tensor(s._indices(), values, (2, 3)), 1)
    (total.to_dense() * torch.tensor([1.0, 2])).sum().backward()
    assert values.grad.tolist() == [1, 2, 2]


def test_repeated_sums_stay_small():
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], torch.tensor([3.0, 4, 5]), (2, 3))
    total = s
    for _ in range(9):
        total = total + s
    assert total._nnz() <= 6
    assert total.to_dense().equal(s.to_dense() * 10)
