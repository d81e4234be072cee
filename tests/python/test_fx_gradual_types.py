"""Gradual types of graphs: mica.fx.tensor_type and the checker of mica.fx.experimental.

Types are as torch gives them.

Where torch's checker says another size than the module then makes, Mica's says the module's.
"""

import operator

import mica
import pytest
from mica.fx import symbolic_trace
from mica.fx.experimental.graph_gradual_typechecker import (
    GraphTypeChecker,
    Refine,
    broadcast_types,
    get_greatest_upper_bound,
    register_inference_rule,
    register_refinement_rule,
)
from mica.fx.experimental.refinement_types import Equality
from mica.fx.experimental.unification import Var, reify, unify
from mica.fx.experimental.unify_refinements import infer_symbolic_types, infer_symbolic_types_single_pass, unify_eq
from mica.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise


def checked(function, *types):
    """The graph of a function whose inputs have these types, after the check."""
    traced = symbolic_trace(function)
    for node, given in zip((n for n in traced.graph.nodes if n.op == "placeholder"), types, strict=True):
        node.type = given
    assert GraphTypeChecker({}, traced).type_check()
    return traced


def result(function, *types):
    """The type of what a function returns."""
    return next(n.type for n in checked(function, *types).graph.nodes if n.op == "output")


def T(*sizes):
    return TensorType(sizes)


def test_types_say_what_they_are():
    assert T(1, 2, Dyn) == TensorType[1, 2, Dyn] == TensorType([1, 2, Dyn])
    assert TensorType[3] == T(3)
    assert T(1, 2) != T(1, 3)
    assert T(1) != (1,)
    assert repr(T(1, Dyn)) == "TensorType[(1, Dyn)]"
    assert len({T(1, Dyn), TensorType([1, Dyn]), Dyn, Dyn}) == 2


def test_consistent_types_may_be_of_one_value():
    assert is_consistent(T(1, 2, 3), T(1, Dyn, 3))
    assert is_consistent(T(1, Dyn), T(Dyn, 2))
    assert is_consistent(int, Dyn)
    assert is_consistent(Dyn, T(1))
    assert is_consistent(T(Var("a")), T(4))
    assert not is_consistent(T(1, 2), T(1, 2, 3))
    assert not is_consistent(T(1), int)
    assert not is_consistent(T(1, 2), T(1, 3))


def test_a_more_precise_type_says_all_that_the_other_says():
    assert is_more_precise(T(1, 2), T(1, Dyn))
    assert is_more_precise(T(1, 2), Dyn)
    assert is_more_precise(int, int)
    assert not is_more_precise(T(1, Dyn), T(1, 2))
    assert not is_more_precise(Dyn, T(1))
    assert not is_more_precise(T(1, 2), T(1, 2, 3))


def test_types_broadcast():
    assert broadcast_types(T(1, 2, 3, 4), T(1, 2, 1, 4)) == (T(1, 2, 3, 4), T(1, 2, 3, 4))
    assert broadcast_types(T(), T(4, 1)) == (T(4, 1), T(4, 1))
    assert broadcast_types(T(1, 2, 3, Dyn), T(2, 3, 4)) == (T(1, 2, 3, Dyn), T(1, 2, 3, 4))
    assert broadcast_types(T(1), T(Dyn)) == (T(Dyn), T(Dyn))
    assert broadcast_types(Dyn, T(2)) == (Dyn, T(2))
    with pytest.raises(TypeError, match="Cannot broadcast types"):
        broadcast_types(int, T(2))


def test_two_types_say_more_together():
    assert get_greatest_upper_bound(T(1, Dyn), T(Dyn, 2)) == T(1, 2)
    assert get_greatest_upper_bound(Dyn, T(2)) == T(2)
    with pytest.raises(TypeError, match="Inconsistent types"):
        get_greatest_upper_bound(T(1), T(2))


def test_annotations_of_arguments_are_types():
    def f(x: T(1, 2, Dyn), y: Dyn):
        return mica.add(x, y)

    assert [n.type for n in symbolic_trace(f).graph.nodes if n.op == "placeholder"] == [T(1, 2, Dyn), Dyn]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ((T(1, 2, 3, Dyn), T(2, 3, 4)), T(1, 2, 3, Dyn)),
        ((int, T(2, 3)), T(2, 3)),
        ((T(1, 2, Dyn), T(1, 2, 3)), T(1, 2, Dyn)),
        ((T(1, 2), T(Dyn, 2)), T(Dyn, 2)),
        ((Dyn, T(1, 2)), Dyn),
    ],
)
def test_sums(given, made):
    assert result(lambda x, y: mica.add(x, y), *given) == made
    assert result(lambda x, y: x + y, *given) == made


def test_sums_with_numbers_and_by_name():
    assert result(lambda x: x + 1, T(2, Dyn)) == T(2, Dyn)
    assert result(lambda x: mica.add(x, other=2.5), T(2, Dyn)) == T(2, Dyn)


def test_a_sum_of_other_sizes_is_refused():
    with pytest.raises(TypeError, match="Cannot add arguments x .* and y .*Types should match"):
        result(lambda x, y: mica.add(x, y), T(1, 2, 3, Dyn), T(1, 2, 3))


def test_changes_in_place_are_recorded_as_new_values():
    def f(x):
        x += 1
        return x

    traced = checked(f, T(2))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [operator.add]
    given = mica.zeros(2)
    assert traced(given).tolist() == [1, 1]
    assert given.tolist() == [0, 0]


def test_transposes():
    assert result(lambda x: mica.transpose(x, 0, 1), T(1, 2, 3, 5)) == T(2, 1, 3, 5)
    assert result(lambda x: mica.transpose(x, dim0=-1, dim1=0), T(1, 2, Dyn)) == T(Dyn, 2, 1)
    assert result(lambda x: mica.transpose(x, 0, 1), Dyn) == Dyn
    with pytest.raises(TypeError, match="Cannot transpose 0 and 10"):
        result(lambda x: mica.transpose(x, 0, 10), T(1, 2, 3, 5))


@pytest.mark.parametrize(
    ("given", "shape", "made"),
    [
        (T(1, 6), [1, 2, 3], T(1, 2, 3)),
        (T(1, 15), [1, 5, -1], T(1, 5, Dyn)),
        (Dyn, [2, -1], T(2, Dyn)),
        (T(Dyn, 4), [2, -1], T(2, Dyn)),
        (T(Dyn, 2), [4, 3], T(4, 3)),
    ],
)
def test_reshapes(given, shape, made):
    assert result(lambda x: mica.reshape(x, shape), given) == made


@pytest.mark.parametrize(
    ("given", "shape"),
    [(T(1, 5), [1, 2, 3]), (T(1, 5), [1, 2, -1]), (T(Dyn, 5), [1, 2, -1]), (T(2, 3), [3]), (T(Dyn, 4), [2])],
)
def test_reshapes_to_other_numbers_of_elements_are_refused(given, shape):
    with pytest.raises(TypeError, match="Cannot reshape in node"):
        result(lambda x: mica.reshape(x, shape), given)


def test_flattened_dimensions():
    assert result(lambda x: mica.flatten(x, 1, 2), T(1, 2, 3, 5, Dyn)) == T(1, 6, 5, Dyn)
    assert result(lambda x: mica.flatten(x, 1, 2), T(1, Dyn, 3, 5, Dyn)) == T(1, Dyn, 5, Dyn)
    assert result(lambda x: mica.flatten(x, start_dim=1, end_dim=3), T(2, 3, 4, 5)) == T(2, 60)
    assert result(lambda x: mica.flatten(x, -2), T(2, 3, 4)) == T(2, 12)
    assert result(lambda x: mica.flatten(x), T(2, 3, 4)) == T(24)
    with pytest.raises(TypeError, match="Incompatible dimensions"):
        result(lambda x: mica.flatten(x, 2, 1), T(2, 3, 4))


IMAGES = [
    (mica.nn.Conv2d(3, 6, 5), (4, 3, 32, 32)),
    (mica.nn.Conv2d(3, 6, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2)), (4, 3, 13, 11)),
    (mica.nn.Conv2d(3, 6, 3, padding="same"), (4, 3, 9, 8)),
    (mica.nn.Conv2d(3, 6, 3, padding="valid"), (4, 3, 9, 8)),
    (mica.nn.BatchNorm2d(3), (2, 3, 4, 5)),
    (mica.nn.ReLU(), (2, 3)),
    (mica.nn.MaxPool2d(2, 2), (4, 6, 15, 14)),
    (mica.nn.MaxPool2d(5, 8), (64, 8, 8)),
    (mica.nn.MaxPool2d((3, 2), stride=(2, 3), padding=1, dilation=(2, 1), ceil_mode=True), (2, 3, 10, 11)),
    (mica.nn.MaxPool2d(2, stride=3, padding=1, ceil_mode=True), (1, 1, 5, 5)),
    (mica.nn.Linear(5, 120), (4, 16, 5, 5)),
    (mica.nn.AdaptiveAvgPool2d((6, 7)), (4, 3, 9, 9)),
    (mica.nn.AdaptiveAvgPool2d((None, 7)), (4, 3, 9, 8)),
    (mica.nn.AdaptiveAvgPool2d(2), (3, 9, 8)),
]


@pytest.mark.parametrize(("module", "sizes"), IMAGES)
def test_modules_make_the_sizes_that_they_make(module, sizes):
    model = mica.nn.Sequential(module)
    assert result(model, T(*sizes)) == TensorType(tuple(module(mica.rand(sizes)).shape))
    assert is_consistent(result(model, T(*sizes[:-1], Dyn)), TensorType(tuple(module(mica.rand(sizes)).shape)))


def test_annotations_of_results_are_used():
    traced = symbolic_trace(mica.nn.Sequential(mica.nn.Conv2d(2, 2, 3, padding=1)))
    source, call, output = traced.graph.nodes
    call.type = T(2, 2, Dyn, 4)
    GraphTypeChecker({}, traced).type_check()
    assert (source.type, call.type, output.type) == (T(Dyn, Dyn, Dyn, Dyn), T(2, 2, Dyn, 4), T(2, 2, Dyn, 4))
    source.type, call.type = T(2, 2, 4, 5), T(2, 2, Dyn, 4)
    with pytest.raises(TypeError, match="Inconsistent types"):
        GraphTypeChecker({}, traced).type_check()


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (mica.nn.Conv2d(3, 6, 5), T(4, 2, 8, 8)),
        (mica.nn.Conv2d(3, 6, 5), T(4, 3, 8)),
        (mica.nn.BatchNorm2d(3), T(4, 2, 8, 8)),
        (mica.nn.BatchNorm2d(3), T(2, 3, 8)),
        (mica.nn.MaxPool2d(2), T(2, 3)),
        (mica.nn.Linear(5, 2), T(2, 4)),
        (mica.nn.Linear(5, 2), T(5)),
        (mica.nn.AdaptiveAvgPool2d(2), T(5)),
    ],
)
def test_what_modules_refuse_is_no_type(module, given):
    with pytest.raises(TypeError):
        result(mica.nn.Sequential(module), given)


def test_parameters_and_structures():
    class Shift(mica.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = mica.nn.Parameter(mica.zeros(3))

        def forward(self, x):
            return {"a": x + self.shift, "b": (x, x.shape)}

    assert result(Shift(), T(2, 3)) == {"a": T(2, 3), "b": (T(2, 3), Dyn)}


def test_what_has_no_rule_is_an_error():
    with pytest.raises(RuntimeError, match="No inference rule registered for target"):
        result(lambda x: mica.cos(x), T(2))
    with pytest.raises(RuntimeError, match="No inference rule registered for class .*GELU"):
        result(mica.nn.Sequential(mica.nn.GELU()), T(2))
    with pytest.raises(NotImplementedError, match="call_method"):
        result(lambda x: x.cos(), T(2))
    with pytest.raises(TypeError, match="dtype"):
        result(lambda x: x.dtype, T(2))


def test_rules_can_be_added_once():
    def doubled(x):
        return mica.cat([x, x])

    @register_inference_rule(doubled)
    def rule(n):
        n.type = T(*(2 * size for size in n.args[0].type.dims))
        return n.type

    graph = mica.fx.Graph()
    graph.output(graph.call_function(doubled, (graph.placeholder("x", type_expr=T(3)),)))
    traced = mica.fx.GraphModule({}, graph)
    GraphTypeChecker({}, traced).type_check()
    assert [n.type for n in graph.nodes] == [T(3), T(6), T(6)]
    with pytest.raises(RuntimeError, match="Inference rule already registered"):
        register_inference_rule(doubled)(rule)
    with pytest.raises(RuntimeError, match="Refinement rule already registered"):
        register_refinement_rule(mica.add)(rule)


def test_unification():
    x, y = Var("x"), Var("y")
    assert unify((1, x), (1, 2)) == {x: 2}
    assert unify((x, y), (y, 3)) == {x: y, y: 3}
    assert unify(x, x) == {}
    assert unify((1, 2), (1, 3)) is False
    assert unify((1,), (1, 3)) is False
    assert unify(x, 3, {x: 4}) is False
    assert reify({"a": (x, [y])}, {x: y, y: 3}) == {"a": (3, [3])}
    assert repr(x) == "~x"
    assert Var() != Var()


def test_equal_sizes_get_one_name():
    block = mica.nn.Sequential(mica.nn.BatchNorm2d(2), mica.nn.ReLU(), mica.nn.MaxPool2d(2))
    traced = checked(block, T(Dyn, 2, Dyn, 4))
    infer_symbolic_types_single_pass(traced)
    types = [n.type for n in traced.graph.nodes]
    batch, height = types[0].dims[0], types[0].dims[2]
    assert isinstance(batch, Var)
    assert batch != height
    assert types[0] == types[1] == types[2] == T(batch, 2, height, 4)
    assert types[3].dims[:2] == (batch, 2)
    assert types[3].dims[2] not in (batch, height)


def test_constraints():
    refine = Refine(checked(lambda x, y: mica.add(x, y), T(1, 2, 3, Dyn), T(2, 3, 4)))
    refine.refine()
    assert refine.constraints == [Equality(1, 1), Equality(2, 2), Equality(3, 3)]
    assert [str(each) for each in refine.constraints] == ["1 = 1", "2 = 2", "3 = 3"]
    refine = Refine(checked(lambda x: mica.flatten(x, 1, 2), T(2, 3, 4, 5, 6)))
    refine.refine()
    assert refine.constraints == [Equality(2, 2), Equality(5, 5), Equality(6, 6)]
    with pytest.raises(TypeError, match="No sizes satisfy all of these: 2 = 3"):
        unify_eq([Equality(2, 3)])


def test_sizes_as_expressions():
    sympy = pytest.importorskip("sympy")
    traced = checked(mica.nn.Sequential(mica.nn.Conv2d(3, 6, 5), mica.nn.MaxPool2d(2, 2)), T(4, 3, Dyn, Dyn))
    infer_symbolic_types(traced)
    height, width = sympy.symbols("~0 ~1")
    source, conv, *_ = traced.graph.nodes
    assert source.type == T(4, 3, height, width)
    assert conv.type == T(4, 6, sympy.floor(height - 4), sympy.floor(width - 4))
