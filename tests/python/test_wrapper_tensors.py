"""Tensors of classes that wrap two others: changes, views, gradients, optimizers and files are those of each part."""

import copy
import io
import pickle

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F
from mica.utils import _pytree as pytree
from mica.utils._python_dispatch import return_and_correct_aliasing


class Pair(torch.Tensor):
    """Two tensors of one shape, which every operator is called with."""

    @staticmethod
    def __new__(cls, a, b, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), storage_offset=a.storage_offset(), dtype=a.dtype, device=a.device,
            requires_grad=requires_grad or a.requires_grad,
        )  # fmt: skip

    def __init__(self, a, b, requires_grad=False):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Pair(parts["a"], parts["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = []
        for part in ("a", "b"):
            of_part = pytree.tree_map_only(Pair, lambda pair, part=part: getattr(pair, part), (args, kwargs))
            results.append(pytree.tree_flatten(func(*of_part[0], **of_part[1])))
        (first, spec), (second, _) = results
        made = [Pair(a, b) if isinstance(a, torch.Tensor) else a for a, b in zip(first, second, strict=True)]
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_unflatten(made, spec))


VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def pair(requires_grad=True, more=0.0):
    a = torch.tensor(VALUES) + more
    return Pair(a, a * 10, requires_grad)


def parts_agree(program, *pairs):
    """Whether a program on pairs has the values and gradients that it has on each of their parts."""
    result = program(*pairs)
    result.sum().backward()
    for part in ("a", "b"):
        plain = [getattr(p.detach(), part).detach().clone().requires_grad_() for p in pairs]
        expected = program(*plain)
        expected.sum().backward()
        assert torch.equal(getattr(result.detach(), part), expected.detach())
        for p, q in zip(pairs, plain, strict=True):
            assert type(p.grad) is Pair
            torch.testing.assert_close(getattr(p.grad, part), q.grad)


def row_is_copied(x, y):
    z = x * 2
    z[0].copy_(y[0])
    return z * z


def view_is_scaled(x):
    y = x.clone()
    y.view(3, 2).mul_(3)
    return y * y


def column_is_cleared(x):
    y = x.clone()
    y[:, 1].zero_()
    return y * y


def transposed_is_filled(x):
    y = x.clone()
    y.t()[0].fill_(5)
    return y**2


def rows_of_each_other(x):
    y = x.clone()
    y[0].copy_(y[1] * 3)
    return y * y


def test_a_change_of_a_view_takes_the_gradient_of_what_was_there():
    parts_agree(row_is_copied, pair(), pair(more=1))


@pytest.mark.parametrize(
    "program", [view_is_scaled, column_is_cleared, transposed_is_filled, rows_of_each_other], ids=lambda p: p.__name__
)
def test_changes_of_views(program):
    parts_agree(program, pair())


PROGRAMS = {
    "permute": lambda x: x.permute(1, 0) * 2,
    "mean": lambda x: x.mean(0),
    "flip": lambda x: x.flip(0) * x,
    "cumsum": lambda x: x.cumsum(1) * x,
    "pad": lambda x: F.pad(x, (1, 1)) ** 2,
    "as_strided": lambda x: x.as_strided((2, 2), (1, 2)) ** 2,
    "glu": lambda x: F.glu(x.t()),
    "prod": lambda x: x.prod(),
    "cumprod": lambda x: x.cumprod(1),
    "inv": lambda x: torch.linalg.inv(x[:, :2]),
    "det": lambda x: x[:, :2].det(),
    "solve": lambda x: torch.linalg.solve(x[:, :2], x[:, 2]),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(2, 3)),
    "bce_of_probabilities": lambda x: F.binary_cross_entropy(x / 100, torch.ones(2, 3)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[None, None] / 60] * 3),
    "index_add": lambda x: x.index_add(0, torch.tensor([0]), torch.ones(1, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_of_the_class(name):
    parts_agree(PROGRAMS[name], pair())


def test_a_saved_tensor_that_was_changed_is_noticed():
    x = pair()
    y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = x.clone()
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    y = x * x
    x.data.mul_(2)  # counted apart, as of every tensor
    y.sum().backward()
    assert torch.equal(x.grad.a, 4 * torch.tensor(VALUES))


def test_views_and_versions_are_those_of_other_tensors():
    x = pair(False)
    y = x.view(6)
    y.mul_(2)
    assert y._is_view() and y._base is x and x._version == y._version == 1
    assert torch.equal(x.a, 2 * torch.tensor(VALUES))
    z = x.detach()
    z.add_(1)
    assert x._version == 2
    leaf = pair()
    row = leaf[0]
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        row.mul_(2)
    with torch.no_grad():
        leaf[0].mul_(2)
    assert leaf._version == 1


class Logged(torch.Tensor):
    """A tensor around another one, whose class wraps every result anew."""

    @staticmethod
    def __new__(cls, inner, *args, **kwargs):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Logged, lambda t: t.inner, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, Logged, func(*args, **kwargs))


def test_a_change_in_place_returns_the_tensor():
    x = before = Logged(torch.tensor(VALUES))
    assert x.add_(1) is x
    x += 1
    with torch.no_grad():
        x *= 2
    assert x is before and torch.equal(x.inner, (torch.tensor(VALUES) + 2) * 2) and x._version == 3


def test_inference_tensors():
    with torch.inference_mode():
        x = pair(False)
        y = x.view(6)
        y.mul_(2)
    assert x.is_inference() and y.is_inference() and torch.equal(x.a, 2 * torch.tensor(VALUES))


def test_sizes_that_change_in_place():
    x = pair(False)
    x.t_()
    assert x.shape == (3, 2) and x.stride() == (1, 3)
    x.unsqueeze_(0)
    assert x.shape == (1, 3, 2) and x.a.shape == (1, 3, 2)
    assert torch.Tag.inplace_view in torch.ops.aten.t_.default.tags


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9),
    ],
)
def test_optimizers_change_both_parts(make):
    x = pair()
    plain = [p.clone().requires_grad_() for p in (x.a, x.b)]
    optimizer, others = make([x]), make(plain)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        others.zero_grad(set_to_none=False)
        (x * x).sum().backward()
        sum((p * p).sum() for p in plain).backward()
        optimizer.step()
        others.step()
    for part, expected in zip((x.a, x.b), plain, strict=True):
        torch.testing.assert_close(part, expected.detach(), rtol=1e-5, atol=1e-5)
    assert all(type(v) is Pair for k, v in optimizer.state[x].items() if k != "step" and v is not None)


def test_as_parameter_of_a_module():
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(pair())
    layer(torch.ones(4, 3)).sum().backward()
    assert type(layer.weight) is Pair and isinstance(layer.weight, nn.Parameter)
    assert torch.equal(layer.weight.grad.b, torch.full((2, 3), 4.0))
    other = nn.Linear(3, 2, bias=False)
    other.weight = nn.Parameter(pair(more=7))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight.a, layer.weight.a) and torch.equal(other.weight.b, layer.weight.b)


def test_copies_and_files():
    x = pair()
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(other) is Pair and other.requires_grad and other.a is not x.a
        assert torch.equal(other.a, x.a) and torch.equal(other.b, x.b)
    file = io.BytesIO()
    torch.save({"w": x}, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file)
    file.seek(0)
    with torch.serialization.safe_globals([Pair]):
        loaded = torch.load(file)["w"]
    assert type(loaded) is Pair and torch.equal(loaded.b, x.b) and loaded.stride() == x.stride()


def test_elements_that_are_absent_are_not_read():
    x = pair(False)
    assert x.data_ptr() == 0 and x.untyped_storage().nbytes() == 24
    with pytest.raises(NotImplementedError, match="has none of its own"):
        x.untyped_storage().data_ptr()
    with pytest.raises(NotImplementedError, match="has none of its own"):
        x.untyped_storage().tolist()
    reads = [
        torch.sin, torch.isfinite, torch.sum, lambda t: t + 1, lambda t: t.t() @ t, lambda t: t.expand(3, 2, 3) * 2,
        lambda t: t.clone(), lambda t: torch.ones(2, 3).copy_(t), lambda t: t.zero_(), lambda t: t.sort(), lambda t: t.cumsum(0),
    ]  # fmt: skip
    for read in reads:
        with torch._subclasses.dispatching.aside(), pytest.raises(NotImplementedError, match="has none of its own"):
            read(x)


def test_scaled_gradients():
    x = pair()
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=4.0), torch.optim.SGD([x], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((x * x).sum()).backward()
        scaler.unscale_(optimizer)
        assert torch.equal(x.grad.b, 2 * x.b)
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(x.b, torch.tensor(VALUES) * 10 * 0.8 * 0.8)


def test_gradients_of_functions_compiled_ahead():
    from mica._functorch.aot_autograd import aot_function

    x, w = pair(), torch.ones(3, 2, requires_grad=True)
    compiled = aot_function(lambda x, w: x @ w, fw_compiler=lambda graph, example: graph)
    compiled(x, w).sum().backward()  # its gradient comes expanded, and is copied for the graph
    assert type(x.grad) is Pair and torch.equal(x.grad.b, torch.full((2, 3), 2.0))
    assert type(w.grad) is Pair and torch.equal(w.grad.b, 10 * w.grad.a)


def test_a_wrapper_takes_its_options_by_place():
    class Wrapper(torch.Tensor):
        __torch_dispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: NotImplemented)

    options = (0, torch.contiguous_format, torch.float64, torch.strided, torch.device("cpu"), False, True, "sizes")
    made = torch.Tensor._make_wrapper_subclass(Wrapper, (2, 3), (3, 1), *options, False, False, None, None)
    assert made.shape == (2, 3) and made.dtype == torch.float64 and made.requires_grad
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtypes'"):
        torch.Tensor._make_wrapper_subclass(Wrapper, (2,), dtypes=torch.float64)
