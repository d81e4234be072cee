"""functionalize: what is written into a tensor takes the tensor's dtype, also where the operator gives another one."""

import mica as torch
import pytest
from mica.func import functionalize
from mica.fx.experimental.proxy_tensor import make_fx


def _added(x, d):
    y = x.clone()
    y.add_(d)
    return y * 1


def _compared(x, d):
    y = x.clone()
    y.eq_(1)
    return y + 1


def _input_changed(x, d):
    x.add_(d)
    return x / 3


def _part_changed(x, d):
    x[:1].div_(d[:1])
    return x / 3


def _wider_out(x, d):
    out = torch.empty(2, dtype=torch.float64)
    torch.add(x, x, out=out)
    return out / 3


def _truths_out(x, d):
    return torch.gt(x, 1, out=x) / 3


def _input_out(x, d):
    return torch.addcmul(x, x, x, out=d) / 3


def _indices_out(x, d):
    out, indices = torch.empty(2, dtype=torch.float64), torch.empty(2, dtype=torch.long)
    torch.sort(d, out=(out, indices))
    return out / 3


_FUNCTIONS = [_added, _compared, _input_changed, _part_changed, _wider_out, _truths_out, _input_out, _indices_out]


def _example():
    return torch.tensor([1.0, 2.0]), torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)


def _assert_equal(first, second):
    assert first.dtype == second.dtype
    assert torch.equal(first, second)


@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda f: f.__name__)
def test_dtype_of_the_tensor_that_is_written_to(function):
    inputs, expected_inputs = _example(), _example()
    expected = function(*expected_inputs)
    graph = make_fx(functionalize(function))(*_example())
    _assert_equal(graph(*inputs), expected)
    compiled_inputs = _example()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    _assert_equal(compiled(*compiled_inputs), expected)
    for changed in (inputs, compiled_inputs):
        for ours, theirs in zip(changed, expected_inputs, strict=True):
            _assert_equal(ours, theirs)


def test_exported_program_without_changes():
    class Module(torch.nn.Module):
        def forward(self, x):
            y = x.clone()
            return y.ge_(1.5) + 1

    x = torch.tensor([1.0, 2.0])
    program = torch.export.export(Module(), (x,)).run_decompositions()
    _assert_equal(program.module()(x), Module()(x))


@pytest.mark.parametrize("name", ["sum", "nansum", "prod", "cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float64], ids=str)
def test_reductions_compute_in_the_dtype_of_out(name, dtype):
    function, x = getattr(torch, name), torch.tensor([[0.9201, 2.6], [0.2166, 0.6]])
    sizes = (2, 2) if name.startswith("cum") else (2,)

    def reduced(out, x):
        return function(x, 0, out=out)

    torch._dynamo.reset()
    expected, out = torch.zeros(sizes, dtype=dtype), torch.zeros(sizes, dtype=dtype)
    reduced(expected, x)
    _assert_equal(torch.compile(reduced, backend="aot_eager", fullgraph=True)(out, x), expected)
    _assert_equal(out, expected)


def test_graph_of_a_scan_names_the_dtype():
    graph = make_fx(functionalize(lambda out, x: torch.cumsum(x, 0, out=out)))(torch.zeros(3), torch.rand(3))
    assert "aten.cumsum.default(x_1, 0, dtype = torch.float32)" in graph.code


def test_random_numbers_are_drawn_once():
    def function(x):
        return x.normal_(0.0, 1.0) + torch.rand(2)

    torch.manual_seed(3)
    expected = function(torch.zeros(2, dtype=torch.float64))
    graph = make_fx(functionalize(function))(torch.zeros(2, dtype=torch.float64))
    torch.manual_seed(3)
    _assert_equal(graph(torch.zeros(2, dtype=torch.float64)), expected)
    torch.manual_seed(3)
    make_fx(functionalize(lambda x: x.normal_(0.0, 1.0)))(torch.zeros(2))
    drawn = torch.rand(1)
    torch.manual_seed(3)
    torch.zeros(2).normal_(0.0, 1.0)
    assert torch.equal(drawn, torch.rand(1))


def test_draws_with_a_tensor_of_probabilities():
    def function(x, p):
        return x.bernoulli_(p) * 3

    p = torch.tensor([0.0, 0.5, 0.5, 0.5, 1.0], dtype=torch.float64)
    torch.manual_seed(3)
    expected = function(torch.zeros(5), p)
    torch.manual_seed(3)
    made = torch.compile(function, backend="aot_eager", fullgraph=True)(torch.zeros(5), p)
    _assert_equal(made, expected)
    torch.manual_seed(3)
    _assert_equal(torch.ops.aten.bernoulli.Tensor(torch.zeros(5), p) * 3, expected)


def test_changes_of_whole_numbers_by_operators_of_sizes_of_their_own():
    def function(x):
        out = torch.zeros(2, 4)
        torch.slice_scatter(x, torch.ones(2, 2, dtype=torch.long), 1, 0, 2, out=out)
        return out / 2

    x = torch.arange(8).view(2, 4)
    _assert_equal(make_fx(functionalize(function))(x)(x), function(x))


@pytest.mark.parametrize("name", ["ndtr", "ndtri", "log_ndtr", "erfcx"])
def test_special_functions_into_a_tensor(name):
    def function(x):
        out = torch.zeros(3)
        getattr(torch.special, name)(x, out=out)
        return out * 2

    x = torch.tensor([0.1, 0.5, 0.7])
    _assert_equal(make_fx(function)(x)(x), function(x))


def test_selu_in_place():
    def function(x):
        y = x.clone()
        return torch.nn.functional.selu_(y) * y

    x = torch.tensor([-1.0, 0.5, 0.7])
    torch.testing.assert_close(make_fx(function)(x)(x), function(x))
    torch.testing.assert_close(torch.compile(function, backend="aot_eager", fullgraph=True)(x), function(x))
