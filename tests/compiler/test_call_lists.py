"""Compiled functions on the CPU whose calls C makes again: when, for which values and arguments, with which results."""

import collections
import dataclasses
import sys
import weakref

import mica as torch
import pytest
from calls_made_again import agree, blocks, call_of, made_by_c, reasons
from mica._dynamo.replay import calls

functional = torch.nn.functional
pytestmark = pytest.mark.usefixtures("replays_begin_early")


def test_a_model_is_made_again():
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model, 10) == 7, reasons(compiled)
    assert agree(compiled, model, 3) == 3
    assert agree(compiled, model, 6, lambda: torch.randn(5, 8)) >= 3  # another shape is another list
    assert agree(compiled, model, 3) == 3
    assert "1 graphs for arguments of" in str(call_of(compiled).replayed) or "2 graphs" in str(
        call_of(compiled).replayed
    )


def test_defaults_wait_until_it_gains(monkeypatch):
    monkeypatch.undo()
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model, 18) == 0 and agree(compiled, model, 20) >= 10, reasons(compiled)
    small = torch.compile(lambda x: x * 2 + 1)
    assert agree(small, lambda x: x * 2 + 1, 200) == 0 and call_of(small).replayed is None


def test_python_does_not_run_meanwhile():
    seen = []

    class Watching(torch.nn.Module):
        def forward(self, x):
            return functional.gelu(x) * 2

    model = Watching()
    compiled = torch.compile(model)
    agree(compiled, model)
    sys.setprofile(lambda frame, event, argument: seen.append(frame.f_code.co_name))
    try:
        compiled(torch.ones(3, 8))  # a profiler sees Python run
    finally:
        sys.setprofile(None)
    assert "forward" in seen and agree(compiled, model) == 6
    Watching.forward = lambda self, x: x - 1  # what would run has changed
    assert agree(compiled, model, 1) == 0 and agree(compiled, model, 4) > 0


# ---- what a call changes and draws


def test_buffers_and_arguments_change():
    torch.manual_seed(0)
    models = [torch.nn.BatchNorm1d(8).train().requires_grad_(False) for _ in range(2)]
    compiled = torch.compile(models[0])
    assert agree(compiled, models[1], 8) > 0, reasons(compiled)
    assert torch.equal(models[0].running_var, models[1].running_var)
    assert models[0].num_batches_tracked == models[1].num_batches_tracked == 8

    def plain(x):
        x[0].mul_(2)
        x.add_(1)
        return x.view(-1)[2:]

    compiled = torch.compile(plain)
    assert agree(compiled, plain) > 0
    x = torch.zeros(3, 8)
    result, version = compiled(x), x._version
    assert result._base is x or result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert version == 2 and torch.equal(x, torch.ones(3, 8))


def test_draws_come_from_the_same_stream():
    model = blocks(dropout=0.5).train()
    compiled = torch.compile(model)
    before = made_by_c(compiled)
    for i in range(8):
        x = torch.randn(3, 8)
        torch.manual_seed(i)
        want = model(x), torch.rand(3)
        torch.manual_seed(i)
        got = compiled(x), torch.rand(3)
        assert all(map(torch.equal, want, got))
    assert made_by_c(compiled) > before, reasons(compiled)


def test_generators():
    outside = torch.Generator()

    def own(x):
        return x + torch.rand(3, 8, generator=torch.Generator())

    def others(x):
        return x + torch.rand(3, 8, generator=outside)

    agree(torch.compile(own), own, 9)
    compiled = torch.compile(others)
    for i in range(9):
        outside.manual_seed(i)
        want = others(torch.ones(3, 8)), others(torch.ones(3, 8))
        outside.manual_seed(i)
        assert all(map(torch.equal, want, (compiled(torch.ones(3, 8)), compiled(torch.ones(3, 8)))))
    assert made_by_c(compiled) > 0


def test_changes_that_no_recorded_call_has_made():
    """An optimizer of Mica changes its parameters in one call that takes no part in __torch_function__."""
    weights = [torch.nn.Parameter(torch.ones(3, 8)) for _ in range(2)]
    steps = [torch.optim.SGD([weight], lr=0.5) for weight in weights]

    def step(i, x):
        weights[i].grad = x
        steps[i].step()
        return x + 1

    def plain(x):
        return step(1, x)

    def same(x):
        return step(0, x)

    agree(torch.compile(same), plain, 9)
    assert torch.equal(*weights)


# ---- what depends on values


def test_other_shapes_and_errors():
    def plain(x):
        return x[x > 0] * 2

    compiled = torch.compile(plain)
    agree(compiled, plain, 9)
    torch.compile(lambda x: x.nonzero())
    table = torch.randn(5, 4)

    def look_up(x):
        return functional.embedding(x, table) + 1

    compiled = torch.compile(look_up)
    assert agree(compiled, look_up, make=lambda: torch.randint(0, 5, (3,))) > 0
    with pytest.raises(IndexError) as error:
        compiled(torch.tensor([1, 2, 5]))
    assert "look_up" in [each.name for each in error.traceback]
    assert agree(compiled, look_up, make=lambda: torch.randint(0, 5, (3,))) == 6


def test_a_failure_after_a_change_is_raised_once():
    table, count = torch.randn(5, 4), torch.zeros(1)

    def plain(x):
        count.add_(1)
        return functional.embedding(x, table) + count

    compiled = torch.compile(plain)
    for _ in range(6):
        compiled(torch.tensor([1, 2, 3]))
    assert made_by_c(compiled) > 0 and count == 6
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 2, 5]))
    assert count == 7


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x * x.sum().item(), lambda x: x + 1 if x.sum() > 0 else x - 1, lambda x: x * len(x.tolist()),
        lambda x: x * float(x[0, 0]), lambda x: x * int(x[0, 0]), lambda x: x + torch.from_numpy(x.numpy()),
        lambda x: x * len(repr(x)), lambda x: x * len(f"{x.sum()}"), lambda x: x * torch.equal(x, x.abs()),
        lambda x: x * torch.allclose(x, x.abs()), lambda x: x * (1.0 in x), lambda x: x * x.data_ptr().bit_length(),
        lambda x: x * torch.is_nonzero(x[0, 0]), lambda x: x * x.storage_offset(), lambda x: x + torch.tensor(x.tolist()),
        lambda x: torch.tensor([x[0, 0], x[0, 1]]), lambda x: x * complex(x[0, 0]).real, lambda x: x * x._version,
        lambda x: x * x[0].count_nonzero().item(), lambda x: x * bool(x[0, 0]), lambda x: x * (x[0, 0].__index__() if x.dtype == torch.int64 else 1),
        lambda x: x * len(list(x.untyped_storage())), lambda x: x * max(x[0].numpy()).item(),
    ],
)  # fmt: skip
def test_values_that_are_asked_for(ask):
    agree(torch.compile(ask), ask, 12)


# ---- arguments and results


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    second: object


Named = collections.namedtuple("Named", "a, b")
state = torch.ones(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"a": x.sin(), "b": [x.cos(), (x + 1, 2.0)], "c": None},
        lambda x: Pair(x.sin(), [x.cos()]),
        lambda x: Named(x.sin(), "text"),
        lambda x: (x, x.sin(), x),
        lambda x: (state, x.sin()),
        lambda x: x.max(0),
        lambda x: [x.sin()] * 2,
        lambda x: x.sin() is None,
        lambda x: None if x.dim() == 2 else x,
        lambda x: collections.OrderedDict(a=x.sin()),
        lambda x: x.split(1),
        lambda x: (x.view(-1), x.T, x.sin().T),
    ],
)
def test_results(make):
    compiled = torch.compile(make)
    for _ in range(8):
        x = torch.randn(3, 8)
        want, got = make(x), compiled(x)
        assert repr(want) == repr(got) and type(want) is type(got)
        if isinstance(got, list):
            assert (got[0] is got[1]) == (want[0] is want[1])
        if isinstance(got, tuple):
            assert [each is x or each is state for each in got] == [each is x or each is state for each in want]


def test_arguments_of_many_kinds():
    def plain(x, y=None, *more, scale=1.0, names=()):
        parts = [x * scale] + ([] if y is None else [y]) + list(more) + [torch.ones(len(names))]
        return torch.cat([each.reshape(-1) for each in parts])

    compiled, x, y = torch.compile(plain), torch.randn(3, 2), torch.randn(2)
    given = [
        ((x,), {}), ((x, y), {}), ((x, y, x), {}), ((x, x), {}), ((x,), {"scale": 2.0}), ((x,), {"scale": -0.0}),
        ((x,), {"scale": 0.0}), ((x,), {"y": y}), ((x,), {"names": ["a"]}), ((x,), {"names": ("a", "b")}), ((y, x), {}),
        ((x.double(),), {}), ((x.T,), {}), ((torch.nn.Parameter(x),), {}), ((x.conj(),), {}), ((x, y), {"scale": 2}),
    ]  # fmt: skip
    with torch.no_grad():
        for _ in range(7):
            for args, kwargs in given:
                want, got = plain(*args, **kwargs), compiled(*args, **kwargs)
                assert torch.equal(want, got) and want.dtype == got.dtype
                assert torch.equal(torch.signbit(want), torch.signbit(got))
    assert len(call_of(compiled).known) == calls._MOST_KNOWN


def test_arguments_with_attributes():
    def plain(x):
        return torch.sin(x) * getattr(x, "factor", 1.0)

    compiled = torch.compile(plain)
    assert agree(compiled, plain) > 0
    x = torch.ones(3, 8)
    x.factor = 3.0
    assert torch.equal(plain(x), compiled(x))

    def mark(x):
        result = torch.sin(x)
        result.mark = 5
        return result

    compiled = torch.compile(mark)
    for _ in range(8):
        assert compiled(torch.ones(3, 8)).mark == 5


def test_objects_are_not_kept():
    class Owner:
        pass

    def plain(x, owner):
        return torch.sin(x) * owner.factor

    compiled, owner = torch.compile(plain), Owner()
    owner.factor, seen = 2.0, weakref.ref(owner)
    for _ in range(8):
        compiled(torch.ones(3), owner)
    assert "objects are among its arguments" in reasons(compiled)
    del owner
    assert seen() is None
