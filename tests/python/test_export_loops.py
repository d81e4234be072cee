"""map and scan in exported programs: one node each, with a graph, whose leading size may be open."""

import io

import mica as torch
import pytest
from mica import nn
from mica._higher_order_ops.map import map as torch_map
from mica._higher_order_ops.scan import scan
from mica._higher_order_ops.while_loop import while_loop
from mica.export import Dim, export, load, save
from mica.fx.experimental.proxy_tensor import make_fx


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.kept = nn.Linear(4, 4), torch.arange(4.0)

    def forward(self, xs, y):
        return torch_map(
            lambda pair, y: {"a": self.linear(pair[0]).sin() + y + self.kept, "b": pair[1] * 2}, (xs, xs), y
        )


class Scanned(nn.Module):
    def __init__(self, dim, reverse):
        super().__init__()
        self.dim, self.reverse, self.kept = dim, reverse, torch.arange(4.0)

    def forward(self, init, xs):
        def step(carry, x):
            carry = {"h": carry["h"] * 0.9 + x + self.kept}
            return carry, (carry["h"].sin(), x * 2)

        return scan(step, {"h": init}, xs, dim=self.dim, reverse=self.reverse)


def _targets(program):
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def _all(program):
    buffer = io.BytesIO()
    save(program, buffer)
    buffer.seek(0)
    return program, program.run_decompositions(), load(buffer)


def _leaves(value):
    return torch.utils._pytree.tree_leaves(value)


@pytest.mark.parametrize("shapes", [None, ({0: Dim.DYNAMIC}, None)])
def test_map_is_one_node(shapes):
    module, y = Mapped(), torch.ones(4)
    program = export(module, (torch.ones(3, 4), y), dynamic_shapes=shapes)
    assert _targets(program)[0] == "map_impl"
    assert len(_targets(program)) == 3
    for each in _all(program):
        for n in (3, 5) if shapes else (3,):
            xs = torch.arange(4.0 * n).reshape(n, 4).sin()
            for a, b in zip(_leaves(each.module()(xs, y)), _leaves(module(xs, y)), strict=True):
                assert torch.allclose(a, b)


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize(("dim", "reverse"), [(0, False), (1, True)])
def test_scan_is_one_node(dim, reverse, shapes):
    module = Scanned(dim, reverse)
    init = torch.ones(4)

    def rows(n):
        return torch.arange(4.0 * n).reshape(n, 4).sin().movedim(0, dim)

    module.kept = torch.arange(4.0)
    dynamic = (None, {dim: Dim.DYNAMIC}) if shapes else None
    program = export(module, (init, rows(3)), dynamic_shapes=dynamic)
    assert _targets(program).count("scan") == 1
    for each in _all(program):
        for n in (3, 5) if shapes else (3,):
            made, wanted = each.module()(init, rows(n)), module(init, rows(n))
            assert list(made[0]) == ["h"]
            for a, b in zip(_leaves(made), _leaves(wanted), strict=True):
                assert torch.allclose(a, b)


def test_a_carry_of_another_shape_is_refused():
    class Model(nn.Module):
        def forward(self, init, xs):
            return scan(lambda carry, x: (carry + x[None], x + 1), init, xs)

    with pytest.raises(RuntimeError, match="Expected init and carry to have same metadata"):
        export(Model(), (torch.ones(4), torch.ones(3, 4)))


def test_an_output_of_fewer_dimensions_keeps_its_steps_in_front():
    xs = torch.arange(6.0).reshape(2, 3)
    carry, (product, total) = scan(lambda c, x: (c + x, (c * x, x.sum())), torch.ones(2), xs, dim=-1, reverse=True)
    assert carry.tolist() == [4, 13]
    assert product.tolist() == [[0, 3, 2], [30, 24, 5]]
    assert total.tolist() == [3, 5, 7]


def test_without_a_graph_they_run():
    xs = torch.arange(6.0).reshape(3, 2)
    assert torch_map(lambda x, y: x + y, xs, 1).tolist() == (xs + 1).tolist()
    carry, out = scan(lambda c, x: (c + x, c.clone()), torch.zeros(2), xs)
    assert carry.tolist() == [6.0, 9.0]
    assert out.tolist() == [[0, 0], [0, 1], [2, 4]]
    with pytest.raises(RuntimeError, match="must be consistent"):
        torch_map(lambda pair: pair[0], (torch.ones(2), torch.ones(3)))
    with pytest.raises(RuntimeError, match="cannot be 0"):
        torch_map(lambda x: x, torch.ones(0, 2))
    with pytest.raises(RuntimeError, match="must be a callable"):
        scan(None, torch.zeros(2), xs)
    with pytest.raises(IndexError, match="no dimension 2"):
        scan(lambda c, x: (c, x), torch.zeros(2), xs, dim=2)


class ReadsItsCarry(nn.Module):
    """Its loops read the first value of what they carry by its name, too."""

    def forward(self, x, n, xs):
        looped = while_loop(lambda i, a: i > 0, lambda i, a: (i - 1, a * 1.5 + x), (n, x))
        return looped[1], *scan(lambda c, row: (c * 0.5 + row + x, c + x), x, xs)


@pytest.mark.parametrize("shapes", [None, ({0: Dim.AUTO}, None, {0: Dim.AUTO, 1: Dim.AUTO})])
def test_what_is_carried_may_be_read_as_it_was(shapes):
    given = (torch.arange(3.0), torch.tensor(3), torch.ones(4, 3))
    wanted = ReadsItsCarry()(*given)
    assert wanted[0].tolist() == [0.0, 8.125, 16.25]
    program = export(ReadsItsCarry(), given, dynamic_shapes=shapes)
    traced = make_fx(ReadsItsCarry())(*given)
    captured, _ = torch._dynamo.export(
        lambda x, n: while_loop(lambda i, a: i > 0, lambda i, a: (i - 1, a * 1.5 + x), (n, x))
    )(*given[:2])
    assert torch.equal(captured(*given[:2])[1], wanted[0])
    for run in (*(each.module() for each in _all(program)), traced):
        for a, b in zip(run(*given), wanted, strict=True):
            assert torch.allclose(a, b)
