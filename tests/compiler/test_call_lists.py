"""Compiled functions on the CPU whose calls are made again without Python: the numbers of the function, whatever changes."""

import collections
import dataclasses
import gc
import logging
import os
import subprocess
import sys
import threading
import types
import warnings
import weakref

import mica as torch
import pytest
from mica import _C
from mica._dynamo import compiled_calls
from mica._dynamo.replay import calls
from mica._dynamo.replay.calls import Unasked

functional = torch.nn.functional
factor = 2.0  # a global that a test changes


class Block(torch.nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.norm, self.first = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width)
        self.second, self.dropout, self.scale = torch.nn.Linear(2 * width, width), torch.nn.Dropout(dropout), 1.0

    def forward(self, x):
        return x + self.dropout(self.second(functional.gelu(self.first(self.norm(x))))) * self.scale


def blocks(count=2, **options):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block(**options) for _ in range(count)]).eval().requires_grad_(False)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A function is looked at from its first call on, however little it calls."""
    monkeypatch.setattr(compiled_calls, "CALLS_BEFORE_REPLAY", 1)
    monkeypatch.setattr(calls, "_CALLS_BEFORE", 0)
    monkeypatch.setattr(calls.LongLists, "fewest_calls", 1)
    for name, value in (
        ("plain_calls_of_each_kind", 0),
        ("fewest_functions", 0),
        ("records_of_each_function", 10**6),
        ("most_misses", 10**4),
    ):
        monkeypatch.setattr(Unasked, name, value)


def call_of(compiled):
    return getattr(compiled, "_compiled_call", None) or compiled.forward


def counts(compiled):
    return {each: each.count for each in call_of(compiled).known or ()}


def made_by_c(compiled):
    """How many calls C has made again by itself."""
    return sum(counts(compiled).values())


def reasons(compiled):
    replayed = call_of(compiled).replayed
    return "" if replayed is None else " ".join(replayed.reasons)


def agree(compiled, plain, count=6, make=lambda: torch.randn(3, 8)):
    """Compare calls for new values. Returns how many of them C has made by itself."""
    before = counts(compiled)
    for _ in range(count):
        x = make()
        other = x.clone()
        want, got = plain(x), compiled(other)
        assert torch.equal(want, got) and want.stride() == got.stride() and torch.equal(x, other)
    return sum(made - before.get(each, 0) for each, made in counts(compiled).items())


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


# ---- what changes between calls

CHANGES = {
    "a weight's values": lambda model: model[0].first.weight.mul_(2),
    "a weight": lambda model: setattr(model[0].first, "weight", torch.nn.Parameter(torch.ones(16, 8), False)),
    "a weight's memory": lambda model: setattr(model[0].first.weight, "data", torch.ones(16, 8)),
    "a weight's dtype": lambda model: model.double(),
    "a weight that requires grad": lambda model: model.requires_grad_(True),
    "an attribute": lambda model: setattr(model[1], "scale", 3.0),
    "a module": lambda model: model.append(torch.nn.ReLU()),
    "training": lambda model: model.train(),
    "a hook": lambda model: model[1].register_forward_hook(lambda module, args, output: output * 2),
    "a forward of its own": lambda model: setattr(model[1], "forward", torch.relu),
    "eps": lambda model: setattr(model[0].norm, "eps", 0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_model(change):
    model = blocks()
    compiled = torch.compile(model)
    dtype = torch.float64 if "dtype" in change else torch.float32
    assert agree(compiled, model) > 0
    CHANGES[change](model)
    agree(compiled, model, 12, lambda: torch.randn(3, 8, dtype=dtype))
    model.float().eval().requires_grad_(False)
    agree(compiled, model, 12)


def test_a_global_and_a_closure_change(monkeypatch):
    inner = 3.0

    def plain(x):
        return torch.sin(x) * factor + inner

    compiled = torch.compile(plain)
    assert agree(compiled, plain) > 0
    monkeypatch.setitem(globals(), "factor", 5.0)
    assert agree(compiled, plain) > 0
    inner = 7.0
    assert agree(compiled, plain) > 0


def test_hooks_of_all_modules():
    inner = blocks()

    def model(x):
        return inner(x)

    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output + 1)
    try:
        agree(compiled, model)
    finally:
        handle.remove()
    agree(compiled, model)


def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    return before


def test_settings_of_the_thread():
    def plain(x):
        return functional.linear(x, torch.ones(4, 8)) + 0.1

    compiled = torch.compile(plain)
    assert agree(compiled, plain) > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(torch.ones(3, 8)).dtype == torch.bfloat16
        agree(compiled, plain)
    with torch.inference_mode():
        assert compiled(torch.ones(3, 8)).is_inference()
        agree(compiled, plain)
    with torch.no_grad():
        agree(compiled, plain)
    before = default_dtype(torch.float64)
    try:
        agree(compiled, plain, make=lambda: torch.randn(3, 8))
        assert compiled(torch.ones(3, 8, dtype=torch.float64)).dtype == torch.float64
    finally:
        default_dtype(before)
    x = torch.randn(3, 8, requires_grad=True)
    for _ in range(4):
        compiled(x).sum().backward()
    assert torch.equal(x.grad, 4 * torch.full((3, 8), 4.0))
    agree(compiled, plain)


def test_watchers_see_each_operation():
    from mica.overrides import TorchFunctionMode
    from mica.utils._python_dispatch import TorchDispatchMode

    model, seen = blocks(), []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    before = made_by_c(compiled)
    for mode in (Functions(), Operators()):
        with mode:
            compiled(torch.ones(3, 8))
        assert sum("gelu" in each for each in seen) == 2, seen
        seen.clear()
    with torch.profiler.profile() as profile:
        compiled(torch.ones(3, 8))
    assert any("gelu" in each.key for each in profile.key_averages())
    assert torch.equal(torch.func.vmap(compiled)(torch.ones(2, 3, 8)), torch.func.vmap(model)(torch.ones(2, 3, 8)))
    assert made_by_c(compiled) == before and agree(compiled, model) == 6


class Others:
    """Places of which a function may read, besides globals and closures."""

    def __init__(self):
        self.module = types.ModuleType("settings_of_a_program")
        self.module.flag = 2.0
        self.local = threading.local()
        self.local.flag = 2.0
        self.queue = type("Queue", (collections.deque,), {})([2.0])
        self.cached = torch.full((3, 8), 2.0)
        self.memo = {self.cached: 3.0}
        self.flag = 2.0


class Twice(Others):
    def factor(self):
        return 2.0


class Thrice(Others):
    def factor(self):
        return 3.0


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


READS = {
    "a module's attribute": (
        lambda x, others: torch.sin(x) * others.module.flag,
        lambda others: setattr(others.module, "flag", 3.0),
    ),
    "an attribute by name": (
        lambda x, others: torch.sin(x) * getattr(others.module, "flag"),  # noqa: B009
        lambda others: setattr(others.module, "flag", 3.0),
    ),
    "a thread's own": (
        lambda x, others: torch.sin(x) * getattr(others.local, "flag", 7.0),
        lambda others: setattr(others.local, "flag", 3.0),
    ),
    "what a class in C holds": (
        lambda x, others: torch.sin(x) * others.queue[0],
        lambda others: others.queue.appendleft(3.0),
    ),
    "a class": (
        lambda x, others: torch.sin(x) * others.factor(),
        lambda others: setattr(others, "__class__", Thrice),
    ),
    "a method of a class": (
        lambda x, others: torch.sin(x) * others.factor(),
        lambda others: setattr(Twice, "factor", lambda self: 5.0),
    ),
    "a method of tensors": (
        lambda x, others: x.sin(),
        lambda others: setattr(torch.Tensor, "sin", torch.Tensor.cos),
    ),
    "the number of threads": (
        lambda x, others: torch.sin(x) * torch.get_num_threads(),
        lambda others: torch.set_num_threads(torch.get_num_threads() + 1),
    ),
    "a logger": (
        lambda x, others: torch.sin(x) * (3.0 if logging.getLogger("replays").isEnabledFor(10) else 2.0),
        lambda others: logging.getLogger("replays").setLevel(10),
    ),
    "a gradient": (
        lambda x, others: torch.sin(x) * (2.0 if others.cached.grad is None else 3.0),
        lambda others: setattr(others.cached, "grad", torch.ones(3, 8)),
    ),
}


@pytest.mark.parametrize("what", READS)
def test_what_functions_read(what, monkeypatch):
    read, change = READS[what]
    monkeypatch.setattr(torch.Tensor, "sin", torch.Tensor.sin)
    monkeypatch.setattr(Twice, "factor", Twice.factor)
    others, threads = Twice(), torch.get_num_threads()

    def plain(x):
        return read(x, others)

    compiled = torch.compile(plain)
    agree(compiled, plain, 9)
    try:
        change(others)
        agree(compiled, plain, 9)
        in_a_thread(lambda: agree(compiled, plain, 3))
    finally:
        torch.set_num_threads(threads)
        logging.getLogger("replays").setLevel(0)


def test_an_argument_that_the_function_reads_besides():
    others = Others()

    def plain(x):
        return torch.sin(x) * (3.0 if x is others.cached else 2.0)

    def by_key(x):
        return torch.sin(x) * others.memo.get(x, 2.0)

    for each in (plain, by_key):
        compiled = torch.compile(each)
        agree(compiled, each, 9)
        assert torch.equal(compiled(others.cached), each(others.cached))
        agree(compiled, each, 9)


def test_what_is_said_each_time():
    def plain(x):
        warnings.warn("each time", stacklevel=1)
        return torch.sin(x)

    compiled = torch.compile(plain)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(9):
            compiled(torch.ones(3))
    assert len(seen) == 9 and "it calls warn" in reasons(compiled)


def test_a_gradient_that_comes_after_a_change():
    weight, count = torch.ones(3, 8), torch.zeros(1)

    def plain(x):
        count.add_(1)
        return torch.sin(x) if weight.grad is None else torch.cos(x)

    compiled = torch.compile(plain)
    for _ in range(6):
        compiled(torch.ones(3, 8))
    weight.grad = torch.ones(3, 8)
    assert torch.equal(compiled(torch.ones(3, 8)), torch.ones(3, 8).cos()) and count == 7


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


# ---- the life of a compiled function


def test_it_goes_with_its_model():
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    seen = weakref.ref(model[0]), weakref.ref(call_of(compiled).replayed)
    del compiled, model
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_old_weights_go():
    model = blocks()
    compiled = torch.compile(model)
    old = weakref.ref(model[0].first.weight)
    for _ in range(4):
        assert agree(compiled, model) > 0
        model[0].first.weight = torch.nn.Parameter(torch.randn(16, 8), False)
    agree(compiled, model)
    gc.collect()
    assert old() is None


def test_it_gives_up(monkeypatch):
    monkeypatch.setattr(Unasked, "most_misses", 200)
    plain = _Changing()
    compiled = torch.compile(plain)
    agree(compiled, _Changing(), 300)
    assert call_of(compiled).replayed is None and call_of(compiled).until_replay > 500


class _Changing(torch.nn.Module):
    count = 0

    def forward(self, x):
        self.count += 1
        return torch.sin(x) * self.count


def test_reset_and_explain():
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    text = str(torch.explain(compiled, torch.ones(3, 8)))
    assert "replay: 1 graphs for arguments of 1 kinds" in text
    torch._dynamo.reset()
    assert call_of(compiled).known is None and agree(compiled, model) > 0


def test_reduced_overhead_on_the_cpu():
    model = blocks()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(8):
        x = torch.randn(3, 8)
        assert torch.equal(model(x), compiled(x))
    assert str(compiled._captured) == "replay: 1 graphs for arguments of 1 kinds"


def test_threads():
    model, wrong = blocks(), []
    compiled = torch.compile(model)

    def run():
        for i in range(150):
            x = torch.randn(3 + i % 3, 8)
            if not torch.equal(model(x), compiled(x)):
                wrong.append(i)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_nested_and_whole():
    inner = torch.compile(blocks())

    def plain(x):
        return inner(x) + inner(x * 2)

    compiled = torch.compile(plain, fullgraph=True)
    assert agree(compiled, plain) > 0


def test_the_environment():
    code = "import mica as torch; c = torch.compile(torch.nn.Sequential(*[torch.nn.ReLU()] * 9)); x = torch.ones(3)\n"
    code += "for _ in range(99): c(x)\nprint(c.forward.known is None)"
    for value, answer in (("0", "True"), ("1", "False")):
        environment = {**os.environ, "MICA_COMPILER_REPLAY": value}
        result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert result.stdout.strip() == answer, result.stderr


# ---- what C is given


def test_malformed_lists():
    x, name = torch.ones(2), torch.Tensor.add
    form = _C._tensor_form(torch.ones(2))
    step = (name, ((1, 0), (0, 1)), None, (1, 1, form), (), False)
    steps = _C._CallList((1, 2, (step,), (1, 1)), True)
    assert torch.equal(steps.run([x]), x + 1) and steps.run([torch.ones(3)]) is NotImplemented
    for bad in (
        (), (1,), (3, 2, (step,), (1, 1)), (1, 2, (step,), (1, 2)), (1, 2, (step[:3],), (1, 1)), (1, 2, [step], (1, 1)),
        (1, 2, ((name, ((9, 0),), None, (0,), (), False),), (1, 1)), (1, 2, (step,), (4, ((1, 1),), ())),
        (1, 2, ((name, ((1, 0),), ("a", "b"), (0,), (), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), (3,), (0,), (), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), None, (0,), (7,), False),), (1, 1)),
        (1, 2, ((name, ((1, 0),), None, (1, 1, "form"), (), False),), (1, 1)),
        (-1, 2, (), (1, 1)), ("a", 2, (), (1, 1)), (1, 2, (step,), 5),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="malformed"):
            _C._CallList(bad, True)
    for bad in ([], [x, x], [1], (x,)):
        with pytest.raises(TypeError):
            steps.run(bad)
    failing = _C._CallList((1, 2, ((name, ((1, 0), (0, "text")), None, (0,), (), False),), (1, 0)), False)
    with pytest.raises(TypeError):
        failing.run([x])
    assert (
        _C._CallList((1, 2, ((name, ((1, 0), (0, "a")), None, (0,), (), False),), (1, 0)), True).run([x])
        is NotImplemented
    )
    unset = _C._CallList((1, 2, (), (1, 1)), True)
    with pytest.raises(RuntimeError, match="a slot that no call has filled"):
        unset.run([x])


def test_malformed_known_calls():
    steps, snapshot = _C._CallList((1, 1, (), (1, 0)), True), _C._Snapshot(())
    form = (torch.Tensor, _C._tensor_form(torch.ones(2)))
    assert _C._KnownCall((form,), (), snapshot, steps, ()).count == 0
    for bad in (
        ((1,), (), snapshot, steps), ((form,), ("a", "b"), snapshot, steps), ((form,), (), 1, steps),
        (((int, b""),), (), snapshot, steps), ((form, form), (), snapshot, steps), (((1, 2, 3),), (), snapshot, steps),
        ((form,), (), snapshot, 1), ([form], (), snapshot, steps),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            _C._KnownCall(*bad, ())
    with pytest.raises(TypeError):
        _C._KnownCall((form,), (), snapshot, steps, [])
    call = _C._CompiledCall(torch.sin)
    for bad in (1, (1,), [1]):
        with pytest.raises(TypeError, match="a tuple of known calls"):
            call.known = bad
    for bad in ((1, 2), (print, print, [], {}), (print, print, (), ())):
        with pytest.raises(TypeError, match="_call_recorded_by"):
            _C._call_recorded_by(*bad)
