"""Saved tensors as programs see them, the state of nodes, and what a pass tells while it runs: what torch 2.13 answers."""

import gc
import warnings
import weakref

import mica as torch
import pytest
from mica.autograd import Function
from mica.autograd.graph import Node, get_gradient_edge, saved_tensors_hooks
from mica.utils.checkpoint import CheckpointError, GraphExecGroup, checkpoint, set_checkpoint_debug_enabled


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


class TestSavedTensors:
    def test_hooks_of_one_saved_tensor(self):
        x = leaf(1.0, 2.0)
        y = x * x
        y.grad_fn._raw_saved_self.register_hooks(lambda t: 2 * t, lambda t: t)
        assert y.grad_fn._saved_self.tolist() == [2.0, 4.0]
        y.sum().backward()
        assert x.grad.tolist() == [3.0, 6.0]
        with pytest.raises(RuntimeError, match="after it has been freed"):
            y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)

    def test_an_output_with_hooks_keeps_its_history(self):
        y = leaf(1.0).exp()
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
        assert y.grad_fn._saved_result.grad_fn is y.grad_fn

    def test_what_is_kept(self):
        def unpack(packed):
            return packed

        x = leaf(2.0)
        with saved_tensors_hooks(lambda t: t, unpack):
            y = x**2
        z = y.exp()
        assert y.grad_fn._raw_saved_self.data is x
        assert y.grad_fn._raw_saved_self.unpack_hook is unpack
        assert z.grad_fn._raw_saved_result.data is not z
        assert z.grad_fn._raw_saved_result.unpack_hook is None
        assert (z**2).grad_fn._raw_saved_self.data is z

    def test_refusals(self):
        y = leaf(1.0)[torch.tensor([0]), None]
        with pytest.raises(RuntimeError, match="from Python is forbidden"):
            torch.autograd.SavedTensor()
        with pytest.raises(TypeError, match="incompatible function arguments"):
            leaf(1.0).exp().grad_fn._raw_saved_result.register_hooks(1, 1)
        with pytest.raises(AttributeError):
            y.grad_fn._raw_saved_nothing  # noqa: B018

    def test_a_saved_tensor_that_was_detached(self):
        x = leaf(1.0).clone()
        y = x.sin()
        x.detach_()
        with pytest.raises(RuntimeError, match="has been detached in-place"):
            y.backward()
        x = leaf(1.0).clone()
        y = x.exp()
        x.detach_()
        y.backward()

    def test_hooks_pushed_in_a_pass_go_with_it(self):
        entered = []

        def unpack(packed):
            entered.append(context.__enter__())
            return packed

        context = saved_tensors_hooks(lambda t: t, unpack)
        x = leaf(1.0)
        with context:
            x.sin().sum().backward()
        assert entered
        assert x.sin().grad_fn._raw_saved_self.unpack_hook is None

    def test_saved_tensors_of_a_function(self):
        class Twice(Function):
            clear_saved_tensors_on_access = True

            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x, None)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                assert len(ctx.saved_tensors) == 2
                return ctx.saved_tensors[0]

        y = Twice.apply(leaf(1.0))
        first, second = y.grad_fn._raw_saved_tensors
        assert first.unpack().tolist() == [1.0]
        with pytest.raises(RuntimeError, match="None is forbidden"):
            second.register_hooks(lambda t: t, lambda t: t)
        with pytest.raises(RuntimeError, match="can only be accessed once"):
            y.backward()

    def test_gradients_of_outputs_that_have_none(self):
        class Pair(Function):
            @staticmethod
            def forward(ctx, x, materialize):
                second = x.clone()
                ctx.mark_non_differentiable(second)
                ctx._materialize_non_diff_grads = materialize
                return x.clone(), second

            @staticmethod
            def backward(ctx, first, second):
                seen.append(second)
                return first, None

        seen = []
        Pair.apply(leaf(1.0), False)[0].backward()
        Pair.apply(leaf(1.0), True)[0].backward()
        assert seen[0] is None
        assert seen[1].tolist() == [0.0]


class TestNodes:
    def test_calls(self):
        node = (leaf(3.0) ** 2).grad_fn
        with pytest.raises(TypeError, match="expected 1 arguments, got 2 instead"):
            node(torch.ones(1), torch.ones(1))
        assert node(torch.ones(1)).tolist() == [6.0]

    def test_kinds(self):
        y = leaf(1.0).exp()
        assert isinstance(y.grad_fn, Node)
        assert Node not in type(y.grad_fn).mro()
        assert not isinstance(Node, Node)
        assert issubclass(torch.autograd.function.BackwardCFunction, Node)

    def test_what_comes_in(self):
        (metadata,) = (leaf(1.0, 2.0) * 2).grad_fn._input_metadata
        assert metadata.shape == (2,)
        assert metadata.dtype == torch.float32
        assert metadata.device == torch.device("cpu")

    def test_metadata_lives_as_long_as_the_node(self):
        y = leaf(1.0).exp()
        y.grad_fn.metadata["name"] = "first"
        gc.collect()
        assert y.grad_fn.metadata == {"name": "first"}

    def test_numbers_decide_about_the_order(self):
        x, y, z = leaf(1.0), leaf(1.0), leaf(1.0)
        a, b = x + y, y + z
        a.grad_fn._set_sequence_nr(100)
        b.grad_fn._set_sequence_nr(99)
        order = []
        a.register_hook(lambda grad: order.append("a"))
        b.register_hook(lambda grad: order.append("b"))
        (a + b).sum().backward()
        assert order == ["a", "b"]

    def test_a_hook_that_refers_to_its_node(self):
        class Sentinel:
            pass

        def cycle():
            y = leaf(1.0).clone()
            node, sentinel = y.grad_fn, Sentinel()
            node.register_hook(lambda *grads: (node, sentinel))
            return weakref.ref(sentinel)

        reference = cycle()
        gc.collect()
        assert reference() is None

    def test_an_edge_keeps_the_node_of_a_function(self):
        class Same(Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                return grad

        x = leaf(1.0)
        edge = get_gradient_edge(Same.apply(x))
        torch.autograd.backward(edge)
        assert x.grad.tolist() == [1.0]


class TestRunningPass:
    def test_hooks_that_are_removed_meanwhile_have_their_turn(self):
        y = leaf(1.0) * 2
        calls = []
        y.grad_fn.register_prehook(lambda grads: handle.remove())
        handle = y.grad_fn.register_prehook(lambda grads: calls.append(1))
        y.sum().backward(retain_graph=True)
        assert calls == [1]
        y.sum().backward()
        assert calls == [1]

    def test_which_nodes_run(self):
        a, b = leaf(1.0), leaf(1.0)
        c = a * b
        answers = []
        c.register_hook(lambda grad: answers.append(torch._C._will_engine_execute_node(c.grad_fn)))
        torch.autograd.backward(c.sum(), inputs=(a,))
        assert answers == [True]
        with pytest.raises(RuntimeError, match="during the backward pass"):
            torch._C._will_engine_execute_node(c.grad_fn)

    def test_versions_that_are_not_counted(self):
        x = torch.ones(2)
        x.add_(1)
        with torch.autograd._unsafe_preserve_version_counter(x):
            x.mul_(2)
        assert x._version == 1

    def test_anomalies_within_gradients(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with pytest.raises(RuntimeError, match="returned nan values"), torch.autograd.detect_anomaly():
                x = leaf(0.0)
                (first,) = torch.autograd.grad(x.pow(1.5).sum(), x, create_graph=True)
                (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
                (second * 0).sum().backward()
        texts = [str(each.message) for each in seen]
        assert any("Previous calculation was induced by PowBackward0" in text for text in texts)

    def test_a_warning_that_is_an_error_does_not_hide_the_cause(self, capsys):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mode = torch.autograd.detect_anomaly()
            warnings.simplefilter("error")
            with mode, pytest.raises(RuntimeError, match="modified by an inplace operation"):
                x = leaf(1.0)
                y = x + 1
                z = y**2
                y += 1
                z.sum().backward()
        assert "Error detected in PowBackward0" in capsys.readouterr().err


class TestCheckpoints:
    def test_groups_of_passes(self):
        def function(x):
            runs.append(1)
            y = x.sin().cos()
            return y, y.sin().cos()

        def twice(context):
            x = torch.ones(3, requires_grad=True)
            y, z = checkpoint(function, x, use_reentrant=False)
            with context:
                (grad,) = torch.autograd.grad(z, y, torch.ones(3))
                torch.autograd.grad(y, x, grad)

        runs = []
        twice(GraphExecGroup())
        assert len(runs) == 2
        x = torch.ones(3, requires_grad=True)
        out = checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False)
        with GraphExecGroup():
            out.sum().backward(retain_graph=True)
            with pytest.raises(RuntimeError, match="Performing two backward calls that overlap"):
                out.sum().backward()

    def test_saved_tensors_are_unpacked_once(self):
        class Kept(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                assert ctx.saved_tensors
                with pytest.raises(CheckpointError, match="already unpacked once"):
                    ctx.saved_tensors  # noqa: B018
                return grad

        checkpoint(lambda t: Kept.apply(t * 1), leaf(1.0), use_reentrant=False).sum().backward()

    def test_looks_outside_of_a_pass_compute_again(self):
        runs = []

        def function(x):
            runs.append(1)
            return x.exp()

        y = checkpoint(function, leaf(1.0), use_reentrant=False)
        for _ in range(2):
            y.grad_fn._saved_result  # noqa: B018
        assert len(runs) == 3

    def test_operators_of_runs_that_differ(self):
        runs = []

        def function(x):
            runs.append(1)
            return x.sin().exp() if len(runs) == 1 else x.sin() * torch.tensor([1.0, 2.0])

        with set_checkpoint_debug_enabled(True):
            y = checkpoint(function, leaf(1.0), use_reentrant=False)
        with pytest.raises(CheckpointError, match="because you passed `debug=True` to checkpoint") as error:
            y.backward()
        assert "aten.exp.default" in str(error.value)
        with pytest.raises(ValueError, match="determinism_check should be one of"):
            checkpoint(function, leaf(1.0), use_reentrant=False, determinism_check="often")
