"""Marks on functions for the compiler: disable, allow_in_graph, nonstrict_trace, disallow_in_graph, and what is_compiling says."""

import copy
import functools
import pickle

import mica
import pytest
from mica._dynamo.external_utils import innermost_fn
from mica._dynamo.testing import CompileCounter

disable, is_compiling = mica.compiler.disable, mica.compiler.is_compiling
BACKENDS = ("inductor", "eager", "aot_eager", lambda graph, inputs: graph.forward)


def _asks(x):
    return x + (1 if is_compiling() else 2)


class Asks(mica.nn.Module):
    def forward(self, x):
        return _asks(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_disabled_function_is_not_compiled(backend):
    x, disabled = mica.ones(2), disable(_asks)
    compiled = mica.compile(_asks, backend=backend)
    assert compiled(x).tolist() == [2, 2] and _asks(x).tolist() == [3, 3]
    assert mica.compile(lambda x: disabled(x) * 10 + is_compiling(), backend=backend)(x).tolist() == [31, 31]
    assert mica.compile(disabled, backend=backend)(x).tolist() == [2, 2]
    within = disable(lambda x: compiled(x))
    assert mica.compile(lambda x: within(x) * 10, backend=backend)(x).tolist() == [20, 20]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_alone_is_not_compiled(backend):
    def scaled(x):
        return x * (100 if is_compiling() else 1)

    disabled = disable(lambda x: scaled(x + (1 if is_compiling() else 2)), recursive=False)
    x = mica.ones(2)
    assert mica.compile(lambda x: disabled(x), backend=backend)(x).tolist() == [300, 300]
    assert mica.compile(disabled, backend=backend)(x).tolist() == [200, 200] and disabled(x).tolist() == [3, 3]
    with pytest.raises(mica._dynamo.exc.Unsupported, match="disable"):
        mica.compile(lambda x: disabled(x), backend=backend, fullgraph=True)(x)
    assert mica.compile(lambda x: disable(len, recursive=False)([x]), backend=backend)(x) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_methods_that_are_marked_twice_keep_their_object(backend):
    class Scale:
        by = 3

        @disable
        def disabled(self, x):
            return x * self.by

        @mica.compile(backend=backend)
        def compiled(self, x):
            return x * self.by

    x, scale = mica.ones(2), Scale()
    for method in (scale.disabled, scale.compiled):
        assert disable(method)(x).tolist() == mica.compile(method, backend=backend)(x).tolist() == [3, 3]
        assert disable(disable(method))(x).tolist() == [3, 3] and innermost_fn(disable(method)) == method


@pytest.mark.parametrize("mark", [disable, mica.compile])
def test_what_wraps_has_copied_is_no_wrapper(mark):
    marked = mark(lambda x: x + 1)

    @functools.wraps(marked)
    def twice(x):
        return marked(x) * 2

    x = mica.ones(2)
    assert disable(twice)(x).tolist() == mica.compile(twice)(x).tolist() == [4, 4]
    assert mica.compile(twice, backend=lambda graph, inputs: graph.forward)(x).tolist() == [4, 4]
    assert innermost_fn(twice) is twice and innermost_fn(mark(marked)) is innermost_fn(marked)


def test_a_disabled_module_is_a_module():
    model = mica.nn.Sequential(mica.nn.Linear(2, 2), Asks())
    x = mica.ones(1, 2)
    expected, compiled = model[0](x) + 2, model[0](x) + 1
    model[1] = disable(model[1])
    assert mica.equal(mica.compile(model, backend="eager")(x), expected) and mica.equal(model(x), expected)
    disabled = disable(model[0])
    assert isinstance(disabled, mica._dynamo.OptimizedModule) and disabled.in_features == 2
    assert list(disabled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    asks = disable(Asks())
    for made in (asks, copy.deepcopy(asks), pickle.loads(pickle.dumps(asks))):
        assert mica.compile(lambda x, made=made: made(x), backend="eager")(x).tolist() == [[3, 3]]
    assert mica.equal(mica.compile(asks, backend="eager")(model[0](x)), compiled)


@pytest.mark.parametrize("backend", BACKENDS)
def test_marks_on_classes(backend):
    class Left(Asks):
        pass

    class Taken(Asks):
        pass

    x = mica.ones(2)
    assert disable(Left) is Left and mica.compile(Taken, backend=backend) is Taken
    assert mica.compile(lambda x: Left()(x) * 10, backend=backend)(x).tolist() == [30, 30]
    assert mica.compile(Left(), backend=backend)(x).tolist() == [3, 3]
    assert Taken()(x).tolist() == [2, 2] and Asks()(x).tolist() == [3, 3]
    assert not callable(disable(type("Plain", (), {}))()) and not callable(mica.compile(type("Plain", (), {}))())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mark", [mica.compiler.allow_in_graph, mica._dynamo.nonstrict_trace])
def test_breaks_within_one_call_of_a_graph_are_no_error(mark, backend):
    @mark
    def opaque(x):
        mica._dynamo.graph_break()
        if x.sum() > 0:
            x = x + int(x[0])
        return x + (1 if is_compiling() else 5)

    compiled = mica.compile(lambda x: opaque(x) * 2, fullgraph=True, backend=backend)
    assert compiled(mica.ones(2)).tolist() == [14, 14] and compiled(-mica.ones(2)).tolist() == [8, 8]
    with pytest.raises(mica._dynamo.exc.Unsupported):
        mica.compile(lambda x: opaque(x) * 2 if x.sum() > 0 else x, fullgraph=True, backend=backend)(mica.ones(2))
    with pytest.raises(AssertionError, match="expects a callable"):
        mark(3)


def test_a_function_that_is_traced_otherwise_is_another_one():
    def breaks(x):
        mica._dynamo.graph_break()
        return x + 1

    traced, x = mica._dynamo.nonstrict_trace(breaks), mica.ones(2)
    assert mica.compile(lambda x: traced(x), backend="eager", fullgraph=True)(x).tolist() == [2, 2]
    with pytest.raises(mica._dynamo.exc.Unsupported):
        mica.compile(lambda x: breaks(x), backend="eager", fullgraph=True)(x)


def test_what_calls_a_compiled_function_says_nothing_about_it():
    compiled = mica.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True, backend="eager")
    with pytest.raises(mica._dynamo.exc.Unsupported):
        mica.compiler.allow_in_graph(lambda x: compiled(x))(mica.ones(2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_constants_may_ask_for_values(backend):
    table = mica.tensor([3.0, 4.0])

    @mica.compiler.assume_constant_result
    def first():
        return table.tolist()[0]

    assert mica.compile(lambda x: x * first(), fullgraph=True, backend=backend)(mica.ones(2)).tolist() == [3, 3]


def test_functions_that_are_kept_out_of_graphs():
    counter = CompileCounter()

    def function(x):
        return mica.sub(x + 1, 3) * 2

    compiled = mica.compile(function, backend=counter)
    assert mica._dynamo.disallow_in_graph(mica.sub) is mica.sub
    try:
        assert compiled(mica.ones(2)).tolist() == [-2, -2] and counter.frame_count == counter.op_count == 2
        with pytest.raises(mica._dynamo.exc.Unsupported, match="kept out of graphs"):
            mica.compile(function, backend=counter, fullgraph=True)(mica.ones(2))
    finally:
        assert mica.compiler.allow_in_graph([mica.sub]) == [mica.sub]
    mica._dynamo.reset()
    compiled(mica.ones(2))
    assert counter.frame_count == 3
    with pytest.raises(RuntimeError, match="disallow_in_graph is expected"):
        mica._dynamo.disallow_in_graph(function)
    assert mica._dynamo.disallow_in_graph(mica.compiler.allow_in_graph(function)) is function


def test_breaks_and_marks_of_other_kinds():
    counter = CompileCounter()

    @mica.compile(backend=counter)
    def stepped(x):
        x = x + 1
        mica._dynamo.step_unsupported()
        return x * 2

    assert stepped(mica.ones(2)).tolist() == [4, 4] and counter.frame_count == 2
    assert mica._dynamo.mark_static(Asks) is Asks
    with pytest.raises(TypeError, match="mark_static expects a tensor/nn.Module class"):
        mica._dynamo.mark_static(int)
    with pytest.raises(TypeError, match="takes a bool"):
        mica._dynamo.error_on_graph_break("no")


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_variables_that_switch_compilation_off(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert mica.compile(_asks) is _asks and mica.compile(backend="eager")(_asks) is _asks
    monkeypatch.setenv(name, "0")
    assert mica.compile(_asks)(mica.ones(2)).tolist() == [2, 2]


def test_a_stance_that_decorates_is_that_of_the_calls_alone():
    compiled = mica.compile(_asks, backend="eager")

    @mica.compiler.set_stance("force_eager")
    def eagerly(x):
        """Calls it."""
        return compiled(x)

    x = mica.ones(2)
    assert compiled(x).tolist() == [2, 2] and eagerly(x).tolist() == [3, 3] and compiled(x).tolist() == [2, 2]
    assert eagerly.__doc__ == "Calls it."
    mica.compiler.set_stance("force_eager")
    assert compiled(x).tolist() == [3, 3]
    mica.compiler.set_stance("default")
    assert compiled(x).tolist() == [2, 2]


def test_lists_of_whole_numbers_are_no_error_in_one_graph():
    x = mica.tensor([1, 2])
    assert mica.compile(lambda x: (x * 2).tolist(), backend="eager", fullgraph=True)(x) == [2, 4]
    with pytest.raises(mica._dynamo.exc.Unsupported, match="tolist"):
        mica.compile(lambda x: (x * 0.5).tolist(), backend="eager", fullgraph=True)(x)


def test_backward_passes_in_one_graph_where_the_settings_say_so():
    layer, x = mica.nn.Linear(2, 2), mica.ones(3, 2)

    def step(x):
        (weight,) = mica.autograd.grad(layer(x).sum(), layer.weight)
        layer(x).sum().backward()
        return weight

    compiled = mica.compile(step, backend="eager", fullgraph=True)
    with pytest.raises(mica._dynamo.exc.Unsupported, match="a backward pass"):
        compiled(x)
    with mica._dynamo.config.patch(trace_autograd_ops=True):
        assert compiled(x).tolist() == layer.weight.grad.tolist() == [[3, 3], [3, 3]]


def test_the_switch_for_graphs_of_passes_changes_no_numbers():
    compiled_autograd = mica._dynamo.compiled_autograd
    layer, x = mica.nn.Linear(2, 2), mica.ones(3, 2)
    with compiled_autograd._enable(mica.compile(backend="eager", fullgraph=True)):
        assert compiled_autograd.compiled_autograd_enabled
        layer(x).sum().backward()
        with compiled_autograd._disable():
            assert not compiled_autograd.compiled_autograd_enabled
    assert layer.weight.grad.tolist() == [[3, 3], [3, 3]] and not compiled_autograd.compiled_autograd_enabled
    with pytest.raises(TypeError, match="takes a compiler"):
        compiled_autograd._enable(None)
