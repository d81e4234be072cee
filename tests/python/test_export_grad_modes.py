"""Parts of exported programs under no_grad and enable_grad: they keep their gradients, in archives too."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export, load, save, unflatten


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            y = self.encoder(x)
            with torch.enable_grad():
                z = self.head(y)
            w = torch.cond(y.sum() > 0, lambda y: y * 2, lambda y: y - 1, (y,))
        return self.head(y) + z + w


def _travelled(program):
    buffer = io.BytesIO()
    save(program, buffer)
    buffer.seek(0)
    return load(buffer)


def _targets(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("shapes", [None, ({0: Dim.DYNAMIC},)])
def test_parts_are_graphs_of_their_own(shapes):
    torch.manual_seed(0)
    module, x = Model(), torch.randn(4, 3)
    program = export(module, (x,), dynamic_shapes=shapes)
    assert [name for name in _targets(program.graph) if "getitem" not in name] == [
        "wrap_with_set_grad_enabled", "aten.linear.default", "wrap_with_set_grad_enabled", "aten.linear.default",
        "aten.add.Tensor", "aten.add.Tensor",
    ]  # fmt: skip
    inner = program.graph_module.submod_1.graph
    assert _targets(inner) == ["aten.linear.default", "aten.relu.default", "aten.linear.default"]
    module(x).sum().backward()
    meant = module.head.weight.grad.clone()
    for each in (program, _travelled(program)):
        each.validate()
        trained = each.module()
        made = trained(x)
        torch.testing.assert_close(made, module(x))
        trained.zero_grad()  # a program that was not saved shares the module's parameters
        made.sum().backward()
        assert trained.encoder.a.weight.grad is None is module.encoder.a.weight.grad
        torch.testing.assert_close(trained.head.weight.grad, meant)
        apart = each.run_decompositions()
        assert "wrap_with_set_grad_enabled" not in _targets(apart.graph)
        assert _targets(apart.graph).count("aten.addmm.default") == 4
        torch.testing.assert_close(apart.module()(x), module(x))
        modules = unflatten(each)
        assert [name for name, _ in modules.encoder.named_modules()] == ["", "a", "b"]
        torch.testing.assert_close(modules(x), module(x))


def test_a_part_that_changes_a_buffer():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            with torch.no_grad():
                self.count.add_(x.sum())
            return x * 2

    for form in (lambda program: program, _travelled, lambda program: program.run_decompositions()):
        made = form(export(Counting(), (torch.ones(3),))).module()
        made(torch.ones(3))
        made(torch.ones(3))
        assert made.count.tolist() == [6.0]


def test_functions_of_autograd_are_no_parts():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    class Model(nn.Module):
        def forward(self, x):
            return Double.apply(x) + 1

    assert _targets(export(Model(), (torch.ones(2),)).graph) == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_an_export_leaves_the_mode_as_it_was():
    class Model(nn.Module):
        def forward(self, x):
            torch._C._set_grad_enabled(False)
            return x.sum()

    export(Model(), (torch.ones(2),))
    assert torch.is_grad_enabled()


def test_hooks_of_the_state_change_no_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self._register_state_dict_hook(
                lambda module, state, prefix, meta: {f"old.{k}": v for k, v in state.items()}
            )
            self.register_buffer("place", torch.ones(2), persistent=False)

        def forward(self, x):
            return self.layer(x) + self.place

    module, x = Model(), torch.rand(3, 2)
    program = export(module, (x,))
    assert list(program.state_dict) == ["layer.weight", "layer.bias"]
    torch.testing.assert_close(program.module()(x), module(x))


def test_the_example_is_a_tuple():
    with pytest.raises(torch._dynamo.exc.UserError, match="Expecting `args` to be a tuple"):
        export(nn.ReLU(), torch.ones(2))
