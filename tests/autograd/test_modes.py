"""no_grad and its kin: as context managers, as decorators, around generators."""

import copy
import pickle
import warnings

import mica as torch
import pytest


@pytest.fixture
def x():
    return torch.ones(2, requires_grad=True)


def test_context_managers_nest(x):
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
        with torch.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_set_grad_enabled_acts_at_once(x):
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)

    @torch.set_grad_enabled(False)
    def f():
        return torch.is_grad_enabled()

    assert torch.is_grad_enabled()
    assert not f()


def test_modes_are_restored_after_exceptions():
    with pytest.raises(KeyError), torch.no_grad():
        raise KeyError
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("mode", [torch.no_grad(), torch.no_grad, torch.inference_mode(), torch.inference_mode])
def test_decorated_functions(mode, x):
    @mode
    def double(v):
        """A docstring."""
        return v * 2

    assert not double(x).requires_grad
    assert torch.is_grad_enabled()
    assert double.__name__ == "double"
    assert double.__doc__ == "A docstring."


def test_recursion_through_a_decorated_function():
    @torch.no_grad()
    def f(n):
        return [torch.is_grad_enabled()] + (f(n - 1) if n else [])

    assert f(3) == [False] * 4
    assert torch.is_grad_enabled()


def test_decorated_generators_suspend_the_mode():
    @torch.no_grad()
    def generate():
        try:
            received = yield torch.is_grad_enabled()
            assert not torch.is_grad_enabled()
            yield received
        except ValueError:
            yield "caught", torch.is_grad_enabled()
        return "end"

    g = generate()
    assert next(g) is False
    assert torch.is_grad_enabled()
    assert g.send("sent") == "sent"
    assert g.throw(ValueError()) == ("caught", False)
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value == "end"
    assert torch.is_grad_enabled()


def test_decorating_a_class_is_deprecated():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @torch.no_grad()
        class Holder:
            def __init__(self):
                self.enabled = torch.is_grad_enabled()

    assert caught[0].category is FutureWarning
    assert Holder().enabled is False


def test_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        assert y.is_inference()
        assert not y.requires_grad
        assert torch.is_inference_mode_enabled()
        with torch.no_grad():
            pass
        with torch.inference_mode(False):
            assert (x * 2).requires_grad
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * y
    for change in (
        lambda: y.add_(1),
        lambda: torch.add(y.clone(), 1, out=y),
        lambda: torch.cumsum(y.clone(), 0, out=y),
    ):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            change()
    with torch.inference_mode(mode=False):
        assert not torch.is_inference_mode_enabled()


def test_grad_mode_is_kept_apart_from_inference_mode():
    with torch.inference_mode():
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            assert torch.is_grad_enabled() and torch.is_inference_mode_enabled()
            x = torch.ones(2, requires_grad=True) * 2
            assert x.is_inference() and not x.requires_grad
        assert not torch.is_grad_enabled()
        with torch.inference_mode(False):
            assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_contexts_are_objects_like_others():
    context = torch.no_grad()
    assert context.prev is False
    context.note = 1
    with context as entered:
        assert entered is None and context.prev is True
        again = copy.copy(context)
        assert type(again) is torch.no_grad and again.note == 1
        assert type(pickle.loads(pickle.dumps(torch.enable_grad()))) is torch.enable_grad

    class Counting(torch.no_grad):
        entries = 0

        def __enter__(self):
            Counting.entries += 1
            super().__enter__()

    with Counting():
        assert not torch.is_grad_enabled()
    assert Counting.entries == 1 and torch.is_grad_enabled()
    assert not torch.no_grad(orig_func=torch.is_grad_enabled)()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_views_of_inference_tensors_have_no_history(requires_grad):
    """As in torch, outside of the mode too; what is computed from one has a history."""
    with torch.inference_mode():
        x = torch.ones(1, 2, 3, requires_grad=requires_grad)
    for view in (x.view(-1), x.transpose(0, 1), x[0], x.expand(2, 2, 3), x.unbind(1)[0], x.reshape(-1)):
        assert view.is_inference() and view.is_leaf and not view.requires_grad and not view._is_view()
    assert (x * 2).requires_grad is requires_grad and x.requires_grad is requires_grad
