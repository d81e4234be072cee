"""torch.export: whole numbers of quotients of sizes, assertions about data, sizes that are declared in different ways."""

import math

import mica as torch
import pytest
from mica.export import Dim, export
from mica.fx.experimental.symbolic_shapes import ShapeEnv

WAYS = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}
QUOTIENTS = {
    "n / 2": lambda n: n / 2, "n / 3 + 1": lambda n: n / 3 + 1, "n * 1.5": lambda n: n * 1.5,
    "(n + 1) / 2 - 0.5": lambda n: (n + 1) / 2 - 0.5, "n * n / 5": lambda n: n * n / 5,
    "(n // 2) / 3": lambda n: (n // 2) / 3, "7 / n": lambda n: 7 / n,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_whole_numbers_of_quotients_stay_open(name, way):
    if (name, way) in (("7 / n", "round"), ("7 / n", "trunc")):
        pytest.skip("fixed to the example")
    for hint in range(2, 20):
        env = ShapeEnv()
        n = env.create_symintnode(env.create_symbol(hint, "x", least=2))
        made = WAYS[way](QUOTIENTS[name](n))
        assert made.node.hint == WAYS[way](QUOTIENTS[name](hint)), hint
        assert not env.guards


def test_factors_that_are_not_what_they_look_like():
    env = ShapeEnv()
    n = env.create_symintnode(env.create_symbol(27, "x", least=2))
    made = math.floor(n * 0.1)
    assert made.node.hint == 2 and not env.guards
    assert made.node.expr.value({"s0": 49}) == math.floor(49 * 0.1)
    for way, share in ((math.ceil, 0.1), (round, 0.3), (round, 0.75)):
        made = way(n * share)
        assert isinstance(made, torch.SymInt) and not env.guards
        assert all(made.node.expr.value({"s0": k}) == way(k * share) for k in range(2, 99))
    assert int(n * 0.1) == 2 and len(env.guards) == 1
    assert not env.replace(n.node.expr).is_number


def test_an_int_of_a_share_relies_on_the_whole_number():
    program = export(
        Of(lambda x: x[: int(x.shape[0] * 0.3)]), (torch.randn(14),), dynamic_shapes=(({0: Dim.DYNAMIC},),)
    )
    for n in (14, 15, 16):
        x = torch.randn(n)
        assert torch.equal(program.module()(x), x[:4])
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.randn(17))


@pytest.mark.parametrize("way", WAYS)
def test_a_share_of_an_open_size_is_exported(way):
    import io

    def share(x):
        part = x[: WAYS[way](x.shape[0] * 0.3)]
        return part, part.shape[0], torch.zeros(part.shape[0])

    program, file = export(Of(share), (torch.randn(20, 2),), dynamic_shapes=(({0: Dim.DYNAMIC},),)), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, program.run_decompositions(), torch.export.load(file)):
        for n in (20, 7, 19):
            x = torch.randn(n, 2)
            assert [torch.as_tensor(v).tolist() for v in each.module()(x)] == [
                torch.as_tensor(v).tolist() for v in share(x)
            ]


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("way", WAYS)
def test_a_part_of_an_open_size_is_exported(way):
    def half(x):
        return x[: WAYS[way](x.shape[0] / 2)]

    program = export(Of(half), (torch.randn(6, 4),), dynamic_shapes=(({0: Dim("n", min=2, max=64)},),)).module()
    for n in (2, 5, 7, 12):
        x = torch.randn(n, 4)
        assert torch.equal(program(x), half(x))


# As text, because pytest rewrites assertions.
CHECKED = """
def checked(x):
    y = x + 1
    assert y.max().item() > 0
    return y
"""


def test_assertions_about_data_are_part_of_the_program():
    names = {}
    exec(CHECKED, names)
    program = export(Of(names["checked"]), (torch.zeros(4, dtype=torch.int32),)).module()
    assert program(torch.arange(4, dtype=torch.int32)).tolist() == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 >= 1"):
        program(torch.full((4,), -5, dtype=torch.int32))


def test_sizes_that_are_equal_may_be_declared_in_different_ways():
    shapes = ((Dim.AUTO, Dim("d1", min=3)), (Dim("d0", max=8), Dim.DYNAMIC))
    program = export(Of(lambda x, y: x - y), (torch.randn(4, 4), torch.randn(4, 4)), dynamic_shapes=(shapes,))
    x, y = (node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder")
    assert x[0].node.expr == y[0].node.expr != x[1].node.expr == y[1].node.expr
    assert program.range_constraints[x[0].node.expr].upper == 8
    assert program.range_constraints[x[1].node.expr].lower == 3
    assert program.module()(torch.ones(5, 6), torch.ones(5, 6)).shape == (5, 6)
    with pytest.raises(Exception, match="must always be equal"):
        named = ((Dim("a"), None), (Dim("b"), None))
        export(Of(lambda x, y: x - y), (torch.randn(4, 4), torch.randn(4, 4)), dynamic_shapes=(named,))


def test_sizes_of_data_in_inference_mode():
    with torch.inference_mode():
        program = export(
            Of(lambda x: torch.where(x > 0)), (torch.rand(2, 5),), dynamic_shapes=(({0: Dim("n", max=9)},),)
        )
    x = torch.randn(4, 5)
    for made, wanted in zip(program.module()(x), torch.where(x > 0), strict=True):
        assert torch.equal(made, wanted)


def test_multi_margin_loss():
    x, target, weight = torch.randn(3, 4), torch.tensor([1, 2, 0]), torch.rand(4)
    loss = torch.nn.functional.multi_margin_loss
    program = export(Of(lambda x: loss(x, target, p=2, margin=0.5, weight=weight, reduction="sum")), (x,))
    wanted = loss(x, target, p=2, margin=0.5, weight=weight, reduction="sum")
    assert torch.equal(program.module()(x), wanted)
    assert torch.equal(torch.ops.aten.multi_margin_loss.default(x, target, 2, 0.5, weight, 2), wanted)
