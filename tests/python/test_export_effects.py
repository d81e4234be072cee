"""Exported programs whose calls are made for what they change: operators of one's own, batch norms in training."""

import io
from pathlib import Path

import mica as torch
import pytest
from mica import nn
from mica.export import export, load, save

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "files"


@pytest.fixture(scope="module")
def operators():
    @torch.library.custom_op("export_effects::fill", mutates_args=("x",))
    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)

    @torch.library.custom_op("export_effects::count", mutates_args=("total",))
    def count(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return x * 2

    @count.register_fake
    def _(total, x):
        return torch.empty_like(x)

    @torch.library.custom_op("export_effects::fill_all", mutates_args=("xs",))
    def fill_all(xs: list[torch.Tensor], value: float) -> None:
        for x in xs:
            x.fill_(value)

    return fill, count, fill_all


def _targets(program):
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def _travelled(program):
    buffer = io.BytesIO()
    save(program, buffer)
    buffer.seek(0)
    return load(buffer)


def test_the_schema_says_what_an_operator_changes(operators):
    schema = torch.ops.export_effects.fill.default._schema
    assert schema.is_mutable
    assert [str(a.type) for a in schema.arguments] == ["Tensor", "float"]
    assert schema.arguments[0].alias_info.is_write
    assert schema.arguments[1].alias_info is None


@pytest.mark.parametrize("shapes", [None, {"x": {0: torch.export.Dim.AUTO}}])
def test_an_operator_that_returns_nothing_is_part_of_the_program(operators, shapes):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x):
            y = x + 1
            operators[0](y[1:], 3.0)
            z = operators[1](self.total, x)
            return y * x + z

    x = torch.arange(3.0)
    program = export(Model(), (x,), dynamic_shapes=shapes)
    assert "export_effects.fill.default" in _targets(program)
    wanted = [0.0, 5.0, 10.0]
    assert program.module()(x).tolist() == wanted
    apart = export(Model(), (x,), dynamic_shapes=shapes).run_decompositions()
    assert "export_effects.fill.default" not in _targets(apart)
    assert _targets(apart).count("auto_functionalized_v2") == 2
    assert list(apart.graph_signature.buffers_to_mutate.values()) == ["total"]
    for each in (apart, apart.run_decompositions(), _travelled(apart), export(apart.module(), (x,))):
        module = each.module()
        assert module(x).tolist() == wanted
        assert module(x).tolist() == wanted
        assert module.total.item() == 2.0
        module.total.zero_()


def test_a_list_of_tensors_that_an_operator_changes(operators):
    class Model(nn.Module):
        def forward(self, x):
            a, b = x + 1, x + 2
            operators[2]([a, b], 4.0)
            return a + b + x

    apart = export(Model(), (torch.zeros(2),)).run_decompositions()
    assert apart.module()(torch.ones(2)).tolist() == [9.0, 9.0]
    assert _travelled(apart).module()(torch.ones(2)).tolist() == [9.0, 9.0]


def test_two_views_of_one_tensor_are_changed(operators):
    class Model(nn.Module):
        def forward(self, x):
            y = x + 1
            operators[2]([y[:1], y[1:]], 4.0)
            return y

    apart = export(Model(), (torch.zeros(2),)).run_decompositions()
    expected = Model()(torch.ones(2)).tolist()
    assert apart.module()(torch.ones(2)).tolist() == expected
    assert _travelled(apart).module()(torch.ones(2)).tolist() == expected


def test_two_views_with_open_sizes_are_refused(operators):
    class Model(nn.Module):
        def forward(self, x):
            y = x + 1
            operators[2]([y[:1], y[1:]], 4.0)
            return y

    program = export(Model(), (torch.zeros(4),), dynamic_shapes={"x": {0: torch.export.Dim("n", min=3)}})
    with pytest.raises(NotImplementedError, match="two views of one tensor"):
        program.run_decompositions()


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_says_what_it_changes(training):
    norm = nn.BatchNorm1d(2).train(training)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    program = export(norm, (x,)).run_decompositions()
    changed = program.graph_signature.buffers_to_mutate
    if not training:
        assert _targets(program)[0] == "aten._native_batch_norm_legit_no_training.default"
        assert changed == {}
        return
    assert "aten._native_batch_norm_legit_functional.default" in _targets(program)
    assert sorted(changed.values()) == ["num_batches_tracked", "running_mean", "running_var"]
    module = program.module()
    assert torch.allclose(module(x), norm(x))
    for name, value in norm.named_buffers():
        assert torch.allclose(module.get_buffer(name), value), name


def test_batch_norm_without_statistics():
    program = export(nn.BatchNorm1d(2, track_running_stats=False), (torch.ones(2, 2),)).run_decompositions()
    assert _targets(program)[0] == "aten._native_batch_norm_legit.no_stats"


def test_functions_of_linalg_are_its_operators():
    class Model(nn.Module):
        def forward(self, x, y):
            return torch.linalg.cross(x, y)

    x, y = torch.arange(9.0).reshape(3, 3).sin(), torch.arange(9.0).reshape(3, 3).cos()
    program = export(Model(), (x, y))
    assert _targets(program) == ["aten.linalg_cross.default"]
    wanted = torch.linalg.cross(x, y)
    assert torch.equal(program.module()(x, y), wanted)
    assert torch.allclose(program.run_decompositions().module()(x, y), wanted)


def test_an_input_may_have_the_name_of_a_function_of_pythons():
    program = export(nn.Linear(2, 1), (torch.ones(1, 2),))
    for each in (program, program.run_decompositions(), _travelled(program)):
        assert each.graph_signature.user_inputs == ("input",)
        assert each.module()(torch.ones(1, 2)).shape == (1, 1)


def test_conversions_that_torch_writes_with_a_layout():
    x = torch.arange(3)
    made = torch.ops.aten.to.dtype_layout(x, dtype=torch.float32, layout=torch.strided, device=torch.device("cpu"))
    assert made.tolist() == [0.0, 1.0, 2.0]
    assert made.dtype is torch.float32
    assert torch.ops.aten.to.dtype_layout(x) is x
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        torch.ops.aten.to.dtype_layout(x, layout=torch.sparse_coo)


def test_a_graph_without_gradients():
    graph = torch.fx.symbolic_trace(lambda x: (x * 2,))
    x = torch.ones(2, requires_grad=True)
    (made,) = torch.ops.higher_order.wrap_with_set_grad_enabled(False, graph, x)
    assert not made.requires_grad
    assert made.tolist() == [2.0, 2.0]


def test_operators_whose_sizes_only_data_decide():
    @torch.library.custom_op("export_effects::positive", mutates_args=())
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    @positive.register_fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(max=9))

    class Model(nn.Module):
        def forward(self, x):
            y = positive(x)
            return y * 2, y.shape[0] * 3, y.view(-1, 1)

    x = torch.arange(9.0).sin()
    program = export(Model(), (x,))
    assert [tuple(ends) for ends in program.range_constraints.values()] == [(0, 9)]
    for each in (program, program.run_decompositions(), _travelled(program)):
        for given in (x, -x):
            made, wanted = each.module()(given), Model()(given)
            assert made[1] == wanted[1]
            assert torch.equal(made[0], wanted[0])
            assert torch.equal(made[2], wanted[2])
    with (
        pytest.raises(torch._subclasses.fake_tensor.DynamicOutputShapeException),
        torch._subclasses.FakeTensorMode() as mode,
    ):
        positive(mode.from_tensor(x))
    with pytest.raises(NotImplementedError, match="must not depend on data"):
        positive(torch.ones(3, device="meta"))


def test_views_by_strides_are_made_of_copies_with_the_same_strides(operators):
    base = torch.arange(12.0).view(3, 4)[:, 1:3]
    view = {"_x_size": (3,), "_x_stride": (4,), "_x_storage_offset": 2}
    made = torch.ops.higher_order.auto_functionalized_v2(
        torch.ops.export_effects.fill.default, value=9.0, _x_base_index=0, **view, _all_bases=[base]
    )
    assert made[1].tolist() == [[1, 9], [5, 9], [9, 9]]
    assert base.tolist() == [[1, 2], [5, 6], [9, 10]]


def test_programs_of_torchs_own_with_loops_and_changes():
    changing = torch.library.Library("changing", "DEF")
    changing.define("multiply(Tensor(a!)[] xs, Tensor(b!)? z, float k=2.0) -> Tensor")
    changing.define("add(Tensor(a!) x, Tensor y) -> ()")

    def multiply(xs, z, k=2.0):
        for x in xs:
            x.mul_(k)
        return xs[0] + 1

    def add(x, y):
        x.add_(y)

    changing.impl("multiply", multiply, "CompositeExplicitAutograd")
    changing.impl("add", add, "CompositeExplicitAutograd")
    meant = torch.load(RECORDED / "program_loops_values.pt")
    rows, last, steps = load(RECORDED / "program_loops.pt2").module()(meant["x"])
    for made, wanted in zip((rows, last, *steps), (*meant["loops"][:2], *meant["loops"][2]), strict=True):
        assert torch.equal(made, wanted)
    y = meant["y"].clone()
    for made, wanted in zip(
        load(RECORDED / "program_changes.pt2").module()(meant["x"], y), meant["changes"], strict=True
    ):
        assert torch.equal(made, wanted)
    assert torch.equal(y, meant["changed"])


def test_autocast_around_an_export_is_no_part_of_the_program():
    class Product(nn.Module):
        def forward(self, x):
            return x @ x.t(), torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: -(x @ x.t()), (x,))

    module, x = Product(), torch.rand(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = export(module, (x,)).module()
        assert all(torch.equal(a, b) and a.dtype == torch.bfloat16 for a, b in zip(program(x), module(x), strict=True))
    assert all(torch.equal(a, b) and a.dtype == torch.float32 for a, b in zip(program(x), module(x), strict=True))
