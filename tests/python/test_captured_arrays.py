"""NumPy within the functions whose graphs a backend compiles."""

import pickle

import mica as torch
import pytest
from mica._dynamo.testing import CompileCounter, EagerAndRecordGraphs

np = pytest.importorskip("numpy")

A = np.linspace(-2, 3, 20, dtype=np.float32).reshape(4, 5)
WHOLE = np.arange(-4, 8).reshape(3, 4)


def _alike(given, wanted):
    if isinstance(wanted, (list, tuple)):
        return type(given) is type(wanted) and all(map(_alike, given, wanted))
    if isinstance(wanted, (np.ndarray, np.generic)):
        same = type(given) is type(wanted) and given.dtype == wanted.dtype and given.shape == wanted.shape
        return same and np.allclose(given, wanted, rtol=1e-6, equal_nan=True)
    if isinstance(wanted, torch.Tensor):
        return torch.allclose(given, wanted)
    return type(given) is type(wanted) and given == wanted


CAPTURED = {
    "arithmetic": lambda a: (a + 1, 2 * a, a / 2, 1 - a, -a, abs(a), a**2),
    "powers": lambda a: (np.float32(2) ** a.astype(np.float64), np.hypot(a, 3)),
    "comparisons": lambda a: ((a > 0) & (a < 2), a == a, np.logical_not(a > 0)),
    "sums": lambda a: (a.sum(0), a.sum(axis=0, keepdims=True), np.sum(a), a.mean(1), a.std(), np.var(a, ddof=1)),
    "extremes": lambda a: (a.max(), a.min(axis=1), a.argmax(), np.argmin(a, axis=0), np.maximum(a, 0.5)),
    "truth": lambda a: (a.all(axis=0), np.any(a > 0)),
    "shapes": lambda a: (a.T, a.reshape(-1, 2), a.ravel(), a[None].squeeze(0), a.swapaxes(0, 1), a.flatten()),
    "indices": lambda a: (a[0], a[1:3], a[::-1], a[..., 0], a[1, 2], list(a)),
    "several": lambda a: (np.concatenate([a, a]), np.stack([a, a], 1), np.vstack([a, a]), a @ a.T),
    "choice": lambda a: (np.where(a > 0, a, 0), np.clip(a, 0, 1)),
    "dtypes": lambda a: (a.astype(np.float64) + 1, a * np.float64(2), a * np.float32(2), a + np.arange(a.shape[1])),
    "likenesses": lambda a: (np.ones_like(a) + a, np.full_like(a, 2, dtype=np.float64) + a),
    "what it is": lambda a: (a + a.size, a.ndim, a.shape, a.dtype, a.itemsize, a.strides, len(a), a.nbytes),
    "tensors": lambda a: (torch.from_numpy(a) + 1, torch.tensor(a) * 2),
}


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.parametrize("array", [A, WHOLE, A.astype(np.float64)], ids=lambda a: str(a.dtype))
def test_functions_of_numpy_are_calls_of_one_graph(name, array):
    counter = CompileCounter()
    compiled = torch.compile(CAPTURED[name], backend=counter, fullgraph=True)
    assert _alike(compiled(array.copy()), CAPTURED[name](array.copy()))
    if array.dtype.kind == "f" or name not in ("several", "powers"):
        assert counter.frame_count == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.unique(a), lambda a: np.sort(a, axis=None), lambda a: a.tolist(), lambda a: f"{a.max():.2f}",
        lambda a: a[a > 0], lambda a: np.pad(a, 1), lambda a: int(a.sum()), lambda a: np.asarray(a) + 1,
        lambda a: a % 2, lambda a: a // 3, lambda a: pickle.loads(pickle.dumps(a)), lambda a: isinstance(a, np.ndarray),
        lambda a: a.astype(np.int32), lambda a: np.add(a, 1, out=a), lambda a: np.round(a), lambda a: a[0].item(0),
        lambda a: bool((a > 100).any()), lambda a: torch.as_tensor(a) + 1, lambda a: a.sum(dtype=np.float64),
    ],
)  # fmt: skip
def test_what_a_graph_has_no_call_for_numpy_computes(function):
    for array in (A, WHOLE):
        compiled = torch.compile(function, backend="eager", fullgraph=True)
        assert _alike(compiled(array.copy()), function(array.copy()))


def test_arrays_are_changed_where_they_are():
    def function(a):
        a[0] = 5
        a[1:2] = a[2:3]
        b = a * 2
        a += 1
        return b + a

    for array in (A, WHOLE):
        eager, compiled = array.copy(), array.copy()
        assert _alike(torch.compile(function, backend="eager")(compiled), function(eager))
        assert np.array_equal(eager, compiled)
    array = A.copy()
    assert torch.compile(lambda a: a, backend="eager", fullgraph=True)(array) is array


def test_an_array_of_a_promise_and_a_break():
    def function(x):
        a = (x * 2).numpy()
        b = np.sin(a)
        torch._dynamo.graph_break()
        return torch.from_numpy(b + a).sum(), b

    counter, x = CompileCounter(), torch.randn(3, 4)
    wanted, given = function(x), torch.compile(function, backend=counter)(x)
    assert torch.allclose(wanted[0], given[0]) and np.allclose(wanted[1], given[1]) and counter.frame_count == 2
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.compile(lambda x: x.numpy(), backend="eager")(torch.randn(2, requires_grad=True))


def test_arrays_that_outlive_the_function_are_arrays():
    kept = []

    def function(x):
        kept.append(x.numpy() + 1)
        return x * 2

    x = torch.arange(3.0)
    torch.compile(function, backend="eager", fullgraph=True)(x)
    assert isinstance(kept[0], np.ndarray) and kept[0].tolist() == [1, 2, 3]
    assert np.add(kept[0], 1).tolist() == [2, 3, 4] and np.asarray(kept[0]).dtype == np.float32


def test_a_function_that_calls_nothing_is_a_graph_of_its_argument():
    backend, x = EagerAndRecordGraphs(), torch.ones(2)
    assert torch.compile(lambda x: x, backend=backend, fullgraph=True)(x) is x
    assert [node.op for node in backend.graphs[0].graph.nodes] == ["placeholder", "output"]
    counter = CompileCounter()
    torch.compile(lambda x: (x, 1), backend=counter)(x)
    assert counter.frame_count == 0


def test_exceptions_of_one_graph_are_unsupported_too():
    def function(x):
        raise KeyError("no such row")

    with pytest.raises(KeyError, match="no such row"):
        torch.compile(function, backend="eager")(torch.ones(1))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"(?s)no such row.*raise KeyError") as caught:
        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(1))
    assert isinstance(caught.value, KeyError) and caught.value.args == ("no such row",)


def test_numbers_stand_on_the_side_where_they_are_written():
    backend, x = EagerAndRecordGraphs(), torch.ones(2)
    torch.compile(lambda x: 2 * x + x * 3 + (1 + x), backend=backend)(x)
    assert "2 * l_x_" in backend.graphs[0].code and "l_x_ * 3" in backend.graphs[0].code
    assert "1 + l_x_" in backend.graphs[0].code


def test_a_number_that_is_a_tensor_and_a_filter():
    x, y, z, s = torch.ones(2, 2), torch.full((2, 2), 2.0), torch.rand(2, 2), torch.tensor(0.3)
    counter = CompileCounter()
    compiled = torch.compile(lambda x, s: x.addcmul_(y, z, value=s), backend=counter, fullgraph=True)
    assert torch.allclose(compiled(x, s), 1 + 0.3 * 2 * z) and counter.frame_count == 1

    def chosen(inputs):
        out = inputs[0]
        for each in filter(lambda row: row[0] == 1, inputs):
            out = out * each
        return out

    with pytest.raises(torch._dynamo.exc.Unsupported, match="asks for values"):
        torch.compile(chosen, backend="eager", fullgraph=True)([x, y])


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}])
def test_distributions_are_not_checked_where_they_are_compiled(options):
    def function(logits, action):
        chosen = torch.distributions.Categorical(logits=logits)
        return chosen.log_prob(action).sum() + chosen.entropy().mean()

    logits, action = torch.randn(6, 4), torch.randint(0, 4, (6,))
    compiled = torch.compile(function, fullgraph=True, **options)
    assert torch.allclose(compiled(logits, action), function(logits, action))
    with pytest.raises(ValueError, match="Expected parameter"):
        torch.distributions.Normal(torch.tensor(0.0), torch.tensor(-1.0))


WITH_TENSORS = {
    "operators": lambda x, a: (
        x + a,
        a * x,
        x - a.sum(),
        a.max() / x,
        x**2 % (a.max() + 1),
        x >= a.min(),
        a.mean() < x,
    ),
    "methods": lambda x, a: (x.pow(a[0] * 0 + 2), x.clone().add_(a.max()), x.clamp(max=a.mean())),
    "functions": lambda x, a: (torch.add(x, a.sum()), torch.where(x > 1, x, a.sum()), torch.full((2,), a.max())),
    "in place": lambda x, a: (x.clone().__iadd__(a), x.clone().__imul__(a.sum())),
    "lists": lambda x, a: (torch.tensor([a.sum(), 1.0]), torch.tensor(a.sum()), torch.stack([x, torch.from_numpy(a)])),
    "places": lambda x, a: (x[a.argmax()], torch.zeros(a.argmin() + 3)),
}


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_tensors_take_captured_arrays(name):
    function = WITH_TENSORS[name]
    x = torch.tensor([1.0, 2.0, 4.0])
    # Outside of a graph a tensor takes arrays of NumPy's only as numbers and as tensors.
    array = np.array([1.5, 0.5, 2.5], dtype=np.float32)
    wanted = function(x, torch.from_numpy(array) if name in ("operators", "in place") else array)
    compiled = torch.compile(lambda x, y: function(x, y.numpy()), backend=CompileCounter())
    given = compiled(x, torch.from_numpy(array))
    for made, expected in zip(given, wanted, strict=True):
        assert type(made) is torch.Tensor and torch.allclose(made.double(), expected.double())
