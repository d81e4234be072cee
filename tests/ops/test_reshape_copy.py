"""reshape(..., copy=): as NumPy has it."""

import mica
import pytest


@pytest.fixture
def x():
    return mica.arange(12.0).reshape(3, 4)


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_never_copies(x):
    assert shares(x.reshape(2, 6, copy=False), x) and shares(mica.reshape(x, (-1,), copy=False), x)
    assert shares(x[:, ::2].reshape(3, 1, 2, copy=False), x)
    assert mica.zeros(0, 3).reshape(5, 0, copy=False).shape == (5, 0)
    assert mica.tensor(2.0).reshape(1, 1, copy=False).shape == (1, 1)


@pytest.mark.parametrize(
    ("make", "shape", "words"),
    [
        (lambda x: x.t(), (12,), "dimension 0 would run over dimensions 0 and 1 of the input, but dimension 0 steps by 1 elements where 12"),
        (lambda x: x[:, :3], (-1,), "dimension 0 would run over dimensions 0 and 1 of the input, but dimension 0 steps by 4 elements where 3"),
        (lambda x: x.expand(2, 3, 4), (6, 4), "dimension 0 would run over dimensions 0 and 1 of the input, but dimension 0 steps by 0"),
        (lambda x: x.view(3, 2, 2).transpose(0, 1), (2, 6), "dimension 1 would run over dimensions 1 and 2"),
    ],
)  # fmt: skip
def test_says_which_dimension_is_in_the_way(x, make, shape, words):
    view = make(x)
    with pytest.raises(ValueError, match="^Unable to avoid creating a copy while reshaping.") as caught:
        view.reshape(shape, copy=False)
    assert words in str(caught.value), caught.value
    with pytest.raises(RuntimeError, match="^view size is not compatible") as caught:
        view.view(shape)
    assert "steps by" in str(caught.value)


def test_always_copies(x):
    y = x.reshape(2, 6, copy=True)
    assert not shares(y, x) and y.tolist() == x.reshape(2, 6).tolist() and not y._is_view()
    z = x.t().reshape((3, 4), copy=True)
    assert z.tolist() == x.t().reshape(3, 4).tolist() and z.is_contiguous()


def test_none_copies_where_it_must(x):
    assert shares(x.reshape(12, copy=None), x) and not shares(x.t().reshape(12, copy=None), x)


def test_gradients(x):
    for copy in (True, False, None):
        leaf = x.clone().requires_grad_()
        (leaf.reshape(4, 3, copy=copy) * mica.arange(12.0).view(4, 3)).sum().backward()
        assert leaf.grad.flatten().tolist() == list(range(12))


def test_inspection_knows_that_it_was_asked(x):
    with mica.inspect.copies() as log:
        x.reshape(12, copy=True)
        x.t().reshape(12, copy=True)
    assert len(log) == 0
    with mica.inspect.copies() as log:
        x.t().reshape(12, copy=None)
    assert [c.reason for c in log] == ["reshape"]


def test_sparse_makes_new_indices():
    x = mica.eye(4).to_sparse()
    assert x.reshape((2, 8), copy=True).to_dense().tolist() == mica.eye(4).reshape(2, 8).tolist()
    with pytest.raises(ValueError, match="another shape needs other indices"):
        x.reshape((2, 8), copy=False)


def test_errors(x):
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 12"):
        x.reshape(5, copy=False)
    with pytest.raises(TypeError, match="argument 'copy' must be bool, not str"):
        x.reshape(12, copy="yes")
    with pytest.raises(TypeError, match="unexpected keyword argument 'copies'"):
        x.reshape(12, copies=True)
    with pytest.raises(TypeError, match="must be tuple of ints, not str"):
        x.reshape("a")


def test_meta_and_complex():
    assert mica.empty(3, 4, device="meta").reshape(12, copy=False).shape == (12,)
    z = mica.randn(2, 2, dtype=mica.complex64).conj()
    assert mica.equal(z.reshape(4, copy=True), z.resolve_conj().reshape(4))
    assert z.reshape(4, copy=False).is_conj()
