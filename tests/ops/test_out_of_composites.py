"""out= of composed operations that write into it (`writes_out` in ops/*.toml): without a copy where it fits, and never half."""

import sys
import warnings
from pathlib import Path

import mica as torch
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "codegen"))
import model
from schema import TableError

X = torch.arange(12, dtype=torch.float32).view(3, 4) / 4 - 1
Y = X.flip(0) + 0.5
Z = torch.complex(X, Y)
ROWS, PLACES = torch.tensor([2, 0, 2]), torch.tensor([[2, 0, 1, 0], [0, 1, 0, 2]])

# name -> the call, with the keyword out.
CALLS = {
    "clamp": lambda **out: torch.clamp(X, -0.5, 0.75, **out),
    "clamp lower": lambda **out: torch.clamp(X, min=0.25, **out),
    "clamp upper": lambda **out: torch.clamp(X, max=0.25, **out),
    "clamp tensors": lambda **out: torch.clamp(X, Y - 1, Y, **out),
    "clamp lower tensor": lambda **out: torch.clamp(X, min=Y, **out),
    "clip": lambda **out: torch.clip(X, max=Y, **out),
    "square": lambda **out: torch.square(X, **out),
    "conj_physical": lambda **out: torch.conj_physical(Z, **out),
    "conj_physical real": lambda **out: torch.conj_physical(X, **out),
    "div": lambda **out: torch.div(X, Y, rounding_mode=None, **out),
    "div floor": lambda **out: torch.div(X, Y, rounding_mode="floor", **out),
    "div trunc": lambda **out: torch.div(X, 0.3, rounding_mode="trunc", **out),
    "float_power": lambda **out: torch.float_power(X, 2, **out),
    "float_power of numbers": lambda **out: torch.float_power(2, X, **out),
    "float_power of tensors": lambda **out: torch.float_power(X, Y.round(), **out),
    "max": lambda **out: torch.max(X, Y, **out),
    "min": lambda **out: torch.min(X, Y, **out),
    "stack": lambda **out: torch.stack((X, Y), 1, **out),
    "hstack": lambda **out: torch.hstack((X, Y), **out),
    "hstack of vectors": lambda **out: torch.hstack((X[0], Y[1]), **out),
    "vstack": lambda **out: torch.vstack((X, Y), **out),
    "dstack": lambda **out: torch.dstack((X, Y), **out),
    "column_stack": lambda **out: torch.column_stack((X, Y[:, 0]), **out),
    "outer": lambda **out: torch.outer(X[0], Y[:, 0], **out),
    "addr": lambda **out: torch.addr(X, Y[:, 0], X[1], beta=0.5, alpha=2, **out),
    "addr without self": lambda **out: torch.addr(X, Y[:, 0], X[1], beta=0, **out),
    "matmul": lambda **out: torch.matmul(X, Y.t(), **out),
    "matmul of vectors": lambda **out: torch.matmul(X[0], Y[0], **out),
    "matmul by a vector": lambda **out: torch.matmul(X, Y[0], **out),
    "matmul of a vector": lambda **out: torch.matmul(X[:, 0], Y, **out),
    "matmul of batches": lambda **out: torch.matmul(X.view(3, 2, 2), Y.view(3, 2, 2), **out),
    "matmul of a batch": lambda **out: torch.matmul(X.view(3, 2, 2), Y.view(6, 2)[:2], **out),
    "linalg.matmul": lambda **out: torch.linalg.matmul(X, Y.t(), **out),
    "narrow_copy": lambda **out: torch.narrow_copy(X, 1, 1, 2, **out),
    "t_copy": lambda **out: torch.t_copy(X, **out),
    "view_copy": lambda **out: torch.view_copy(X, (2, 6), **out),
    "view_copy of a dtype": lambda **out: torch.view_copy(X, torch.int32, **out),
    "expand_copy": lambda **out: torch.expand_copy(X[0], (3, 4), **out),
    "unfold_copy": lambda **out: torch.unfold_copy(X, 1, 2, 1, **out),
    "index_add": lambda **out: torch.index_add(X, 0, ROWS, Y, alpha=2, **out),
    "index_copy": lambda **out: torch.index_copy(X, 1, ROWS, Y[:, :3], **out),
    "index_reduce": lambda **out: torch.index_reduce(X, 0, ROWS, Y, "amax", **out),
    "scatter": lambda **out: torch.scatter(X, 0, PLACES, Y, **out),
    "scatter of a number": lambda **out: torch.scatter(X, 1, PLACES, 1.5, **out),
    "scatter by products": lambda **out: torch.scatter(X, 0, PLACES, 1.5, reduce="multiply", **out),
    "scatter by sums": lambda **out: torch.scatter(X, 0, PLACES, Y, reduce="add", **out),
    "scatter_add": lambda **out: torch.scatter_add(X, 0, PLACES, Y, **out),
    "scatter_reduce": lambda **out: torch.scatter_reduce(X, 0, PLACES, Y, "mean", include_self=False, **out),
    "diff": lambda **out: torch.diff(X, **out),
    "diff of diffs": lambda **out: torch.diff(X, 2, 0, append=Y, **out),
    "diff of bools": lambda **out: torch.diff(X > 0, **out),
    "diff of nothing": lambda **out: torch.diff(X, 0, **out),
    "renorm": lambda **out: torch.renorm(X, 2, 0, 0.5, **out),
    "eye": lambda **out: torch.eye(3, 4, **out),
    "square eye": lambda **out: torch.eye(3, **out),
    "zeros": lambda **out: torch.zeros(3, 4, **out),
    "ones": lambda **out: torch.ones(3, 4, **out),
    "full": lambda **out: torch.full((3, 4), 2.5, **out),
}
# What makes tensors of nothing. The result's dtype and device are those of out=.
FACTORIES = ("zeros", "ones", "full", "eye", "square eye")


def spread(like):
    """A tensor whose elements lie apart, full of other values."""
    wide = torch.full((*like.shape, 2), 77.0).to(like.dtype)
    return wide[..., 0]


def alike(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("name", CALLS)
def test_values(name):
    call = CALLS[name]
    expected = call()
    fits, apart, empty = torch.empty_like(expected), spread(expected), torch.empty(0, dtype=expected.dtype)
    address = fits.data_ptr()
    for out in (fits, apart, empty):
        version = out._version
        assert call(out=out) is out
        assert alike(out, expected)
        assert out._version == version + 1, "a call is one change"
    assert fits.data_ptr() == address
    assert torch.equal(apart.as_strided((apart.numel(),), (2,), 1), torch.full((apart.numel(),), 77.0).to(apart.dtype))


@pytest.mark.parametrize("name", CALLS)
def test_out_of_another_shape(name):
    call = CALLS[name]
    expected, out = call(), torch.ones(2, 5, dtype=call().dtype)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call(out=out)
    assert alike(out, expected)
    words = "An output with one or more elements was resized since it had shape [2, 5]"
    assert any(words in str(w.message) for w in seen) == (name not in FACTORIES)


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_of_out(name):
    call = CALLS[name]
    expected, wide = call(), torch.complex128 if call().is_complex() else torch.float64
    out = torch.full(expected.shape, 7, dtype=torch.int16)
    if name not in (*FACTORIES, "diff of bools"):
        with pytest.raises((RuntimeError, TypeError)):
            call(out=out)
        assert (out == 7).all()
    out = torch.full(expected.shape, 7, dtype=wide)
    try:
        call(out=out)
    except RuntimeError:
        assert (out == 7).all()
    else:
        assert alike(out, expected.to(wide))


@pytest.mark.parametrize(
    "name, words",
    {
        "clamp": "Found dtype Double but expected Float",
        "clamp lower": "Found dtype Double but expected Float",
        "conj_physical": "Found dtype Double but expected ComplexFloat",
        "matmul": "Expected out tensor to have dtype float, but got double instead",
        "matmul of vectors": "result dtype Double does not match input dtype Float",
        "t_copy": "Expected out tensor to have dtype float, but got double instead",
        "index_add": "Expected out tensor to have dtype float, but got double instead",
        "scatter of a number": "Expected out tensor to have dtype float, but got double instead",
        "renorm": "Expected out tensor to have dtype float, but got double instead",
    }.items(),
)
def test_words_about_a_dtype(name, words):
    with pytest.raises(RuntimeError) as error:
        CALLS[name](out=torch.empty(3, 4, dtype=torch.float64))
    assert words in str(error.value)


def test_words_of_operations_of_their_own():
    with pytest.raises(
        RuntimeError, match="the output given to float_power has dtype Float but the operation's result"
    ):
        torch.float_power(X, 2, out=torch.empty(3, 4))
    with pytest.raises(TypeError, match=r"cat\(\): input types can't be cast to the desired output type Long"):
        torch.stack((X, X), out=torch.empty(2, 3, 4, dtype=torch.int64))
    whole = torch.ones(3, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
        whole.clamp_(0.5, 1)
    with pytest.raises(RuntimeError, match="expected rounding_mode to be one of None, 'trunc', or 'floor'"):
        torch.div(X, Y, rounding_mode="up", out=torch.empty(3, 4))
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        torch.clamp(X, out=torch.empty(3, 4))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_refused(name):
    out = torch.empty_like(CALLS[name]())
    if not (out.is_floating_point() or out.is_complex()):
        return
    out.requires_grad_()
    with pytest.raises(RuntimeError, match=r"functions with out=... arguments don't support automatic differentiation"):
        CALLS[name](out=out)
    with torch.no_grad():
        assert alike(CALLS[name](out=out), CALLS[name]())
    assert out.requires_grad and out.is_leaf


def test_graphs_see_that_out_has_changed():
    x = torch.ones(3, 4, requires_grad=True)
    saved = torch.full((3, 4), 2.0)
    loss = (x * saved).sum()
    torch.clamp(X, 0, 1, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name", CALLS)
def test_meta(name):
    def on_meta(t):
        return t.to("meta")

    if name.startswith("float_power of numbers"):
        return
    expected = CALLS[name]()
    values = {k: globals()[k] for k in ("X", "Y", "Z", "ROWS", "PLACES")}
    try:
        globals().update({k: on_meta(v) for k, v in values.items()})
        out = torch.empty(expected.shape, dtype=expected.dtype, device="meta")
        assert CALLS[name](out=out) is out
        grown = torch.empty(0, dtype=expected.dtype, device="meta")
        assert CALLS[name](out=grown).shape == expected.shape
    finally:
        globals().update(values)


def test_memory_shared_with_inputs():
    def fresh():
        return torch.arange(16, dtype=torch.float32).view(4, 4)

    x = fresh()
    assert torch.equal(torch.clamp(x, 3, 9, out=x), fresh().clamp(3, 9))
    x = fresh()
    assert torch.equal(torch.max(x, fresh().flip(0), out=x), torch.max(fresh(), fresh().flip(0)))
    for call in (lambda a, out: torch.clamp(a, 3, 9, out=out), lambda a, out: torch.square(a, out=out)):
        x = fresh()
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer"):
            call(x[:-1], x[1:])
        assert torch.equal(x, fresh())
    x = fresh()
    assert torch.equal(torch.matmul(x, x, out=x), fresh() @ fresh())
    x = fresh()
    assert torch.equal(torch.t_copy(x, out=x), fresh().t())
    x = fresh()
    assert torch.equal(
        torch.hstack((x[:2, 2:], x[:2, :2]), out=x[:2]), torch.hstack((fresh()[:2, 2:], fresh()[:2, :2]))
    )
    x = fresh()
    torch.narrow_copy(x, 0, 0, 2, out=x[1:3])
    assert torch.equal(x[1:3], fresh()[:2])


def test_places_in_out():
    """out= becomes the copy in which places are changed, unless it is an input or an index is none."""
    x, y = X.clone(), Y.clone()
    assert torch.equal(torch.index_add(x, 0, ROWS, y, out=x), torch.index_add(X, 0, ROWS, Y))
    assert torch.equal(torch.scatter(X, 0, PLACES, y, out=y), torch.scatter(X, 0, PLACES, Y))
    places = torch.tensor([1, 0])
    assert torch.index_copy(places, 0, places, torch.tensor([5, 7]), out=places).tolist() == [7, 5]
    out = torch.full((3, 4), 7.0)
    for call, words in (
        (lambda: torch.index_add(X, 0, torch.tensor([0, 3]), Y[:2], out=out), "index 3 is out of bounds"),
        (lambda: torch.index_copy(X, 0, torch.tensor([0, 3]), Y[:2], out=out), "index 3 is out of bounds"),
        (lambda: torch.scatter(X, 0, torch.tensor([[0, 3]]), Y, out=out), "index 3 is out of bounds"),
        (lambda: torch.scatter_add(X, 0, torch.tensor([[0, -1]]), Y, out=out), "index -1 is out of bounds"),
        (lambda: torch.scatter(X, 0, PLACES, Y.double(), out=out), "dtype"),
        (lambda: torch.index_add(X, 0, ROWS[:2], Y, out=out), "Number of indices"),
        (lambda: torch.scatter(X, 2, PLACES, Y, out=out), "Dimension out of range"),
    ):
        with pytest.raises((RuntimeError, IndexError), match=words):
            call()
        assert (out == 7).all() and out._version == 0


def test_strides_of_a_tensor_that_grows():
    """As in torch, an out= of another shape gets the strides that the result would have."""
    assert torch.square(X.t(), out=torch.empty(0)).stride() == (1, 4)
    assert torch.clamp(X.t(), 0, 1, out=torch.empty(0)).stride() == (1, 4)


def test_lazily_conjugated_and_expanded():
    out = torch.empty(3, 4, dtype=torch.complex64).conj()
    assert torch.equal(torch.square(Z, out=out), Z.square())
    assert torch.equal(torch.conj_physical(Z.conj(), out=torch.empty_like(Z)), Z)
    assert torch.zeros(3, out=torch.ones(1).expand(3)).tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        torch.clamp(X, 0, 1, out=torch.empty(1).expand(3, 4))


def test_random_numbers():
    for make in (torch.rand, torch.randn):
        for out in (torch.empty(3, 4), torch.empty(0)):
            torch.manual_seed(3)
            expected = make(3, 4)
            torch.manual_seed(3)
            assert torch.equal(make(3, 4, out=out), expected)
    whole = torch.ones(3, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        torch.rand(3, out=whole)
    assert whole.tolist() == [1, 1, 1]


def test_table_refuses_where_it_means_nothing():
    entry = {"schema": "f(Tensor self) -> Tensor", "kind": "pointwise", "grad": {"self": "grad"}, "writes_out": True}
    with pytest.raises(TableError, match="writes_out is for composites with the form out"):
        model.read_entry("family", {**entry, "forms": "function out"})
    with pytest.raises(TableError, match="writes_out"):
        model.read_entry("family", {"schema": entry["schema"], "writes_out": True})


def test_table_refuses_functions_in_place_where_they_mean_nothing():
    entry = {"schema": "f(Tensor self) -> Tensor", "writes_self": True}
    with pytest.raises(TableError, match="writes_self is for composites with an in-place form"):
        model.read_entry("family", entry)
    with pytest.raises(TableError, match="writes_self is for composites whose parts record"):
        model.read_entry("family", {**entry, "forms": "function inplace", "grad": {"self": "grad"}})
