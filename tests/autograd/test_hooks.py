"""Hooks in Python: on tensors, on nodes, on several gradients at once."""

import mica as torch
import pytest
from mica.autograd.graph import register_multi_grad_hook
from mica.utils.hooks import RemovableHandle


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def test_tensor_hooks_see_and_replace_gradients():
    seen = []
    x = leaf(1.0, 2.0)
    y = x * 3
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    handle = x.register_hook(lambda grad: grad * 10)
    assert isinstance(handle, RemovableHandle)
    y.sum().backward()
    assert seen == [[1, 1]]
    assert x.grad.tolist() == [30, 30]
    handle.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_handle_is_a_context_manager():
    x = leaf(1.0)
    with x.register_hook(lambda grad: grad * 5):
        (x * 1).backward()
    (x * 1).backward()
    assert x.grad.item() == 6


def test_hook_results_are_checked():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda grad: grad.sum())
    with pytest.raises(RuntimeError, match="has changed the size of value"):
        (x * 1).sum().backward()
    y = leaf(1.0)
    y.register_hook(lambda grad: "text")
    with pytest.raises(TypeError, match="expected Variable, but hook returned 'str'"):
        (y * 1).backward()
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        torch.ones(1).register_hook(print)


def test_post_accumulate_hooks_run_after_the_gradient_is_there():
    seen = []
    x = leaf(2.0)
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.item())))
    (x * 3).backward()
    (x * 3).backward()
    handle.remove()
    (x * 3).backward()
    assert seen == [(True, 3), (True, 6)]
    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf"):
        (x * 3).register_post_accumulate_grad_hook(print)


def test_a_post_accumulate_hook_may_return_its_tensor_and_nothing_else():
    x = leaf(1.0)
    x.register_post_accumulate_grad_hook(lambda p: (p.data.sub_(p.grad), p)[1])
    x.backward()
    assert x.item() == 0
    for returned, kind, words in (
        (torch.ones(1), RuntimeError, "Tensor post accumulate grad hooks should return None"),
        (3, TypeError, "expected Variable, but hook returned 'int'"),
    ):
        x = leaf(1.0)
        x.register_post_accumulate_grad_hook(lambda p, returned=returned: returned)
        with pytest.raises(kind, match=words):
            x.backward()


def test_retain_grad():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    assert y.retains_grad
    (y * y).sum().backward()
    assert y.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires_grad=False"):
        torch.ones(1).retain_grad()


def test_node_hooks():
    seen = []
    x = leaf(1.0, 2.0)
    y = x * 2
    y.grad_fn.register_prehook(lambda outs: (outs[0] * 10,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].tolist(), outs[0].tolist())))
    y.sum().backward()
    assert seen == [([20, 20], [10, 10])]
    assert x.grad.tolist() == [20, 20]


def test_nodes_know_their_neighbours():
    x = leaf(1.0)
    y = (x * 2).exp()
    node = y.grad_fn
    assert node.name() == "ExpBackward0"
    ((before, number),) = node.next_functions
    assert (before.name(), number) == ("MulBackward0", 0)
    assert before.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    node.metadata["key"] = 1
    assert y.grad_fn.metadata == {"key": 1}


def test_exceptions_of_hooks_pass_unchanged():
    def hook(grad):
        raise KeyError("mine")

    x = leaf(1.0)
    x.register_hook(hook)
    with pytest.raises(KeyError, match="mine"):
        (x * 1).backward()


def test_multi_grad_hooks():
    seen = []
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    handle = register_multi_grad_hook((a, b, c), lambda grads: seen.append([g and g.item() for g in grads]))
    (a * b * c).backward()
    (a * b).backward()
    handle.remove()
    (a * b).backward()
    assert seen == [[6, 3, 2], [2, 1, None]]
    first = []
    register_multi_grad_hook((a, b), lambda grad: first.append(grad.item()), mode="any")
    (a * b).backward()
    (a * b).backward()
    assert len(first) == 2


@pytest.mark.parametrize("operation", [lambda x: x * 2, lambda x: 2 + x, lambda x: x - 2, lambda x: x / 2])
def test_a_number_has_an_edge_that_leads_nowhere(operation):
    x = leaf(1.0, 2.0)
    y = operation(x)
    assert len(y.grad_fn.next_functions) == 2 and y.grad_fn.next_functions[1] == (None, 0)
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))
    y.grad_fn.register_hook(lambda inputs, outputs: (torch.full((2,), 7.0), None))
    y.sum().backward()
    assert len(seen[0]) == 2 and seen[0][1] is None
    assert x.grad.tolist() == [7, 7]


def test_a_hook_with_a_wrong_number_of_values_is_named():
    def one(inputs, outputs):
        return inputs[:1]

    y = leaf(1.0) * 2
    y.grad_fn.register_hook(one)
    with pytest.raises(RuntimeError, match="hook 'one' has returned an incorrect number of values \\(got 1, but expec"):
        y.backward()


def test_a_missing_gradient_reaches_hooks_as_none():
    parts = torch.arange(3.0, requires_grad=True).unbind()
    seen = []
    parts[0].register_hook(seen.append)
    parts[0].backward(retain_graph=True)
    parts[1].backward()
    assert seen[0] == 1 and seen[1] is None
    parts = torch.arange(3.0, requires_grad=True).unbind()
    parts[0].register_hook(lambda grad: torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        parts[1].backward()


def test_a_hook_that_unpacking_adds_runs_in_the_same_pass():
    seen = []

    def unpack(kept):
        def halved(inputs, outputs):
            seen.append(outputs)
            return tuple(None if each is None else each / 2 for each in inputs)

        torch._C._current_autograd_node().register_hook(halved)
        return kept

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpack):
        y = x.exp()
    y.sum().backward()
    assert torch.allclose(x.grad, x.exp() / 2) and seen == [(None,)]
