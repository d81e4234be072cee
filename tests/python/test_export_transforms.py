"""Programs of modules that batch, derive or talk to other processes: they follow their inputs, or are refused."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx


def module_of(function):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(3.0))

        def forward(self, x):
            return function(self, x)

    return Module()


def _masked(self, x):
    places = torch.arange(x.shape[0])
    earlier = torch.vmap(torch.vmap(lambda i, j: j <= i, in_dims=(None, 0)), in_dims=(0, None))(places, places)
    return earlier.float() @ x


FUNCTIONS = {
    "vmap": lambda self, x: torch.vmap(lambda row: (row * self.weight).cumsum(0).sum())(x),
    "vmap of columns": lambda self, x: torch.vmap(lambda a: a.softmax(0) * 2, in_dims=1, out_dims=1)(x),
    "masks of vmap": _masked,
    "an operation without a rule": lambda self, x: torch.vmap(lambda row: torch.histc(row, 4, 0, 1))(x),
    "func.grad": lambda self, x: torch.func.grad(lambda y: (y**3 * self.weight).sum())(x),
    "jvp": lambda self, x: torch.func.jvp(torch.sin, (x,), (x * 2,))[1],
    "gradients of each example": lambda self, x: torch.vmap(torch.func.grad(lambda row: (row**2).sum()))(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_follow_the_inputs(name):
    torch.manual_seed(0)
    module = module_of(FUNCTIONS[name])
    program = export(module, (torch.rand(4, 3),))
    x = torch.rand(4, 3)
    torch.testing.assert_close(program.module()(x), module(x))
    torch.testing.assert_close(program.run_decompositions().module()(x), module(x))


@pytest.mark.parametrize("name", ["vmap", "masks of vmap"])
def test_batches_may_be_of_open_sizes(name):
    module = module_of(FUNCTIONS[name])
    program = export(module, (torch.rand(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    for rows in (2, 7):
        x = torch.rand(rows, 3)
        torch.testing.assert_close(program.module()(x), module(x))


def test_a_gradient_that_nobody_sees_is_refused():
    def forward(self, x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(nn.functional.linear(x, self.weight.outer(self.weight)).square().sum(), x)[0]

    with pytest.raises(RuntimeError, match="a call which Mica does not see"):
        export(module_of(forward), (torch.rand(4, 3),))


@pytest.mark.parametrize("function", [
    lambda x: torch.func.grad(lambda y: (y**3).sum())(x) + 1, lambda x: torch.func.jvp(torch.sin, (x,), (x * 2,))[1]
])  # fmt: skip
def test_traces_above_autograd(function):
    x, other = torch.rand(4, 3), torch.rand(4, 3)
    torch.testing.assert_close(make_fx(function, tracing_mode="fake", pre_dispatch=True)(x)(other), function(other))
    with pytest.raises(NotImplementedError, match="a gradient that it takes by itself"):
        make_fx(function, pre_dispatch=True)(x)


def test_constants_from_outside_stay_constants():
    outside = torch.tensor([1.0, 2.0, 3.0])
    program = export(module_of(lambda self, x: x + outside), (torch.rand(4, 3),))
    x = torch.rand(4, 3)
    assert torch.equal(program.module()(x), x + outside)
    assert list(program.constants) == ["lifted_tensor_0"]


def test_collectives_are_refused(tmp_path):
    from mica import distributed

    def forward(self, x):
        x = x * 2
        distributed.all_reduce(x)
        return x

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        with pytest.raises(NotImplementedError, match="c10d::allreduce_.*no collectives"):
            export(module_of(forward), (torch.rand(4, 3),))
        x = torch.rand(2)
        distributed.all_reduce(x)
    finally:
        distributed.destroy_process_group()


def test_modules_are_exported_in_inference_mode():
    def forward(self, x):
        x.add_(1)
        return torch.nonzero(x * self.weight > 1)

    with torch.inference_mode():
        x = torch.ones(4, 3)
        program = export(module_of(forward), (x,))
        assert x.tolist() == torch.ones(4, 3).tolist()
        linear = export(nn.Linear(3, 3), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert program.module()(torch.ones(4, 3)).shape == (8, 2)
    assert linear.module()(torch.ones(7, 3)).shape == (7, 3)


class Pair(torch.Tensor):
    """Two tensors, on both of which operators run."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device, strides=a.stride())

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        made = [
            func(*(getattr(each, name) if isinstance(each, Pair) else each for each in args), **(kwargs or {}))
            for name in ("a", "b")
        ]
        return Pair(*made) if isinstance(made[0], torch.Tensor) else made[0]


def test_parts_of_tensors_with_classes_of_their_own_are_refused():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair = nn.Parameter(Pair(torch.rand(3), torch.rand(3)))

        def forward(self, x):
            y = x + self.pair
            return y.a + 2 * y.b

    with pytest.raises(RuntimeError, match="reads a tensor within a Pair that it has computed"):
        export(Model(), (torch.rand(3),))


class Summed(Pair):
    """Two tensors whose sum is what operators give, `clone` among them; only views are of the class."""

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Summed(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        made = [
            func(*(getattr(each, name) if isinstance(each, Summed) else each for each in args), **(kwargs or {}))
            for name in ("a", "b")
        ]
        return Summed(*made) if func.is_view else made[0] + made[1]


class AddsSummed(nn.Module):
    def __init__(self):
        super().__init__()
        parts = [Summed(torch.tensor([i + 1.0, 0.0]), torch.tensor([0.0, i + 2.0])) for i in (0, 2)]
        self.weight = nn.Parameter(Summed(*parts))

    def forward(self, x):
        return x + (x + self.weight).sum()


class CallsModule(nn.Module):
    def forward(self, x, module):
        return module(x) * 2


@pytest.mark.parametrize("is_argument", [False, True])
def test_parameters_made_of_other_tensors_keep_their_parts(is_argument):
    inner, x = AddsSummed(), torch.tensor([1.0, -3.0])
    module, args = (CallsModule(), (inner,)) if is_argument else (inner, ())
    wanted = [6.0, -2.0] if is_argument else [3.0, -1.0]  # torch 2.13's
    assert module(x, *args).tolist() == wanted
    program = export(module, (torch.zeros(2), *args), strict=False)
    assert program.module()(x, *args).tolist() == wanted
    if not is_argument:
        assert torch.export.unflatten(program)(x).tolist() == wanted
        with pytest.raises(NotImplementedError, match="'weight' is a Summed, which is made of others"):
            torch.export.save(program, io.BytesIO())
