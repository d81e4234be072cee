"""torch._dynamo.decorators.leaf_function: functions that captured functions call as they are."""

import mica as torch
import pytest
from mica._dynamo.decorators import leaf_function
from mica.fx.experimental.proxy_tensor import make_fx


def _with_values(seen, **options):
    @leaf_function(**options)
    def mean_of(linear, x):
        seen.append(x.mean().item())
        assert len(x.tolist()) == 2
        if x.sum() > 100:
            return None
        return (linear(x) * (2 if seen[-1] > 0 else 3),)

    assert mean_of.register_fake(lambda linear, x: (linear(x),)) is mean_of
    return mean_of


@pytest.mark.parametrize(
    "options", [{}, {"backend": "eager"}, {"backend": "aot_eager"}, {"backend": lambda g, _: g.forward}]
)
def test_they_run_with_values_on_every_call(options):
    seen, linear = [], torch.nn.Linear(3, 3)
    mean_of = _with_values(seen)

    def function(x):
        return mean_of(linear, x * 2)[0].sin()

    compiled = torch.compile(function, fullgraph=True, **options)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        wanted = torch.autograd.grad(function(x).sum(), linear.weight)[0]
        made = compiled(x)
        assert torch.allclose(made, function(x))
        assert torch.allclose(torch.autograd.grad(made.sum(), linear.weight)[0], wanted)
    assert seen == [2.0, 2.0, 2.0, -2.0, -2.0, -2.0]


def test_what_torch_asks_for():
    @leaf_function
    def without(x):
        return (x + 1,)

    with pytest.raises(ValueError, match="requires a fake implementation"):
        without(torch.ones(2))
    with pytest.raises(ValueError, match="is not a parameter of 'mean_of'"):
        _with_values([], mutates_args={"buffer[0]"})
    _with_values([], mutates_args={"x"})


def test_graphs_without_a_node_for_them_refuse_them():
    mean_of, linear = _with_values([]), torch.nn.Linear(3, 3)
    with pytest.raises(NotImplementedError, match="leaf_function mean_of"):
        make_fx(lambda x: mean_of(linear, x))(torch.ones(2, 3))


def test_only_they_may_ask_for_values():
    seen = []

    @leaf_function
    def total(x):
        seen.append(bool(x.sum() > 0) and len(x.tolist()))
        return (x + 1,)

    total.register_fake(lambda x: (x,))

    def function(x):
        y = total((x * 2).sin())[0] * 3
        return y + 1 if len(seen) < 2 or y.sum() > 0 else y

    compiled = torch.compile(function, fullgraph=True)
    x = torch.ones(40_000)
    assert torch.allclose(compiled(x), (x * 2).sin() * 3 + 4)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        compiled(x)
    assert seen == [40_000, 40_000]
