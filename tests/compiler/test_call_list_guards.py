"""Compiled functions on the CPU whose calls C makes again: what else a function depends on, when it changes."""

import collections
import logging
import threading
import types
import warnings

import mica as torch
import pytest
from calls_made_again import agree, blocks, made_by_c, reasons

functional = torch.nn.functional
factor = 2.0  # a global that a test changes
pytestmark = pytest.mark.usefixtures("replays_begin_early")


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
