"""Calls of modules whose signatures are kept: another module of the same signature may take a module's place."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export, load, save, unflatten
from mica.export.graph_signature import ConstantArgument, TensorArgument


class Inner(nn.Module):
    def forward(self, a, *, b, c=2):
        return {"o": a[0] * b + c, "p": a[1]}


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.m = Inner(), nn.Linear(3, 3)

    def forward(self, x):
        first = self.n((x, x + 1), b=x * 2, c=2)
        second = self.n((first["o"], self.m(x)), b=x, c=3)
        return second["o"] + second["p"]


def _travelled(program):
    buffer = io.BytesIO()
    save(program, buffer)
    buffer.seek(0)
    return load(buffer)


def test_entries_are_torchs():
    program = export(Outer(), (torch.rand(3),), preserve_module_call_signature=("n",))
    assert [entry.fqn for entry in program.module_call_graph] == ["", "n", "m", "n@1"]
    signature = program.module_call_graph[1].signature
    assert signature.inputs == [*map(TensorArgument, ("x", "add", "mul")), ConstantArgument("", 2)]
    assert signature.outputs == [TensorArgument("add_1"), TensorArgument("add")]
    assert program.module_call_graph[2].signature is None
    assert [entry.fqn for entry in _travelled(program).module_call_graph] == ["", "n", "m", "n@1"]
    with pytest.raises(AttributeError):
        export(Outer(), (torch.rand(3),), preserve_module_call_signature=("absent",))


@pytest.mark.parametrize("way", ["as exported", "decomposed", "travelled"])
@pytest.mark.parametrize("shapes", [None, ({0: Dim.DYNAMIC},)])
def test_a_module_is_swapped(way, shapes):
    module, x = Outer(), torch.rand(4, 3)
    program = export(module, (x,), dynamic_shapes=shapes, preserve_module_call_signature=("n",))
    program = {"as exported": lambda: program, "decomposed": program.run_decompositions,
               "travelled": lambda: _travelled(program)}[way]()  # fmt: skip
    made = unflatten(program)
    assert torch.allclose(made(x), module(x))
    assert [kind.rpartition(".")[2] for kind in (made.n.type_name(), made.m.type_name())] == ["Inner", "Linear"]

    class Other(nn.Module):
        def forward(self, a, *, b, c):
            return {"p": a[0], "o": b * c}

    made.n = Other()
    torch.testing.assert_close(made(x), x * 3 + x * 2 * 2)


def test_buffers_that_a_module_changes():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.ones(1))

        def forward(self, x, twice):
            self.count.add_(2 if twice else 1)
            return x + self.count

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = Counting()

        def forward(self, x):
            return self.n(self.n(x, True) * 2, False) + self.n.count

    meant = Model()(torch.ones(1))
    made = unflatten(export(Model(), (torch.ones(1),), preserve_module_call_signature=("n",)))
    assert made(torch.ones(1)).tolist() == meant.tolist() == [16.0]
    assert made.n.count.tolist() == [4.0]
    assert len(made.n.call_modules()) == 2
    made.set_submodule("n", Counting())
    assert made(torch.ones(1)).tolist() == meant.tolist()


def test_what_is_no_argument_is_refused():
    class Inner(nn.Module):
        def forward(self, x):
            self.hidden = x * 2
            return x + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = Inner()

        def forward(self, x):
            return self.n(x) + self.n.hidden

    with pytest.warns(UserWarning, match="assigned during"):
        program = export(Model(), (torch.ones(2),), preserve_module_call_signature=("n",))
    with pytest.raises(NotImplementedError, match="mul of n are read outside of it"):
        unflatten(program)


def test_programs_are_validated():
    program = export(Outer(), (torch.rand(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    for each in (program, program.run_decompositions(), _travelled(program)):
        each.validate()
    program.graph_signature.input_specs.pop()
    with pytest.raises(Exception, match="the signature names the inputs"):
        program.validate()


def test_nodes_know_their_lines():
    program = export(Outer(), (torch.rand(4, 3),))
    lines = {node.name: node.stack_trace for node in program.graph.nodes}
    assert lines["x"] is None
    assert lines["linear"].splitlines()[1::2] == [
        '    second = self.n((first["o"], self.m(x)), b=x, c=3)',
        "    return F.linear(input, self.weight, self.bias)",
    ]
    assert 'linear.py", line ' in lines["linear"]
    apart = {node.name: node.stack_trace for node in program.run_decompositions().graph.nodes}
    assert apart["addmm"] == lines["linear"]
    assert {node.name: node.stack_trace for node in _travelled(program).graph.nodes} == lines


def test_programs_are_printed_with_types_and_lines():
    class Model(nn.Module):
        def forward(self, x):
            return x.sin() + 1

    lines = str(export(Model(), (torch.rand(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))).splitlines()
    assert lines[:3] == [
        "ExportedProgram:", "    class GraphModule(torch.nn.Module):", '        def forward(self, x: "f32[s77, 3]"):'
    ]  # fmt: skip
    assert lines[3].endswith(" in forward, code: return x.sin() + 1")
    assert lines[4] == '            sin: "f32[s77, 3]" = torch.ops.aten.sin.default(x);  x = None'
    assert lines[-1] == "" or lines[-1].startswith("Range constraints: ")


class FirstHalf(nn.Module):
    def forward(self, x, y):
        return y[: x.size(0) // 2]


class Halves(nn.Module):
    def __init__(self, reads_size_first):
        super().__init__()
        self.one, self.two, self.reads_size_first = FirstHalf(), FirstHalf(), reads_size_first

    def forward(self, x, y):
        if self.reads_size_first:
            half = x.size(0) // 2
            return y[half:] + self.one(x, y) + self.two(x, y)
        return self.one(x, y) + self.two(x, y) + y[x.size(0) // 2 :]


@pytest.mark.parametrize("kept", [("one",), ("two",), ("one", "two")])
@pytest.mark.parametrize("reads_size_first", [True, False])
def test_numbers_of_sizes_are_computed_where_they_are_read(kept, reads_size_first):
    """A program has them once; modules whose calls stay as they are take and return what they did."""
    size = 2 * Dim("half", max=2048)
    program, x = Halves(reads_size_first), torch.ones(10)
    exported = export(program, (x, x), dynamic_shapes=((size,), (size,)), preserve_module_call_signature=kept)
    module = unflatten(exported)
    for count in (8, 10, 14):
        args = torch.randn(count), torch.randn(count)
        assert torch.equal(module(*args), program(*args))
    for name in kept:
        assert torch.equal(getattr(module, name)(*args), getattr(program, name)(*args))
        setattr(module, name, getattr(program, name))
    assert torch.equal(module(*args), program(*args))
