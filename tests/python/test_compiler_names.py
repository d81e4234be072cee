"""Names of torch's compiler that programs use besides torch.compile: comparisons, backends, settings."""

import collections
import pickle
from unittest import mock

import mica
import pytest
from mica._dynamo.testing import CompileCounterWithBackend, same
from mica._inductor.compile_fx import compile_fx, compile_fx_inner


def test_same_compares_nests():
    x = mica.arange(3.0)
    assert same([x, {"a": (x, 1, "b", None)}], [x + 1e-6, {"a": (x, 1, "b", None)}])
    assert same(collections.deque([x]), [x]) and same({1, 2}, {1, 2}) and same(1.0, 1.00001)
    assert not same(x, x + 1) and not same([x], [x, x]) and not same(x, x.double()) and not same(1, 2)
    assert same(x, x.double(), exact_dtype=False) and same(x, 2 * x, cos_similarity=True)
    assert same(x[1:2], 1.0) and same(mica.ones(3), mica.ones(1)) and mica._dynamo.utils.same is same
    with pytest.raises(RuntimeError, match="must match the size"):  # shapes are those of allclose, as in torch
        same(x, mica.zeros(2))
    with pytest.raises(AssertionError, match="keys mismatch"):
        same({"a": x}, {"b": x})
    with pytest.raises(RuntimeError, match="unsupported type: object"):
        same(object(), object())


def test_same_asks_how_far_values_are_from_those_of_float64():
    exact = mica.linspace(0, 1, 2000, dtype=mica.float64)
    ref, res = exact.float() + 1e-2, exact.float() - 1e-2
    assert not same(ref, res) and same(ref, res, fp64_ref=exact) and not same(exact.float(), res, fp64_ref=exact)


def test_same_compares_arrays():
    numpy = pytest.importorskip("numpy")
    assert same(numpy.ones(3), numpy.ones(3)) and not same(numpy.ones(3), mica.ones(3, dtype=mica.float64))
    assert same(numpy.float32(2), 2.0, relax_numpy_equality=True) and not same(numpy.float32(2), 2.0)


@pytest.mark.parametrize("backend", [compile_fx, CompileCounterWithBackend("inductor")])
def test_graphs_are_compiled_by_torchs_compiler(backend):
    x = mica.randn(8, requires_grad=True)
    out = mica.compile(lambda x: (x * 2).sin() + 1, backend=backend, fullgraph=True)(x)
    assert mica.equal(out, (x * 2).sin() + 1)
    (grad,) = mica.autograd.grad(out.sum(), x)
    assert mica.equal(grad, (x * 2).cos() * 2)


def test_inner_compilers_get_graphs_of_operators():
    seen = []

    def inner(gm, example_inputs, **options):
        seen.append([str(node.target) for node in gm.graph.nodes if node.op == "call_function"])
        return compile_fx_inner(gm, example_inputs)

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, inner_compile=inner)

    x = mica.randn(4, requires_grad=True)
    mica.compile(lambda x: x.sin(), backend=backend)(x).sum().backward()
    assert seen[0] == ["aten.sin.default"] and "aten.cos.default" in seen[1]
    with pytest.raises(RuntimeError, match="Unexpected optimization option misspelt"):
        compile_fx(mica.nn.ReLU(), [], config_patches={"misspelt": 1})


def test_settings_of_functorch_and_groups():
    assert mica._functorch.config.donated_buffer is True
    with mica._functorch.config.patch(donated_buffer=False):
        assert mica._functorch.config.donated_buffer is False
    with mock.patch.object(mica._inductor.config.triton, "cudagraphs", True):
        assert mica._inductor.config.triton.cudagraphs is True
    assert mica._inductor.config.triton.cudagraphs is False
    with mica._inductor.utils.fresh_cache():
        assert mica.equal(mica.compile(mica.sin)(mica.ones(2)), mica.ones(2).sin())


@pytest.mark.parametrize("name", ["is_floating_point", "is_complex", "numel", "is_signed"])
def test_questions_take_their_tensor_by_name(name):
    function = getattr(mica, name)
    assert function(input=mica.ones(3)) == function(mica.ones(3))
    for given in ((), (mica.ones(1), 2)):
        with pytest.raises(TypeError, match=f"{name}\\(\\)"):
            function(*given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        function(other=mica.ones(1))


def test_callbacks_are_called_around_the_compilation_of_a_graph():
    from mica._dynamo.callback import CallbackTrigger, callback_handler

    said = []

    @mica._dynamo.on_compile_start
    def begins(args):
        said.append((args.callback_trigger, len(graphs)))

    @mica._dynamo.on_compile_end
    def ends(args):
        said.append((args.compile_id, len(graphs)))

    graphs = []

    @mica.compile(backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    def function(x):
        y = x + 1
        mica._dynamo.graph_break()
        return y * 2

    try:
        assert function(mica.ones(2)).tolist() == function(mica.ones(2)).tolist() == [4, 4]
        assert said == [(CallbackTrigger.DYNAMO, 0), ("0/0", 1), (CallbackTrigger.DYNAMO, 1), ("1/0", 2)]
        callback_handler.remove_start_callback(begins)
        function(mica.ones(3))
        assert len(said) == 6 and said[-1] == ("1/1", 4)
    finally:
        callback_handler.clear()


def test_graphs_of_operators_are_kept_with_what_programs_say_of_them():
    from mica._dynamo.testing import AotEagerAndRecordGraphs

    def function(x):
        with mica.fx.traceback.annotate({"stage": 1}):
            y = x.sin()
        return y * 2

    backend, x = AotEagerAndRecordGraphs(), mica.ones(2, requires_grad=True)
    mica.compile(function, backend=backend, fullgraph=True)(x).sum().backward()
    assert mica.allclose(x.grad, 2 * x.detach().cos())
    said = {node.name: node.meta.get("custom") for node in backend.graphs[0].graph.nodes}
    assert said == {"l_x_": {"stage": 1}, "sin": {"stage": 1}, "mul": None, "output": None}
    assert [str(n.target) for n in backend.fw_graphs[0].graph.nodes if n.op == "call_function"] == [
        "aten.sin.default", "aten.mul.Tensor",
    ]  # fmt: skip
    assert len(backend.bw_graphs) == 1


def test_errors_of_users_say_what_they_are_about():
    exc = mica._dynamo.exc
    with pytest.raises(exc.UserError, match="tuple of example positional inputs") as error:
        mica.export.export(mica.nn.ReLU(), [mica.ones(2)])
    assert error.value.error_type is exc.UserErrorType.INVALID_INPUT and error.value.msg == str(error.value)
    assert not isinstance(error.value, exc.Unsupported)
    again = pickle.loads(pickle.dumps(error.value))
    assert again.msg == error.value.msg and again.error_type is error.value.error_type
