"""Operators of one's own that change several views of one tensor, in graphs without changes in place."""

import mica as torch
import pytest


@pytest.fixture(scope="module", autouse=True)
def operators():
    with torch.library._scoped_library("test_changed_views", "FRAGMENT") as library:
        library.define("sine_and_double(Tensor(a!) x, Tensor(b!) y) -> ()")
        library.define("add_to_all(Tensor(a!)[] x, Tensor(b!)? y, Tensor z) -> Tensor")

        def sine_and_double(x, y):
            x.sin_()
            y.mul_(2)

        def add_to_all(x, y, z):
            for each in x:
                each.add_(1)
            if y is not None:
                y.mul_(3)
            return z + 1

        library.impl("sine_and_double", sine_and_double, "CPU")
        library.impl("add_to_all", add_to_all, "CPU")
        torch.library.register_fake("test_changed_views::add_to_all", lambda x, y, z: torch.empty_like(z), lib=library)
        yield


def _rows(x):
    torch.ops.test_changed_views.sine_and_double(x[0], x[1])
    return x * 1


def _row_and_column(x):
    y = x.clone()
    torch.ops.test_changed_views.sine_and_double(y[:, 0], y[1])
    return y * 1


def _all_and_a_row(x):
    y = x * 2
    torch.ops.test_changed_views.sine_and_double(y, y[1])
    return y + 1, x


def _aliases(x):
    a, b = torch.ops.aten.alias.default(x), torch.ops.aten.alias.default(x)
    torch.ops.test_changed_views.sine_and_double(a, b)
    return a, b, x


def _list_and_optional(x):
    a, z = x.t(), torch.ones(2)
    return torch.ops.test_changed_views.add_to_all([a[0], a[1]], a[:, 0], z), a


def _list_without_optional(x):
    a, z = x.t().clone(), torch.ones(2)
    return torch.ops.test_changed_views.add_to_all([a[0], x, a[1]], None, z), a, x


def _parts(x):
    a, b = x.split(1)
    torch.ops.test_changed_views.sine_and_double(b, a)
    return a, b, x + 1


_FUNCTIONS = [_rows, _row_and_column, _all_and_a_row, _aliases, _list_and_optional, _list_without_optional, _parts]


@pytest.mark.parametrize("is_dense", [True, False])
@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda f: f.__name__)
def test_both_views_are_changed(function, is_dense):
    def example():
        x = torch.arange(1.0, 25.0).view(4, 6)
        return x[1:3, 1:4].clone() if is_dense else x[:3].t()[1:5:3]

    torch._dynamo.reset()
    x, y = example(), example()
    expected = function(x)
    made = torch.compile(function, backend="aot_eager", fullgraph=True)(y)
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    assert torch.equal(x, y)


def test_an_exported_program_changes_both():
    class Module(torch.nn.Module):
        def forward(self, x):
            return _row_and_column(x)

    x = torch.rand(2, 3)
    program = torch.export.export(Module(), (x,)).run_decompositions()
    assert any("auto_functionalized_v2" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(x), Module()(x))
