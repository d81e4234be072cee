"""`fullgraph=True`: what torch 2.13's tracing refuses because it needs values is refused here too, with its line."""

import mica as torch
import pytest
from mica._dynamo.exc import Unsupported


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x


def loop(x):
    while x.sum() < 100:
        x = x + 50
    return x


def negation(x):
    return not x[0]


def either(x):
    return x[0] > 100 or x


def text(x):
    return str(x), x + 1


def to_list(x):
    return x.tolist()


def equal(x):
    return torch.equal(x, x + 1)


def allclose(x):
    return torch.allclose(x, x + 1)


def one_hot(x):
    return torch.nn.functional.one_hot(x.abs().long())


def break_(x):
    torch._dynamo.graph_break()
    return x + 1


@torch.compiler.disable
def aside(x):
    return x + 1


def disabled(x):
    return aside(x) * 2


REFUSED = [
    (branch, "Data-dependent branching", "if x.sum() > 0:"),
    (loop, "Data-dependent branching", "while x.sum() < 100:"),
    (negation, "Data-dependent branching", "return not x[0]"),
    (either, "Data-dependent branching", "return x[0] > 100 or x"),
    (text, "Failed to trace builtin operator", "str(x)"),
    (to_list, r"Tensor.tolist\(\) with non-integer tensor", "x.tolist()"),
    (equal, "Data dependent operator", "torch.equal(x, x + 1)"),
    (allclose, "Data dependent operator", "torch.allclose(x, x + 1)"),
    (one_hot, "one_hot` with data-dependent output shape", "one_hot(x.abs().long())"),
    (break_, "graph_break", "torch._dynamo.graph_break()"),
    (disabled, r"Skip calling `torch.compiler.disable\(\)`d function", "aside(x) * 2"),
]


@pytest.mark.parametrize("function, words, line", REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_what_is_refused(function, words, line):
    x = torch.full((8,), 2.0)
    with pytest.raises(Unsupported, match=words) as caught:
        torch.compile(function, fullgraph=True)(x)
    assert line in str(caught.value) and "test_full_graph.py" in str(caught.value)
    assert not torch.compiler.is_compiling()
    torch.compile(function)(x)  # without it, nothing is


_made = {}
exec("def asserts(x):\n    assert x.sum() > -1e9\n    return x + 1", _made)  # as Python compiles it, not as pytest does
asserts = _made["asserts"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x * float(x.sum()) * int(x.sum()),
        lambda x: (f"{x}", x + 1),
        lambda x: (x.nonzero(), x[x > 0], torch.masked_select(x, x > 0), torch.unique(x), torch.where(x > 0)),
        lambda x: x.long().tolist(),
        lambda x: bool(torch.isnan(x).any()),
        lambda x: max(x[0], x[1]),
        lambda x: torch.nn.functional.one_hot(x.abs().long(), 10),
        lambda x: x.view(x.shape[0] // 2, 2),
        asserts,
        lambda x: torch.compile(lambda y: y * 2)(x) + 1,
    ],
)
def test_what_is_not(function):
    x = torch.full((8,), 2.0)
    expected, found = function(x), torch.compile(function, fullgraph=True)(x)
    assert str(expected) == str(found)


def test_it_holds_for_modules_methods_and_what_they_call_and_ends_with_the_call():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.compile(branch)(x)

    model = torch.compile(Model(), fullgraph=True)
    with pytest.raises(Unsupported, match="if x.sum"):
        model(torch.ones(3))
    inside = Model()
    inside.compile(fullgraph=True)
    with pytest.raises(Unsupported, match="if x.sum"):
        inside(torch.ones(3))
    assert torch.equal(branch(torch.ones(3)), torch.full((3,), 2.0))
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(model(torch.ones(3)), torch.full((3,), 2.0))


def test_a_compiled_function_has_the_arguments_of_the_function():
    class Holder:
        scale = 3

        @torch.compile
        def method(self, x, y=2, *, z=1):
            return x * y * z * self.scale

        @torch.compile
        def plain(self, x, /, y=2):
            return x * y * self.scale

    one = torch.ones(2)
    holder = Holder()
    assert holder.method(one, z=5).tolist() == [30, 30] and holder.method(x=one, y=1).tolist() == [3, 3]
    assert holder.plain(one).tolist() == [6, 6] and holder.plain(one, y=1).tolist() == [3, 3]
    for wrong in (lambda: holder.plain(), lambda: holder.plain(one, 1, 2), lambda: holder.plain(x=one)):
        with pytest.raises(TypeError, match="plain"):
            wrong()
    function = torch.compile(lambda call, *rest, **named: (call, rest, named))
    assert function(1, 2, a=3) == (1, (2,), {"a": 3})
    assert torch.compile(lambda call: call)(call=4) == 4


def test_modes_and_options_are_torchs():
    def function(x):
        return x + 1

    for wrong, error, words in [
        ({"mode": "fast"}, RuntimeError, "Unrecognized mode=fast"),
        ({"mode": "default", "options": {}}, RuntimeError, "Either mode or options"),
        ({"options": {"nope": 1}}, RuntimeError, "Unexpected optimization option nope"),
        (
            {"options": {"max-autotune": 1}},
            RuntimeError,
            "Unexpected type of attr max-autotune, got int should be bool",
        ),
        ({"options": {"trace.enabled": True}}, NotImplementedError, "asks for a report"),
        ({"dynamic": "yes"}, AssertionError, "Expected enable to be a bool"),
    ]:
        with pytest.raises(error, match=words):
            torch.compile(function, **wrong)
        with pytest.raises(error, match=words):
            torch.compile(**wrong)(function)
    for right in ({"mode": "max-autotune"}, {"options": {"cpp.threads": 2, "max_autotune": True}}, {"dynamic": True}):
        assert torch.compile(function, **right)(torch.ones(1)).item() == 2


def test_operators_of_the_programs_own_may_ask_for_values():
    @torch.library.custom_op("test_full_graph::halved_if_large", mutates_args=())
    def halved_if_large(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        if x.sum() > 10:
            return x / 2
        return plain(x)

    @torch.compiler.disable
    def plain(x):
        return x.clone()

    halved_if_large.register_fake(torch.empty_like)
    function = torch.compile(lambda x: halved_if_large(x + 1) * 3, fullgraph=True)
    assert function(torch.ones(3)).tolist() == [6, 6, 6]
    assert function(torch.full((3,), 9.0)).tolist() == [15, 15, 15]
    with pytest.raises(Unsupported):
        torch.compile(branch, fullgraph=True)(torch.ones(3))
