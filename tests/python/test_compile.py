"""torch.compile: what is compiled runs as it is, and that is said once."""

import copy
import logging
import pickle

import mica
import pytest


@pytest.fixture(autouse=True)
def unsaid(monkeypatch):
    import mica._dynamo

    monkeypatch.setattr(mica._dynamo, "_said", False)


def test_functions(caplog):
    @mica.compile
    def f(x):
        """Adds one."""
        return x + 1

    @mica.compile(fullgraph=True, mode="max-autotune", dynamic=True)
    def g(x):
        return f(x) * 2

    with caplog.at_level(logging.WARNING):
        assert g(mica.ones(2)).tolist() == [4, 4] and f.__name__ == "f" and f.__doc__ == "Adds one."
    mica.compile(f)
    assert sum("Mica has no compiler yet" in record.message for record in caplog.records) <= 1


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
    model.compile()
    assert mica.equal(model(x), compiled(x))


def test_errors():
    with pytest.raises(RuntimeError, match="Either mode or options"):
        mica.compile(lambda x: x, mode="default", options={})
    with pytest.raises(NotImplementedError, match="a backend of one's own needs a graph"):
        mica.compile(lambda x: x, backend=lambda graph, inputs: graph)
    with pytest.raises(ValueError, match="invalid torch.compile stance"):
        mica.compiler.set_stance("sideways")


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
    assert mica.compiler.disable(len) is len and mica._dynamo.disable()(len) is len and not mica.compiler.is_compiling()
