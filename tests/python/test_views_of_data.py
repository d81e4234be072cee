"""Views, sizes and loops whose numbers only data decide: the program says what they are, and the graph asserts that they fit."""

import io

import mica as torch
import pytest
from export_parts import as_module, check_program, same
from mica._higher_order_ops.while_loop import while_loop
from mica.export import export, load, save
from mica.export.graph_signature import SymBoolArgument, SymFloatArgument, SymIntArgument

N = torch.tensor
X, Y = torch.arange(12.0), torch.arange(12.0) * 2


def repeated(x, bound, count):
    k = count.item()
    rows = x[x > bound.item()].view(k, 1, 2)
    return rows, rows.expand(k, 3, 2).contiguous().view(-1), rows.expand(-1, 3, -1).shape[0]


def largest(x, count):
    return max(each + 1 for each in (x.shape[0], count.item())) * torch.ones(2)


def counted(x, count):
    def step(n, total, y):
        return n + 1, total + y.sum(), y * 2

    return while_loop(lambda n, total, y: n < 5, step, (count.shape[0], torch.zeros(()), x))


# name: (function, example, other arguments, arguments that it refuses)
PROGRAMS = {
    "views": (repeated, (X, N(5.0), N(3)), [(Y, N(3.0), N(5)), (X, N(9.0), N(1))], [(X, N(5.0), N(2))]),
    "zeros": (lambda n: torch.zeros(n, 2) + 1, (N(3),), [(N(5),), (N(1),)], [(N(-1),)]),
    "a shape with a tensor": (lambda x, n: x.new_ones(n, 2) + x[:2], (X, N(3)), [(X, N(7))], [(X, N(-2))]),
    "a bound": (lambda x, n: x[:n] * 2, (X, N(3)), [(X, N(5)), (X, N(-4)), (X, N(20))], []),
    "a place": (lambda x, n: x.narrow(0, n, 2), (X, N(3)), [(X, N(5))], [(X, N(11))]),
    "the shape by a name": (lambda x: torch.reshape(input=x + 1, shape=(1, 1)), (N([2.0]),), [(N([3.0]),)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_say_what_data_decide(name):
    check_program(*PROGRAMS[name])


def test_extremes_of_a_generator_are_nodes():
    module = export(as_module(largest), (X, N(3))).module()
    for count in (3, 11, 40):
        assert same(module(X, N(count)), largest(X, N(count)))


def test_whole_numbers_that_loops_carry_are_open():
    example = (X, torch.zeros(1))
    program = export(as_module(counted), example)
    for each in (program, program.run_decompositions()):
        assert same(each.module()(*example), counted(*example))
        assert len(each.graph.nodes) < 12


def test_results_that_are_no_tensors_are_told_apart():
    def numbers(x, n):
        return (n > 1).item(), x.sum().item(), n.item()

    program, file = export(as_module(numbers), (X, N(3))), io.BytesIO()
    save(program, file)
    file.seek(0)
    for each in (program, program.run_decompositions(), load(file)):
        kinds = [type(spec.arg) for spec in each.graph_signature.output_specs]
        assert kinds == [SymBoolArgument, SymFloatArgument, SymIntArgument]
        assert each.module()(X, N(0)) == (False, 66.0, 0)


@pytest.mark.parametrize("ask", [int, float, bool])
def test_values_are_refused_in_torchs_words(ask):
    with pytest.raises(RuntimeError, match=r"Could not .* data-dependent expression .*unhinted"):
        export(as_module(lambda x: x + ask(x.sum())), (X,))
