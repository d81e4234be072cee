"""foreach_map: a function of tensors for the tensors of lists, also within compiled functions."""

import mica as torch
import pytest
from mica._higher_order_ops import foreach_map


def lists():
    return [torch.full((2,), float(i)) for i in (1, 2, 3)], [torch.full((2,), 10.0) for _ in range(3)]


def test_a_call_for_each_row_of_the_lists():
    a, b = lists()
    assert [t.tolist() for t in foreach_map(torch.add, a, tuple(b))] == [[11, 11], [12, 12], [13, 13]]
    assert [t.tolist() for t in foreach_map(torch.mul, a, 2)] == [[2, 2], [4, 4], [6, 6]]
    assert [t.tolist() for t in foreach_map(torch.add, a, torch.tensor(1.0), alpha=3)] == [[4, 4], [5, 5], [6, 6]]
    assert foreach_map(lambda x, y: (x, None), a, b[:1]) == [(a[0], None)]
    assert foreach_map(torch.add, a[0], b[0]).tolist() == [11, 11]
    assert foreach_map(torch.add, [], []) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_within_a_compiled_function_with_gradients(backend):
    def function(a, b):
        return sum(t.sum() for t in foreach_map(lambda x, y: x.mul(y).sin() + 1, a, b))

    a, b = lists()
    leaves = [t.requires_grad_() for t in a]
    expected = torch.autograd.grad(function(a, b), leaves)
    made = torch.autograd.grad(torch.compile(function, backend=backend, fullgraph=True)(a, b), leaves)
    torch.testing.assert_close(made, expected)
