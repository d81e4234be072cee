"""aot_export_module and aot_export_joint_simple: graphs of modules and functions, and what their inputs and results are."""

import mica as torch
import pytest
from mica import nn
from mica._functorch import config
from mica._functorch.aot_autograd import aot_export_joint_simple, aot_export_module
from mica._functorch.partitioners import default_partition


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        made = self.linear(x)
        return made.sum(), made.detach() * self.calls


def test_new_values_of_buffers_are_the_first_results():
    module, x = Counts(), torch.randn(4, 3)
    graph, signature = aot_export_module(module, [x], trace_joint=False)
    assert signature.parameters == ["linear.weight", "linear.bias"]
    assert signature.inputs_to_buffers == {"arg2_1": "calls"}
    assert signature.user_inputs == ["arg3_1"]
    assert list(signature.buffers_to_mutate.values()) == ["calls"]
    made = graph(module.linear.weight, module.linear.bias, module.calls, x)
    assert module.calls == 0
    assert made[0] == 1
    expected = module(x)
    torch.testing.assert_close(list(made[1:]), list(expected))
    assert "add_" not in graph.code
    assert "copy_" not in graph.code


def test_a_joint_graph_returns_the_gradients_of_the_parameters():
    module, x = Counts(), torch.randn(4, 3)
    graph, signature = aot_export_module(module, [x], trace_joint=True, output_loss_index=0)
    made = graph(module.linear.weight, module.linear.bias, module.calls, x)
    module(x)[0].backward()
    names = [node.name for node in graph.graph.output_node().args[0]]
    gradients = signature.backward_signature.gradients_to_parameters
    assert gradients == {names[3]: "linear.weight", names[4]: "linear.bias"}
    torch.testing.assert_close(list(made[3:]), [module.linear.weight.grad, module.linear.bias.grad])


def test_running_statistics_are_results():
    module, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    for pre_dispatch in (False, True):
        graph, signature = aot_export_module(module, [x], trace_joint=False, pre_dispatch=pre_dispatch)
        assert list(signature.buffers_to_mutate.values()) == ["running_mean", "running_var", "num_batches_tracked"]
        made = graph(module.weight, module.bias, *module.buffers(), x)
        other = nn.BatchNorm1d(3)
        expected = other(x)
        torch.testing.assert_close(list(made), [*other.buffers(), expected])


def test_inputs_that_are_changed_are_named():
    class Changes(nn.Module):
        def forward(self, x):
            x.add_(4)
            return (x.cos(),)

    graph, signature = aot_export_module(Changes(), [torch.ones(2)], trace_joint=False)
    assert list(signature.user_inputs_to_mutate.values()) == ["arg0_1"]
    x = torch.ones(2)
    assert [v.tolist() for v in graph(x)] == [[5.0, 5.0], torch.full((2,), 5.0).cos().tolist()]
    assert x.tolist() == [1.0, 1.0]


def test_operators_of_a_module_before_they_are_taken_apart():
    module = nn.Linear(2, 2)
    graph, _ = aot_export_module(module, [torch.ones(2)], trace_joint=False, pre_dispatch=True)
    assert "aten.linear.default" in graph.code


def test_branches_have_no_changes_in_place():
    class Branches(nn.Module):
        def forward(self, x):
            def yes(x):
                y = x + 4
                y.add_(5)
                return y.cos()

            return (torch.cond(x.sum() > 4, yes, lambda x: x.sin(), [x]),)

    graph, _ = aot_export_module(Branches(), [torch.ones(3)], trace_joint=False)
    assert "add_." not in graph.true_graph_0.code
    for x in (torch.ones(3), torch.ones(9)[:3] * 5):
        torch.testing.assert_close(graph(x)[0], Branches()(x)[0])


def test_a_joint_graph_of_a_function_is_cut_in_two():
    def f(x, y):
        return x * y, y * y.detach()

    x, y = (torch.randn(2, requires_grad=True) for _ in range(2))
    joint = aot_export_joint_simple(f, [x, y], trace_joint=True)
    outputs, gradients = joint([x, y], [torch.ones(2), torch.ones(2)])
    torch.testing.assert_close(list(outputs), list(f(x, y)))
    expected = torch.autograd.grad(f(x, y), [x, y], [torch.ones(2), torch.ones(2)])
    torch.testing.assert_close(list(gradients), list(expected))
    forward, backward = default_partition(joint, [x, y], num_fwd_outputs=2)
    made = forward(x.detach(), y.detach())
    torch.testing.assert_close(list(backward(*made[2:], torch.ones(2), torch.ones(2))), list(expected))
    plain = aot_export_joint_simple(f, [x, y], trace_joint=False)
    torch.testing.assert_close(list(plain(x, y)), list(f(x, y)))


def changes_sizes(p, x):
    x.t_()
    return (x * 2,)


def changes_parameter(p, x):
    p.mul_(2)
    return (p + x,)


def changes_second(p, x, y=None):
    x.mul_(2)
    return (x + (x if y is None else y),)


X = torch.ones(2, 2)
REFUSED = [
    (changes_sizes, [X], False, "Found an input that received a metadata mutation"),
    (changes_parameter, [X], False, "aot_export_joint_simple does not support input mutations"),
    (changes_parameter, [X], True, "Found a graph input that requires gradients, and received a mutation"),
    (changes_second, [X, X], False, "Encountered duplicated inputs that are mutated in the graph"),
    (changes_second, [X, X.view(-1)[:2]], False, "Encountered aliased inputs that are mutated in the graph"),
    (lambda p, x: (x.view(-1),), [X], False, "does not support outputs that alias inputs"),
    (lambda p, x: (x[0] + 1,), [[X]], False, "requires individual inputs not to be pytrees"),
    (lambda p, x: x + 1, [X], False, "requires outputs to be a single list/tuple"),
]


@pytest.mark.parametrize(("f", "args", "joint", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_graph_alone_cannot_say_is_refused(f, args, joint, words):
    with pytest.raises(RuntimeError, match=words):
        aot_export_joint_simple(f, [torch.ones(2, 2, requires_grad=True), *args], trace_joint=joint)


def test_a_loss_is_wanted_of_joint_graphs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones(2))

        def forward(self, x):
            made = self.p * x
            return made, made.sum()

    with pytest.raises(RuntimeError, match="Found an output of the forward that requires gradients, that was not"):
        aot_export_module(Two(), [torch.ones(2)], trace_joint=True, output_loss_index=1)
    with pytest.raises(RuntimeError, match="to be a scalar"):
        aot_export_module(nn.Linear(2, 2), [torch.ones(2)], trace_joint=True, output_loss_index=0)
    with pytest.raises(RuntimeError, match="output_loss_index"):
        aot_export_module(nn.Linear(2, 2), [torch.ones(2)], trace_joint=True)


def test_random_numbers_as_inputs_are_refused():
    with config.patch(functionalize_rng_ops=True), pytest.raises(RuntimeError, match="Functionalized RNG"):
        aot_export_module(nn.Linear(2, 2), [torch.ones(2)], trace_joint=False)
