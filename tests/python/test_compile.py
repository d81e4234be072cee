"""torch.compile as an interface: what it takes, what it gives back, what it refuses. tests/compiler has what it runs."""

import copy
import inspect
import pickle

import mica
import pytest


def test_functions():
    @mica.compile
    def f(x):
        """Adds one."""
        return x + 1

    @mica.compile(fullgraph=True, mode="max-autotune", dynamic=True)
    def g(x):
        return f(x) * 2

    assert g(mica.ones(2)).tolist() == [4, 4] and f.__name__ == "f" and f.__doc__ == "Adds one."
    assert mica.compile(f)(mica.ones(2)).tolist() == [2, 2]
    assert mica.compile(len)([1, 2]) == 2 and mica.compile(f, disable=True) is f
    assert mica.compile(lambda *a, **k: (a, k))(1, b=2) == ((1,), {"b": 2})


def test_modules():
    model = mica.nn.Linear(2, 3)
    compiled = mica.compile(model)
    assert (
        isinstance(compiled, mica._dynamo.OptimizedModule) and compiled._orig_mod is model and compiled.in_features == 2
    )
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    x = mica.ones(1, 2)
    assert mica.equal(compiled(x), model(x)) and not compiled.eval().training and not model.training
    compiled.extra = 5
    assert model.extra == 5
    assert mica.equal(copy.deepcopy(compiled)(x), model(x)) and mica.equal(
        pickle.loads(pickle.dumps(compiled))(x), model(x)
    )
    assert model._compiled_call_impl is None
    model.compile()
    assert mica.equal(model(x), compiled(x)) and model._compiled_call_impl is not None
    twin = copy.deepcopy(model)
    twin.weight.data.zero_()
    assert not mica.equal(twin(x), model(x)) and mica.equal(pickle.loads(pickle.dumps(model))(x), model(x))


def test_a_compiled_module_knows_that_it_is():
    class Asks(mica.nn.Module):
        def forward(self):
            return mica.compiler.is_compiling()

    for backend in ("inductor", "eager", "aot_eager", lambda graph, inputs: graph.forward):
        assert mica.compile(Asks(), backend=backend)() and not Asks()() and not mica.compiler.is_compiling()


def test_errors():
    with pytest.raises(RuntimeError, match="Either mode or options"):
        mica.compile(lambda x: x, mode="default", options={})
    with pytest.raises(ValueError, match="invalid torch.compile stance"):
        mica.compiler.set_stance("sideways")
    with pytest.raises(mica._dynamo.exc.InvalidBackend, match="Invalid backend: 'fastest'"):
        mica.compile(lambda x: x, backend="fastest")
    with pytest.raises(RuntimeError, match="Unrecognized mode=fastest, should be one of"):
        mica.compile(lambda x: x, mode="fastest")
    with pytest.raises(RuntimeError, match="Unexpected optimization option warp"):
        mica.compile(lambda x: x, options={"warp": 9})
    mica.compile(lambda x: x, options={"max_autotune": True})


def test_settings_are_kept():
    import mica._dynamo.config as config

    assert config.recompile_limit == 8
    with config.patch(recompile_limit=3, verbose=True):
        assert config.recompile_limit == 3 and config.verbose
    assert config.recompile_limit == 8 and not config.verbose

    @config.patch("suppress_errors", True)
    def suppressed():
        return config.suppress_errors

    assert suppressed() and not config.suppress_errors
    assert mica.compiler.disable(len)([1]) == 1 and mica._dynamo.disable()(len)([1]) == 1


def test_filters_of_guards_and_lists_of_options():
    from types import SimpleNamespace as Guard

    guards = [Guard(guard_type="TENSOR_MATCH", is_global=False, value=mica.ones(1)),
              Guard(guard_type="TENSOR_MATCH", is_global=True, value=mica.nn.Parameter(mica.ones(1))),
              Guard(guard_type="SHAPE_ENV", is_global=False, value=None)]  # fmt: skip
    assert mica.compiler.keep_tensor_guards_unsafe(guards) == [True, False, False]
    assert mica.compiler.keep_tensor_guards_unsafe(guards, keep_parameters=True) == [True, True, False]
    assert mica.compiler.keep_portable_guards_unsafe(guards) == [True, False, True]
    assert mica.compiler.skip_guard_on_globals_unsafe(guards) == [True, False, True]
    assert mica.compiler.skip_all_guards_unsafe(guards) == [False] * 3
    assert mica._inductor.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    assert "max_autotune" in mica._inductor.list_options()
    with pytest.raises(RuntimeError, match="Unrecognized mode=x"):
        mica._inductor.list_mode_options("x")
    with mica._dynamo.patch_dynamo_config(recompile_limit=3):
        assert mica._dynamo.config.recompile_limit == 3
    disabled = mica.compiler.disable(lambda x: x, recursive=False)
    assert mica._dynamo.is_dynamo_disable_recursive(disabled) is False
    assert mica._dynamo.is_dynamo_disable_recursive(len) is None


def test_graphs_are_compiled():
    graph = mica.fx.symbolic_trace(lambda x: (x * 2 + 1).relu())
    x = mica.randn(100)
    assert mica.equal(mica._inductor.compile(graph, [x])(x), graph(x))


def test_settings_of_a_class_of_tests():
    """torch 2.13 gives the class back, whose tests run with the settings."""
    import unittest

    from mica._dynamo import config

    seen = []

    @config.patch(recompile_limit=3)
    class Tests(unittest.TestCase):
        """Its own words."""

        @classmethod
        def setUpClass(cls):
            seen.append(("class", config.recompile_limit))

        def test_one(self):
            seen.append(("test", config.recompile_limit))

    before = config.recompile_limit
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
    assert result.testsRun == 1 and result.wasSuccessful()
    assert seen == [("class", 3), ("test", 3)] and config.recompile_limit == before
    assert (Tests.__name__, Tests.__doc__) == ("Tests", "Its own words.")


@pytest.mark.parametrize("backend", ["inductor", "eager", lambda graph, inputs: graph.forward])
def test_hooks_of_a_compiled_module_run_around_those_of_the_module(backend):
    module = mica.nn.Linear(2, 2)
    compiled = mica.compile(module, backend=backend)
    seen = []
    compiled.register_forward_hook(lambda *_: seen.append("its own"))
    compiled.register_forward_pre_hook(lambda *_: seen.append("its own, before"))
    module.register_forward_hook(lambda *_: seen.append("the module's"))
    x = mica.ones(2)
    assert mica.equal(compiled(x), module(x))
    assert seen == ["its own, before", "the module's", "its own", "the module's"]  # as torch 2.13
    seen.clear()
    compiled.forward(x)
    assert seen == ["the module's"]
    assert str(inspect.signature(compiled.forward)) == "(*args, **kwargs)"
    seen.clear()
    with mica.compiler.set_stance("force_eager"):
        assert mica.equal(compiled(x), module(x))
    assert seen == ["its own, before", "the module's", "its own", "the module's"]
    compiled.register_forward_hook(lambda module, args, output: output * 0)
    assert compiled(x).abs().sum() == 0 and isinstance(copy.deepcopy(compiled), type(compiled))
