"""What an export leaves as it was, and what its program asks of inputs. Names, texts and values are torch 2.13's."""

import dataclasses
import warnings

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.seen, self.named, self.inner = 0, [], {"a": 1}, nn.Module()
        self.register_buffer("total", torch.ones(2))

    def forward(self, x):
        old = self.total
        self.count += 1
        self.seen.append(x)
        self.named["b"] = 2
        self.inner.kept = x * 2
        self.total = self.total + 1
        x.add_(1)
        return x + self.total + self.count, old


@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim.AUTO}}])
def test_an_export_changes_nothing(shapes):
    module, x = Changing(), torch.ones(2)
    with pytest.warns(UserWarning, match="The tensor attribute self.inner.kept was assigned during export"):
        program = export(module, (x,), dynamic_shapes=shapes)
    assert (module.count, module.seen, module.named) == (0, [], {"a": 1}) and not hasattr(module.inner, "kept")
    assert x.tolist() == [1, 1] and module.total.tolist() == [1, 1] and list(module._buffers) == ["total"]
    for made in (program.module(), program.run_decompositions().module()):
        made.total.fill_(1)
        for expected in ([[5, 5], [1, 1]], [[6, 6], [2, 2]]):
            assert [each.tolist() for each in made(torch.ones(2))] == expected
    assert list(program.run_decompositions().graph_signature.buffers_to_mutate.values()) == ["total"]


def test_programs_may_change_their_inputs_for_any_size():
    class Adds(nn.Module):
        def forward(self, x):
            return x.add_(1) * 2

    x = torch.ones(3)
    module = export(Adds(), (x,), dynamic_shapes={"x": {0: Dim("n")}}).module()
    given = torch.ones(4)
    assert module(given).tolist() == [4] * 4 and given.tolist() == [2] * 4 and x.tolist() == [1] * 3


def test_buffers_are_read_in_any_way_for_open_sizes():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.arange(6.0))

        def forward(self, x, n):
            return x.sum() + self.b.clone(), self.b.to(torch.float64), self.b[n.item()] * 2

    x, n = torch.ones(3), torch.tensor(2)
    program = export(Reads(), (x, n), dynamic_shapes={"x": {0: Dim("n")}, "n": None})
    for size, at in ((2, 0), (5, 5)):
        given = torch.ones(size), torch.tensor(at)
        for a, b in zip(program.module()(*given), Reads()(*given), strict=True):
            assert torch.equal(a, b) and a.dtype == b.dtype


def test_programs_know_that_they_are_compiled():
    class Asks(nn.Module):
        def forward(self, x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                old = torch._utils.is_compiling()
            return x * (1 + old + 2 * torch.compiler.is_compiling() + 4 * torch._dynamo.is_compiling())

    x = torch.ones(1)
    assert Asks()(x).item() == 1 and export(Asks(), (x,)).module()(x).item() == 8


class Nested(nn.Module):
    def forward(self, x, ys, z):
        return x + ys[0] + z["k"]


def test_what_inputs_have_to_be():
    x, n = torch.ones(3), Dim("n", min=3, max=9)
    sizes = {"x": {0: n}, "ys": [{0: n}], "z": {"k": {0: n}}}
    module = export(Nested(), (x, [x], {"k": x}), dynamic_shapes=sizes).module()
    for size in (3, 9):
        assert module(*[torch.ones(size), [torch.ones(size)], {"k": torch.ones(size)}]).shape == (size,)
    five, four = torch.ones(5), torch.ones(4)
    for given, words in (
        ((torch.ones(2), [torch.ones(2)], {"k": torch.ones(2)}), "x.size()[0] >= 3"),
        ((torch.ones(10), [torch.ones(10)], {"k": torch.ones(10)}), "x.size()[0] <= 9"),
        ((five, [four], {"k": five}), "ys[0].size()[0] == x.size()[0]"),
        ((five, [five], {"k": four}), "z['k'].size()[0] == x.size()[0]"),
    ):
        with pytest.raises(AssertionError) as error:
            module(*given)
        assert str(error.value) == f"Guard failed: {words}"


def test_keys_of_inputs_in_any_order():
    class Named(nn.Module):
        def forward(self, d, *, x, y):
            return d["a"] - d["b"] + x * y

    x = torch.ones(2)
    program = export(Named(), ({"a": x, "b": x * 2},), {"y": x * 3, "x": x * 4})
    assert program.module()({"b": x * 2, "a": x}, x=x * 4, y=x * 5).tolist() == [19, 19]
    program.example_inputs = (({"b": x, "a": x},), {"x": x, "y": x})
    with pytest.raises(ValueError, match="Ran into a kwarg keyword mismatch"):
        program.module()({"a": x, "b": x}, x=x)


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


def test_sizes_within_dataclasses():
    torch.export.register_dataclass(Pair)

    class Sums(nn.Module):
        def forward(self, pair):
            return pair.a.sum() + pair.b.sum()

    pair = Pair(torch.ones(3), torch.ones(4))
    for shape in ([{0: Dim("n")}, None], Pair({0: Dim("n")}, None)):
        module = export(Sums(), (pair,), dynamic_shapes={"pair": shape}).module()
        assert module(Pair(torch.ones(7), torch.ones(4))).item() == 11
        with pytest.raises(AssertionError, match="Guard failed"):
            module(Pair(torch.ones(7), torch.ones(5)))


def test_open_numbers_among_the_inputs():
    class Scales(nn.Module):
        def forward(self, x, n, m):
            return x.new_ones(n) * (n + m), n >> 1, n << 2

    x = torch.ones(2)
    module = export(Scales(), (x, 4, 5), dynamic_shapes={"x": None, "n": Dim.DYNAMIC(min=3, max=9), "m": None}).module()
    for n in (3, 9):
        made, half, four = module(x, n, 5)
        assert made.tolist() == [n + 5.0] * n and (half, four) == (n // 2, n * 4)
    for n, m, words in ((2, 5, "n >= 3"), (10, 5, "n <= 9"), (4, 6, "m == 5")):
        with pytest.raises(AssertionError, match=f"Guard failed: {words}"):
            module(x, n, m)


def test_sizes_without_names_in_the_order_of_the_arguments():
    class Named(nn.Module):
        def forward(self, a, k1, k2):
            return a.sum() + k1.sum() - k2.sum()

    x = torch.ones(4)
    program = export(Named(), (x,), {"k2": x, "k1": x}, dynamic_shapes=(None, {0: Dim("n")}, None))
    assert program.module()(x, k2=x, k1=torch.ones(9)).item() == 9


def test_ranges_of_hints():
    class Sums(nn.Module):
        def forward(self, x):
            return x + 1

    assert repr(Dim.AUTO(min=4)) == "Dim.AUTO(min=4)" and Dim.AUTO() == Dim.AUTO
    module = export(Sums(), (torch.ones(6),), dynamic_shapes={"x": (Dim.DYNAMIC(min=4, max=16),)}).module()
    assert module(torch.ones(16)).shape == (16,)
    for size, words in ((3, ">= 4"), (17, "<= 16")):
        with pytest.raises(AssertionError, match=f"Guard failed: x.size.*{words}"):
            module(torch.ones(size))


def test_inputs_whose_names_meet():
    class Meets(nn.Module):
        def forward(self, x, x_0):
            return x[0] + x_0

    x = torch.ones(2)
    program = export(Meets(), ([x], x * 2))
    assert program.module()([x], x * 2).tolist() == [3, 3]
    assert len({each.arg.name for each in program.graph_signature.input_specs}) == 2


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.Lin = nn.Linear(2, 2)
        self.tied = self.Lin
        self.register_buffer("Buf", torch.ones(2))
        self.C = torch.ones(2)

    def forward(self, X, Yz):
        return self.Lin(X) + self.Buf + self.C + Yz["Key"] + self.tied(X)


def test_names_are_torchs():
    program = export(Tied(), (torch.ones(2), {"Key": torch.ones(2)}))
    names = ["p_lin_weight", "p_lin_bias", "p_tied_weight", "p_tied_bias", "b_buf", "c_c", "x", "yz_key"]
    assert [node.name for node in program.graph.nodes if node.op == "placeholder"] == names
    assert program.graph_signature.parameters == ("Lin.weight", "Lin.bias", "tied.weight", "tied.bias")
    module = program.module()
    assert module.Lin.weight is module.tied.weight
    assert [name for name, _ in module.named_parameters()] == ["Lin.weight", "Lin.bias"]
    assert torch.equal(module(torch.ones(2), {"Key": torch.ones(2)}), program.run_decompositions().module()(torch.ones(2), {"Key": torch.ones(2)}))  # fmt: skip


def test_statistics_of_a_norm_in_training_stay():
    norm = nn.BatchNorm1d(3)
    program = export(norm, (torch.randn(4, 3) + 5,))
    assert norm.running_mean.tolist() == [0, 0, 0] and norm.running_var.tolist() == [1, 1, 1]
    assert program.state_dict["running_mean"].tolist() == [0, 0, 0] and norm.num_batches_tracked.item() == 0


def test_constants_are_the_tensors_themselves():
    outside = torch.ones(3)

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.several = torch.ones(3), [torch.ones(3)]

        def forward(self, x):
            own = torch.tensor([1.0, 2.0, 3.0])
            own.mul_(2)
            return x + self.plain + self.several[0] + outside + own

    module, x = Sum(), torch.zeros(3)
    program = export(module, (x,))
    run = program.module()
    for changed in (outside, module.plain, module.several[0]):
        assert torch.equal(run(x), module(x)) and torch.equal(program.module()(x), module(x))
        changed.add_(1)
    assert torch.equal(run(x), module(x)) and program.constants["plain"] is module.plain


def test_random_numbers_are_not_drawn():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    torch.manual_seed(0)
    expected = torch.rand(3)
    for shapes in (None, ({0: torch.export.Dim.DYNAMIC},)):
        torch.manual_seed(0)
        torch.export.export(module, (torch.ones(3, 4),), dynamic_shapes=shapes)
        assert torch.equal(torch.rand(3), expected)


def test_modules_of_programs_whose_patterns_are_matched():
    """As in torch, a module that torchao asks a program for has no node that checks the inputs."""
    names = {"program": export(nn.Linear(2, 2), (torch.ones(1, 2),))}
    for path, checks in (("/packages/torchao/passes.py", False), ("/packages/other/passes.py", True)):
        exec(compile("made = program.module()", path, "exec"), names)
        assert any(node.op == "call_module" for node in names["made"].graph.nodes) == checks
