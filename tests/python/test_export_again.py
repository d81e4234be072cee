"""Exported programs as modules: what they are called with, what they say of wrong inputs, and how they are exported again.

Texts and numbers are torch 2.13's.
"""

import inspect
import io

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, ys, *, k=None, n=3):
        return {"a": self.layer(x) + ys[0], "b": k["z"] * 2, "n": n}


def test_the_module_takes_arguments_by_their_names():
    x, y, z = torch.randn(4, 3), torch.randn(4, 3), torch.randn(2)
    model = Model()
    module = export(model, (x, [y]), {"k": {"z": z}, "n": 5}).module()
    assert list(inspect.signature(module.forward).parameters) == ["x", "ys", "k", "n"]
    assert "x, ys_0, k_z, n, = fx_pytree.tree_flatten_spec(([x, ys], {'k':k, 'n':n}), self._in_spec)" in module.code
    assert "_guards_fn = self._guards_fn(x, ys_0, k_z, n)" in module.code
    assert module(x, [y], n=5, k={"z": z})["a"].equal(model(x, [y], k={"z": z})["a"])
    with pytest.raises(ValueError, match=r"kwarg keyword mismatch: Got the following keywords: \['k'\]"):
        module(x, [y], k={"z": z})
    with pytest.raises(ValueError, match="Trying to flatten user inputs"):
        module(x, [y, y], k={"z": z}, n=5)
    with pytest.raises(AssertionError, match="Guard failed: n == 5"):
        module(x, [y], k={"z": z}, n=6)
    assert module(x, [y], k={"z": z.double()}, n=5)["b"].dtype is torch.float64  # dtypes may be others


class Adds(nn.Module):
    def forward(self, x, y):
        return x + y[1:]


class AddsOdd(nn.Module):
    def forward(self, z, y):
        return z[1:] + y[1::2]


class Halves(nn.Module):
    def forward(self, w):
        return w[::2]


@pytest.mark.parametrize(
    "module, sizes, shapes, wrong, words",
    [
        (Adds(), (5, 6), lambda d: (d, d + 1), (4, 6), "x.size()[0] == -1 + y.size()[0]"),
        (AddsOdd(), (6, 11), lambda d: (d + 1, d * 2 + 1), (8, 15), "z.size()[0] <= 7"),
        (AddsOdd(), (6, 11), lambda d: (d + 1, d * 2 + 1), (5, 8), "-1 + 2 * z.size()[0] == y.size()[0]"),
        (Halves(), (10,), lambda d: (d * 2,), (9,), "w.size()[0] % 2 == 0"),
        (Halves(), (10,), lambda d: (d * 2,), (14,), "w.size()[0] <= 12"),
    ],
)
def test_what_is_said_of_sizes_that_follow_from_others(module, sizes, shapes, wrong, words):
    dims = shapes(Dim("d", min=3, max=6))
    program = export(module, tuple(map(torch.randn, sizes)), dynamic_shapes=tuple({0: each} for each in dims))
    with pytest.raises(AssertionError) as error:
        program.module()(*map(torch.randn, wrong))
    assert str(error.value) == f"Guard failed: {words}"


def test_sizes_that_are_equal_are_named_by_the_first():
    n = Dim("n", min=5, max=7)

    class Sum(nn.Module):
        def forward(self, x, y, x1):
            return x + y[1:] + x1

    sizes = (5, 6, 5)
    program = export(Sum(), tuple(map(torch.randn, sizes)), dynamic_shapes=({0: n - 1}, {0: n}, {0: n - 1}))
    with pytest.raises(AssertionError, match=r"Guard failed: x1.size\(\)\[0\] == x.size\(\)\[0\]"):
        program.module()(*map(torch.randn, (6, 7, 5)))
    assert program.module()(*map(torch.randn, (6, 7, 6))).shape == (6,)


def test_ranges_are_found_by_expressions():
    program = export(Halves(), (torch.randn(6),), dynamic_shapes=({0: Dim("n", min=3, max=9)},))
    (size,) = next(iter(program.graph.nodes)).meta["val"].shape
    assert tuple(program.range_constraints[size.node.expr]) == (3, 9)
    assert next(iter(size.node.expr.free_symbols)) == size.node.expr


def test_a_program_is_exported_again():
    x = torch.randn(4, 3)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    first = export(model, (x,), dynamic_shapes=({0: Dim("n", min=3)},))
    again = export(first.module(), (x,), dynamic_shapes={"input": {0: Dim("n", min=3)}})
    assert again.module()(torch.randn(5, 3)).shape == (5, 3)
    with pytest.raises(AssertionError, match=r"Guard failed: input.size\(\)\[0\] >= 3"):
        again.module()(torch.randn(2, 3))
    calls = [[node for node in each.graph.nodes if node.op == "call_function"] for each in (first, again)]
    for old, new in zip(*calls, strict=True):
        assert old.target is new.target and old.meta["stack_trace"] == new.meta["stack_trace"]
        assert list(old.meta["nn_module_stack"].values()) == list(new.meta["nn_module_stack"].values())


def test_modules_among_the_inputs_may_be_others_later():
    class Calls(nn.Module):
        def forward(self, x, module):
            return module(x) * 2

    x, model = torch.randn(4, 3), Calls()
    one, other = nn.BatchNorm1d(3).eval(), nn.BatchNorm1d(3).eval()
    other.weight.data.fill_(3)
    other.running_mean.fill_(1)
    program = export(model, (x, one))
    assert [spec.arg.name for spec in program.graph_signature.input_specs] == [
        "x", "module_weight", "module_bias", "module_running_mean", "module_running_var", "module_num_batches_tracked",
    ]  # fmt: skip
    assert not program.state_dict and not program.constants
    assert torch.allclose(program.module()(x, one), model(x, one))
    assert torch.allclose(program.module()(x, other), model(x, other))
    with pytest.raises(ValueError, match="Trying to flatten user inputs"):
        program.module()(x, nn.Linear(3, 3))
    assert torch.utils._pytree.tree_leaves([one]) == [one]  # elsewhere a module is one thing


class Converts(nn.Module):
    def forward(self, x):
        return x.to("cpu"), x.cpu(), x.double(), x.to("cpu", torch.int32), x.type(torch.float16), x.to(x)


def test_conversions_assert_what_they_convert():
    program = export(Converts(), (torch.ones(3),))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    kinds = [str(node.target) for node in nodes if "assert" not in str(node.target)]
    assert kinds == ["aten.to.dtype_layout"] * 2 + [
        "aten.to.dtype",
        "aten.to.device",
        "aten.to.dtype",
        "aten.to.device",
    ]
    assert str(nodes[0]) == "_assert_tensor_metadata_default"
    assert nodes[0].kwargs == {"dtype": torch.float32, "device": torch.device("cpu"), "layout": torch.strided}
    x = torch.tensor([1.5, 2.0, 3.0])
    assert [each.dtype for each in program.module()(x)] == [each.dtype for each in Converts()(x)]
    with pytest.raises(RuntimeError, match="Tensor dtype mismatch"):
        program.module()(x.double())
    decomposed = program.run_decompositions({})
    assert decomposed.graph_module.code.count("_assert_tensor_metadata.default") == 6
    with pytest.raises(RuntimeError, match="Tensor dtype mismatch"):
        decomposed.module()(x.double())
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert torch.export.load(file).module()(x)[2].tolist() == x.tolist()


def test_a_result_that_is_a_changed_input_is_that_input():
    class Changes(nn.Module):
        def forward(self, x):
            y = x.to("cpu")
            y.add_(1)
            return y, x

    program = export(Changes(), (torch.tensor(1),))
    for each in (program, program.run_decompositions({})):
        x = torch.tensor(2)
        y, z = each.module()(x)
        assert y is x and z is x and x.item() == 3


def test_placeholders_know_whether_they_have_gradients():
    program = export(nn.Linear(2, 2), (torch.randn(3, 2, requires_grad=True),))
    assert [node.meta["val"].requires_grad for node in program.graph.nodes if node.op == "placeholder"] == [True] * 3


def test_notes_on_nodes_stay():
    class Annotated(nn.Module):
        def forward(self, x):
            with torch.fx.traceback.annotate({"stage": 1}):
                x = x + 1
            return x * 2

    with torch.fx.traceback.preserve_node_meta():
        program = export(Annotated(), (torch.ones(2),))
    notes = {node.name: node.meta.get("custom") for node in program.graph.nodes}
    assert notes == {"x": None, "add": {"stage": 1}, "mul": None, "output": None}
    for node in program.graph.nodes:
        node.meta["custom"] = {"mine": node.op}
    decomposed = program.run_decompositions()
    assert [node.meta["custom"]["mine"] for node in decomposed.graph.nodes] == [
        "placeholder", "call_function", "call_function", "output",
    ]  # fmt: skip


class Related(nn.Module):
    def forward(self, u, w, x, y):
        return u[1:] + w, x.flatten() + y


def test_a_program_whose_sizes_follow_from_others_is_exported_again():
    """The program compares its inputs first, so that what they have to be is known before the operations need it."""
    args = (torch.randn(5), torch.randn(4), torch.randn(4, 4), torch.randn(16))
    sizes = ([Dim.DYNAMIC], [Dim.DYNAMIC], [Dim.DYNAMIC, Dim.DYNAMIC], [Dim.DYNAMIC])
    module = Related()
    for _ in range(3):
        module = export(module, args, dynamic_shapes=sizes).module()
    others = (torch.randn(7), torch.randn(6), torch.randn(2, 9), torch.randn(18))
    for made, wanted in zip(module(*others), Related()(*others), strict=True):
        assert torch.equal(made, wanted)
    with pytest.raises(AssertionError, match="Guard failed"):
        module(*others[:3], torch.randn(17))
