"""Exported programs with their modules."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, FlatArgsAdapter, export, load, save, unflatten


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x, scale):
        return x + self.linear(self.norm(x)) * scale, scale + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head, self.unused = nn.Linear(4, 2), nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, scale):
        self.count += 1
        for block in self.blocks:
            x, scale = block(x, scale)
        x, _ = self.blocks[0](x, scale)
        return {"logits": self.head(x), "count": self.count * 1}


def test_modules_have_their_graphs():
    net, x, scale = Net(), torch.randn(3, 4), torch.tensor(2.0)
    program = export(net, (x, scale), dynamic_shapes=({0: Dim("n")}, None))
    made = unflatten(program)
    names = dict(made.named_modules())
    assert {"blocks.0", "blocks.0.norm", "blocks.0.linear", "blocks.1.linear", "blocks.0@1", "head"} <= names.keys()
    assert {node.op for node in names["blocks.0"].graph.nodes} == {
        "placeholder",
        "call_module",
        "call_function",
        "output",
    }
    assert set(net.state_dict()) <= set(made.state_dict())
    y = torch.randn(5, 4)
    ours, theirs = made(y, scale), net(y, scale)
    assert torch.allclose(ours["logits"], theirs["logits"], atol=1e-6)
    assert made(y, scale)["count"] == ours["count"] + 1
    with torch.no_grad():  # both calls of a module have one weight
        made.get_submodule("blocks.0").linear.weight.zero_()
        net.blocks[0].linear.weight.zero_()
    assert torch.allclose(made(y, scale)["logits"], net(y, scale)["logits"], atol=1e-6)


def test_modules_travel():
    net, x, scale = Net(), torch.randn(3, 4), torch.tensor(2.0)
    file = io.BytesIO()
    save(export(net, (x, scale)), file)
    file.seek(0)
    made = unflatten(load(file))
    assert {"blocks.0", "blocks.0.norm", "head"} <= dict(made.named_modules()).keys()
    assert torch.allclose(made(x, scale)["logits"], net(x, scale)["logits"], atol=1e-6)


def test_decomposed_programs_have_their_modules():
    net, x, scale = Net(), torch.randn(3, 4), torch.tensor(2.0)
    made = unflatten(export(net, (x, scale)).run_decompositions())
    assert {"blocks.0", "blocks.0.norm", "blocks.0@1", "head"} <= dict(made.named_modules()).keys()
    first, second = made(x, scale), made(x, scale)
    assert torch.allclose(first["logits"], net(x, scale)["logits"], atol=1e-6)
    assert second["count"] == first["count"] + 1


def test_arguments_are_adapted():
    class Swapped(FlatArgsAdapter):
        def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
            return input_args[:2]

    net, x, scale = Net(), torch.randn(3, 4), torch.tensor(2.0)
    program = export(net, (x, scale))
    made = unflatten(program, Swapped())
    assert torch.allclose(made(x, scale, 3)["logits"], net(x, scale)["logits"], atol=1e-6)
    with pytest.raises(TypeError, match="no flat args adapter"):
        unflatten(program)(x, scale, 3)


class Third(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(1))

    def forward(self, x):
        return x + 1


class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(1))
        self.third = Third()

    def forward(self, x):
        x = self.third(x + self.third.kept + 1)
        self.third.kept.add_(1)
        return x + 1


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.second = Second()

    def forward(self, x):
        x = self.second(x + self.second.kept + 1)
        self.second.third.kept.add_(1)
        return x + 1


class Whole(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.first, self.order = First(), order

    def forward(self, x):
        for name in self.order:
            module = self.get_submodule(name)
            x = module(x + self.first.second.kept + self.first.second.third.kept)
        return x


@pytest.mark.parametrize("order", [
    ("first.second", "first.second.third"), ("first", "first.second"), ("first.second.third", "first"),
    ("first.second.third", "first.second", "first"),
])  # fmt: skip
def test_buffers_of_modules_that_others_read_and_change(order):
    x = torch.ones(1)
    made, module = torch.export.unflatten(torch.export.export(Whole(order), (x,))), Whole(order)
    for _ in range(2):
        assert torch.equal(made(x), module(x))
    assert {name: value.item() for name, value in made.named_buffers()} == {
        name: value.item() for name, value in module.named_buffers()
    }


def test_a_module_may_be_called_self():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("self", nn.Linear(2, 2))
            self.output = nn.Linear(2, 2)

        def forward(self, x):
            return self.output(self.get_submodule("self")(x).relu())

    module = Attention()
    made = torch.export.unflatten(torch.export.export(module, (torch.ones(1, 2),)))
    assert torch.equal(made(torch.ones(1, 2)), module(torch.ones(1, 2)))


def test_a_module_that_computes_the_same_twice_is_one():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.block = nn.ReLU(), nn.Sequential(nn.Linear(2, 2), nn.Tanh())

        def forward(self, x):
            return self.act(self.block(self.act(self.block(x))))

    module = Model()
    made = unflatten(export(module, (torch.ones(1, 2),)))
    assert [name for name, _ in made.named_modules()] == ["", "block", "block.0", "block.1", "act"]
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_module"] == ["block", "act", "block", "act"]
    assert torch.equal(made(torch.ones(1, 2)), module(torch.ones(1, 2)))
    assert made.type_name().endswith("Model")
    assert made.act.type_name() == "torch.nn.modules.activation.ReLU"


def test_a_module_that_computes_something_else_is_two():
    class Inner(nn.Module):
        def forward(self, x, again=False):
            return x * 3 if again else x + 2

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(self.inner(self.inner(x)), again=True)

    made = unflatten(export(Model(), (torch.ones(2),)))
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_module"] == ["inner", "inner", "inner@2"]
    assert made(torch.ones(2)).tolist() == [15.0, 15.0]
