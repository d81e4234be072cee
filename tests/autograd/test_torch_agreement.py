"""What torch 2.13's own tests of autograd ask beside values: versions, messages, who owns a gradient, which class is asked."""

import mica as torch
import pytest
from mica.autograd import Function, forward_ad
from mica.autograd.graph import get_gradient_edge
from mica.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


class TestGradients:
    def test_sparse_gradients_of_two_leaves_lie_apart(self):
        class Both(Function):
            @staticmethod
            def forward(ctx, a, b):
                return a + b

            @staticmethod
            def backward(ctx, grad):
                return grad, grad

        a, b = torch.ones(5, 2, requires_grad=True), torch.ones(5, 2, requires_grad=True)
        table = Both.apply(a, b)
        index = torch.tensor([1, 2, 4])
        torch.nn.functional.embedding(index, table, sparse=True).sum().backward()
        assert a.grad._values().data_ptr() != b.grad._values().data_ptr()
        a.grad._values().mul_(2)
        assert b.grad.to_dense().sum().item() == 6

    def test_sparse_sums_are_merged(self):
        # torch 2.13: lists in order are merged; others meet where they do.
        size, ones = (6, 3), torch.ones(3)
        a = torch.sparse_coo_tensor(torch.tensor([[0, 3, 4], [0, 2, 2]]), ones, size)
        b = torch.sparse_coo_tensor(torch.tensor([[0, 1, 3, 4], [0, 1, 2, 2]]), torch.ones(4) * 10, size)
        c = torch.sparse_coo_tensor(torch.tensor([[4, 0, 4], [2, 0, 2]]), ones, size)
        for total in (a + b, b + a, a.clone().add_(b)):
            assert total._indices().tolist() == [[0, 1, 3, 4], [0, 1, 2, 2]]
            assert total._values().tolist() == [11, 10, 11, 11]
            assert not total.is_coalesced()
        assert (b + c)._indices().tolist() == [[0, 1, 3, 4, 0, 4], [0, 1, 2, 2, 0, 2]]
        assert (b + c)._values().tolist() == [10, 10, 10, 11, 1, 1]

    def test_gradients_with_a_history_are_copies(self):
        x = leaf(1.0, 2.0)
        (x * x).sum().backward(create_graph=True)
        assert type(x.grad.grad_fn).__name__ == "CopyBackwards"
        assert x.grad.grad_fn.next_functions[0][0] is None

    def test_gradients_for_edges_are_checked(self):
        edge = get_gradient_edge(leaf(1.0, 2.0).exp())
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            torch.autograd.backward(edge, grad_tensors=torch.ones(4))
        with pytest.raises(RuntimeError, match="required to have the same dtype"):
            torch.autograd.backward(edge, grad_tensors=torch.ones(2, dtype=torch.complex64))

    def test_classes_are_asked_about_passes(self):
        calls = []

        class Asked(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                calls.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = leaf(1.0)
        y = (x * 2).as_subclass(Asked)
        calls.clear()
        torch.autograd.backward(y, torch.ones(1))
        assert calls == [torch.autograd.backward]
        assert x.grad.tolist() == [2.0]


class TestVersionsAndViews:
    def test_resizes(self):
        x, y = torch.rand(1), torch.randn(3)
        x.resize_((1, 2))
        assert x._version == 1
        x.resize_as_(y)
        assert x._version == 2
        x.resize_((3,))
        x.resize_as_(y)
        assert x._version == 2

    def test_resize_in_inference_mode(self):
        with torch.inference_mode():
            x = torch.ones(1, 2, 3, requires_grad=True)
            assert x.resize_(1, 2).requires_grad

    def test_words_about_views(self):
        class Same(Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                return grad

        view = Same.apply(torch.rand(1, 2))
        with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
            view += leaf(1.0)
        with torch.no_grad():
            y = torch.zeros(2).view(2)
        z = y.requires_grad_().view(2)
        with pytest.raises(RuntimeError, match="is a view of a view which was created in no_grad mode and is being"):
            z /= 2


class TestForwards:
    def test_switched_off(self):
        def function(x):
            with forward_ad._set_fwd_grad_enabled(False):
                shift = x**2
            return x**2 - shift

        x = torch.tensor(3.0)
        assert torch.func.jvp(function, (x,), (torch.ones(()),))[1].item() == 6.0
        with forward_ad._set_fwd_grad_enabled(False):
            assert not forward_ad._is_fwd_grad_enabled()
            assert torch.func.jvp(torch.square, (x,), (torch.ones(()),))[1].item() == 6.0
        assert forward_ad._is_fwd_grad_enabled()

    def test_tangents(self):
        x = torch.randn(3, dtype=torch.complex64)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x.conj())
            assert not forward_ad.unpack_dual(dual).tangent.is_conj()
            with pytest.raises(RuntimeError, match="a forward gradient at the same level"):
                forward_ad.make_dual(x, dual)
            other = torch.zeros(3, dtype=torch.complex64)
            tangent = torch.ones(3, dtype=torch.complex64)
            other.copy_(forward_ad.make_dual(x, tangent))
            assert forward_ad.unpack_dual(other).tangent is not tangent


class TestEvents:
    def test_children_by_their_times(self):
        events = EventList()
        for number, (start, end) in enumerate([(0, 2), (1, 2), (1, 3)]):
            events.append(FunctionEvent(id=number, node_id=0, name="", thread=0, start_us=start, end_us=end))
        events._populate_cpu_children()
        assert [[child.id for child in event.cpu_children] for event in events] == [[], [], [1]]

    def test_averages(self):
        average = FunctionEventAvg()
        average.add(FunctionEvent(id=0, name="foo", thread=0, start_us=10, end_us=15))
        average.add(FunctionEvent(id=1, name="foo", thread=0, start_us=20, end_us=30))
        assert (average.key, average.count, average.cpu_time_total) == ("foo", 2, 15)


def test_where_of_sparse_masks():
    # _where(mask, input, fill) has what the mask lets through, and zero where the input has nothing.
    mask = torch.tensor([[True, False], [True, True]]).to_sparse()
    given = torch.tensor([[1.0, 2.0], [0.0, 4.0]]).to_sparse()
    found = torch.masked._where(mask, given, torch.tensor(7.0))
    assert found.indices().tolist() == [[0, 1, 1], [0, 0, 1]]
    assert found.values().tolist() == [1.0, 0.0, 4.0]
    assert (
        torch.masked._where(mask.to_sparse_csr(), given.to_sparse_csr(), torch.tensor(7.0)).layout is torch.sparse_csr
    )


def test_hooks_are_told_that_there_is_no_gradient():
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return None

    seen = []
    y = leaf(1.0).clone()
    y.register_hook(seen.append)
    Nothing.apply(y).sum().backward()
    assert seen == [None]


def test_sparse_sums_do_not_grow_without_end():
    step = torch.sparse_coo_tensor(torch.tensor([[3, 1, 3]]), torch.ones(3), (4,))
    total = step
    for _ in range(9):
        total = total + step
    assert total._nnz() <= 4
    assert total.to_dense().tolist() == [0, 10, 0, 20]


def test_nodes_that_cannot_be_differentiated_twice():
    class Once(Function):
        @staticmethod
        def forward(ctx, x, number, y):
            return x * number + y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2, None, grad

    x, y = leaf(1.0), leaf(2.0)
    weight = torch.ones(1, requires_grad=True)
    (found,) = torch.autograd.grad(Once.apply(x, 2, y), x, weight, create_graph=True)
    node = found.grad_fn
    assert node.name() == "Error"
    assert [edge[0] is None for edge in node.next_functions] == [False, True, False]
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        found.sum().backward()
