"""Checkpoints that keep the results of some operations."""

import functools

import mica
import pytest
from mica.utils._python_dispatch import TorchDispatchMode
from mica.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
)

MM = mica.ops.aten.mm.default


def function(x, y):
    return mica.sigmoid(mica.matmul(mica.matmul(x, y), y)) * y


def inputs():
    mica.manual_seed(0)
    return mica.randn(4, 4, requires_grad=True), mica.randn(4, 4, requires_grad=True)


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def keep_products(context, operation, *args, **kwargs):
    assert not context.is_recompute and isinstance(context.op_output, mica.Tensor)
    return CheckpointPolicy.MUST_SAVE if operation == MM else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("chosen", [keep_products, [MM]], ids=["policy", "list"])
def test_what_is_kept_is_not_computed_again(chosen):
    expected = mica.autograd.grad(function(*(given := inputs())).sum(), given)
    products = {}
    for name, context in (
        ("all", None),
        ("some", functools.partial(create_selective_checkpoint_contexts, chosen)),
    ):
        given = inputs()
        options = {} if context is None else {"context_fn": context}
        with set_checkpoint_debug_enabled(context is None):
            out = checkpoint(function, *given, use_reentrant=False, **options)
        counting = Counting()
        with counting:
            grads = mica.autograd.grad(out.sum(), given)
        products[name] = counting.seen.count("aten.mm.default")
        for ours, theirs in zip(grads, expected, strict=True):
            mica.testing.assert_close(ours, theirs)
    assert products["some"] < products["all"]


def test_a_second_backward_pass_is_refused():
    contexts = functools.partial(create_selective_checkpoint_contexts, [MM])
    out = checkpoint(function, *inputs(), use_reentrant=False, context_fn=contexts)
    out.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        out.sum().backward()


def test_what_is_kept_must_not_change():
    def changed(x, y):
        product = mica.mm(x, y)
        result = product.sin()
        with mica.no_grad():
            product.add_(1)
        return result * 2

    for allowed in (False, True):
        contexts = functools.partial(create_selective_checkpoint_contexts, [MM], allow_cache_entry_mutation=allowed)
        out = checkpoint(changed, *inputs(), use_reentrant=False, context_fn=contexts)
        if allowed:
            out.sum().backward()
        else:
            with pytest.raises(RuntimeError, match="has been mutated"):
                out.sum().backward()


def test_other_operations_the_second_time():
    runs = []

    def fickle(x, y):
        runs.append(0)
        return mica.mm(x, y).sin() if len(runs) == 1 else mica.mm(x, y).cos()

    contexts = functools.partial(create_selective_checkpoint_contexts, [MM])
    out = checkpoint(fickle, *inputs(), use_reentrant=False, context_fn=contexts)
    with pytest.raises(RuntimeError, match="encountered during backward but not found in storage"):
        out.sum().backward()


def test_wrong_policies():
    with pytest.raises(ValueError, match="change it to `torch.ops.aten.mm.default`"):
        create_selective_checkpoint_contexts([mica.ops.aten.mm])
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts(3)
