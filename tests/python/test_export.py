"""torch.export: graphs of modules, with their weights, free sizes and files."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.export.graph_signature import InputKind


def same(a, b):
    ours, theirs = (torch.utils._pytree.tree_leaves(each) for each in (a, b))
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert torch.allclose(x, y, atol=1e-6) if isinstance(x, torch.Tensor) else x == y


def exported(module, *args, **options):
    """The program, after it and its copy in a file have given what the module gives."""
    program = torch.export.export(module, args, **options)
    same(program.module()(*args), module(*args))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    same(torch.export.load(file).module()(*args), module(*args))
    return program


class Tagged(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x, *, scale=2.0, more=None):
        y = torch.relu(self.norm(self.linear(x))) * scale + self.shift
        return {"out": (y if more is None else y + more["k"])[:, 1:], "total": y.sum()}


def test_a_graph_has_operators_and_a_signature():
    module = Tagged().eval()
    program = torch.export.export(module, (torch.randn(5, 3),), {"more": {"k": torch.ones(4)}})
    operators = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert operators == [
        "aten.linear.default", "aten.batch_norm.default", "aten.relu.default", "aten.mul.Tensor", "aten.add.Tensor",
        "aten.add.Tensor", "aten.slice.Tensor", "aten.sum.default",
    ]  # fmt: skip
    signature = program.graph_signature
    assert signature.parameters == ("linear.weight", "linear.bias", "norm.weight", "norm.bias")
    assert signature.user_inputs == ("x", "more_k")
    assert signature.inputs_to_buffers["b_shift"] == "shift" and signature.non_persistent_buffers == {"shift"}
    assert "linear.weight" in program.state_dict and "shift" in program.constants
    assert program.graph_signature.input_specs[0].kind is InputKind.PARAMETER
    x = torch.randn(5, 3)
    same(program.module()(x, more={"k": torch.ones(4)}), module(x, more={"k": torch.ones(4)}))
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] == 5"):
        program.module()(torch.randn(6, 3), more={"k": torch.ones(4)})
    with pytest.raises(ValueError, match="Ran into a kwarg keyword mismatch"):
        program.module()(x)


class Odd(nn.Module):
    """Views, changes in place, subscripts, constants and values that are no tensors."""

    def __init__(self):
        super().__init__()
        self.plain = torch.ones(3)

    def forward(self, x, i):
        fresh = torch.tensor([1.0, 2.0, 3.0])
        fresh += x[0]
        y = x.clone()
        y[:, 0], y[1], y[i] = 1, x[0] * 2, 0.5
        first, second = y.split(2, 0)
        with torch.no_grad():
            kept = (x * 2).sum()
        return (fresh + self.plain, y.T, first.view(-1, 3), second.double().mT, *y.max(1), torch.arange(4), kept,
                nn.functional.interpolate(x[None], scale_factor=2.0), torch.where(x > 0, x, 0.0), x[..., None, 1:],
                torch.einsum("ij,kj->ik", x, x), x[i], x[x[:, 0] * 0 == 0], 1 - x, x.size(0), "text")  # fmt: skip


def test_what_programs_do_to_tensors():
    program = exported(Odd(), torch.randn(4, 3), torch.tensor([2, 3]))
    x, i = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1])
    once, again = (program.module()(x, i) for _ in range(2))
    same(once, again)
    same(once, Odd()(x, i))
    assert once[0].requires_grad and not once[7].requires_grad


@pytest.mark.parametrize("name", ["attention", "recurrent", "convolution"])
def test_layers(name):
    torch.manual_seed(0)
    if name == "attention":
        exported(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), torch.randn(2, 5, 8))
    elif name == "recurrent":
        exported(nn.LSTM(3, 4), torch.randn(5, 2, 3))
    else:
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
                  nn.Flatten(), nn.Linear(4, 2), nn.Dropout(), nn.Softmax(-1)]  # fmt: skip
        exported(nn.Sequential(*layers).eval(), torch.randn(2, 3, 12, 12))


class Sizes(nn.Module):
    def forward(self, x):
        batch, time = x.shape
        return x.view(batch * time), x.new_zeros(3 * batch, 2), x.expand(2, batch, time)


def test_free_sizes():
    batch, time = torch.export.dims("batch", "time", min=2, max=500)
    program = torch.export.export(Sizes(), (torch.randn(6, 4),), dynamic_shapes={"x": {0: batch, 1: time}})
    assert {name: tuple(ends) for name, ends in program.range_constraints.items()} == {"s77": (2, 500), "s27": (2, 500)}
    same(program.module()(torch.ones(3, 8)), Sizes()(torch.ones(3, 8)))
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(1, 8))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    same(torch.export.load(file).module()(torch.ones(4, 2)), Sizes()(torch.ones(4, 2)))


def test_what_a_graph_cannot_follow_is_an_error():
    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    class Fixed(nn.Module):
        def forward(self, x):
            return x if x.size(0) > 3 else -x

    with pytest.raises(RuntimeError, match="Could not guard on data-dependent expression"):
        torch.export.export(Branch(), (torch.randn(3),))
    with pytest.raises(
        RuntimeError, match=r"(?s)Constraints violated \(n\).*4 <= L.*size\(\)\[0\].*by .*test_export.py"
    ):
        torch.export.export(Fixed(), (torch.randn(4),), dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(ValueError, match="Expected `mod` to be an instance"):
        torch.export.export(torch.relu, (torch.randn(3),))
    with pytest.raises(RuntimeError, match="this file is not one"):
        torch.export.load(io.BytesIO(b"nothing"))


def test_weights_are_shared_and_learn():
    module = nn.Linear(3, 2)
    program = torch.export.export(module, (torch.randn(1, 3),))
    program.module()(torch.randn(1, 3)).sum().backward()
    assert module.weight.grad is not None and [p.shape for p in program.parameters()] == [(2, 3), (2,)]
    assert not torch.compiler.is_exporting()


def test_activations_with_a_positional_inplace():
    x = torch.randn(5)
    for module in (torch.nn.ELU(0.5), torch.nn.CELU(), torch.nn.Hardtanh(-0.5, 0.5), torch.nn.LeakyReLU(0.2, True)):
        assert torch.equal(torch.export.export(module, (x,)).module()(x.clone()), module(x.clone()))


def test_archives_hold_dtypes_of_python_and_operations_on_numbers():
    """Llama 4 counts with dtype=int, and Longformer divides sizes by torch.div."""

    class Counts(torch.nn.Module):
        def forward(self, x):
            chunks = torch.div(x.shape[0], 2, rounding_mode="trunc")
            return torch.zeros(3, dtype=int), torch.ones(2, dtype=float), x.to(bool), x * chunks, torch.sub(1, x)

    x = torch.tensor([1.0, 0.0, 2.0, 3.0, 5.0])
    program = torch.export.export(Counts(), (x,))
    assert all(hasattr(n.target, "_schema") for n in program.graph.nodes if n.op == "call_function")
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for a, b in zip(Counts()(x), torch.export.load(file).module()(x), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def _names_of(program):
    return [(each.arg.name, each.target) for each in program.graph_signature.input_specs]


def test_names_of_arguments_without_names():
    """They are torch 2.13's."""

    class Rest(nn.Module):
        def forward(self, a, *args, k=None, **kwargs):
            return a + args[0] * args[1] + kwargs["p"] + (0 if k is None else k)

    x = torch.ones(2)
    args, kwargs = (x, x * 2, x * 3), {"k": x * 5, "p": x * 4}
    program = export(Rest(), args, kwargs)
    assert [name for name, _ in _names_of(program)] == ["a", "args_0", "args_1", "k", "p"]
    module = program.module()
    assert module(*args, **kwargs).tolist() == module(*args, p=x * 4, k=x * 5).tolist() == [16, 16]
    sizes = {"a": {0: Dim("n")}, "args": ({0: Dim("n")}, {0: Dim("n")}), "k": {0: Dim("n")}, "p": {0: Dim("n")}}
    assert export(Rest(), args, kwargs, dynamic_shapes=sizes).module()(*[torch.ones(3)] * 3, k=x[:1].expand(3),
                                                                        p=torch.ones(3)).shape == (3,)  # fmt: skip


def test_constants_have_the_names_of_their_attributes():
    """The names are torch 2.13's. A parameter may have any name."""

    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("foo:bar", nn.Parameter(torch.ones(2)))
            self.c, self.inner = torch.ones(2), nn.Module()
            self.inner.d = torch.full((2,), 3.0)

        def forward(self, x):
            return x + getattr(self, "foo:bar") + self.c + self.inner.d + torch.tensor([1.0, 2.0])

    program = export(Held(), (torch.ones(2),))
    assert _names_of(program) == [
        ("p_foo_bar", "foo:bar"), ("c_c", "c"), ("c_inner_d", "inner.d"), ("c_lifted_tensor_0", "lifted_tensor_0"),
        ("x", None),
    ]  # fmt: skip
    assert list(program.constants) == ["c", "inner.d", "lifted_tensor_0"]
    assert program.module()(torch.ones(2)).tolist() == [7, 8]
    assert program.run_decompositions().module()(torch.ones(2)).tolist() == [7, 8]


def test_other_example_inputs():
    x = torch.ones(2)
    program = export(nn.ReLU(), (x,))
    program.example_inputs = ((x * 2,), {})
    assert program.example_inputs[0][0].tolist() == [2, 2]
    for wrong in ((x, x), ((x,), {}, 3), [(x,), {}], ((x, x), {})):
        with pytest.raises(ValueError, match="Example inputs should be|Trying to flatten user inputs"):
            program.example_inputs = wrong
    assert program.example_inputs[0][0].tolist() == [2, 2]
