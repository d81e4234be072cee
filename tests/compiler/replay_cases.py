"""Functions that are replayed, or must not be: what each has to do, on any device and with any kind of graphs.

Every case is called with `made`, which makes a replayed function of a function, and a device. It compares with the
function itself, which keeps its results apart from those of the replayed one.
"""

import collections
import dataclasses
import random
import sys
import threading
import time

import mica as torch

CALLS = 9
scale = 2.0  # a global that cases change


def replays(function):
    return sum(len(kind.graphs) for kind in function._kinds.values())


def reasons(function):
    return " ".join(function.reasons)


def agree(replayed, function, device, *others, calls=CALLS):
    for i in range(calls):
        x = torch.arange(6.0, device=device).reshape(2, 3) + i
        want, got = function(x, *others), replayed(x, *others)
        assert torch.equal(want, got), (i, want, got)


def model(device):
    torch.manual_seed(1)
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(device).eval()
    return made.requires_grad_(False)


def case_model(made, device):
    plain = model(device)
    function = made(plain)
    agree(function, plain, device)
    assert replays(function) == 1, reasons(function)


def case_results_are_their_own(made, device):
    function = made(lambda x: x * 2)
    results = [function(torch.full((3,), float(i), device=device)) for i in range(CALLS)]
    assert replays(function) == 1, reasons(function)
    assert [r[0].item() for r in results] == [2.0 * i for i in range(CALLS)]


def case_weights_change_in_place(made, device):
    plain = model(device)
    function = made(plain)
    for i in range(4):
        agree(function, plain, device, calls=6)
        plain[0].weight.mul_(1.0 + i)


def case_a_weight_is_replaced(made, device):
    plain = model(device)
    function = made(plain)
    agree(function, plain, device)
    plain[0].weight = torch.nn.Parameter(torch.ones(4, 3, device=device), requires_grad=False)
    agree(function, plain, device)
    plain[2].bias.data = torch.full((2,), 7.0, device=device)
    agree(function, plain, device)
    plain[1] = torch.nn.Tanh()
    agree(function, plain, device)
    assert replays(function) >= 2, reasons(function)


class Scaled(torch.nn.Module):
    shift = 1.0

    def __init__(self):
        super().__init__()
        self.factor, self.sizes, self.table, self.names = 3.0, [1.0, 2.0], {"a": {"b": 1.0}}, {"x"}

    def forward(self, x):
        more = 5.0 if "y" in self.names else 0.0
        return x * self.factor + sum(self.sizes) + self.table["a"]["b"] + self.shift + more


def case_attributes_change(made, device):
    plain = Scaled()
    function = made(plain)

    def change(what):
        agree(function, plain, device)
        what()
        agree(function, plain, device)

    change(lambda: setattr(plain, "factor", 4.0))
    change(lambda: plain.sizes.append(9.0))
    change(lambda: plain.table["a"].update(b=6.0))
    change(lambda: plain.names.add("y"))
    change(lambda: setattr(Scaled, "shift", 2.5))
    Scaled.shift = 1.0
    assert replays(function) >= 5, reasons(function)


def case_dicts_change_in_every_way(made, device):
    class Holder:
        pass

    holder, table = Holder(), {}

    def plain(x):
        for name in ("a", "b", "c"):
            x = x * 2 + table.get(name, 0.0)
        return x + holder.factor

    def store(_):
        for i in range(40):  # long enough for the interpreter to make its store a fast one
            holder.factor = 7.0 + i

    for change in (
        lambda t: t.__setitem__("a", 2.0), lambda t: t.update(b=3.0), lambda t: t.update({"c": 4.0}), lambda t: t.pop("a"),
        lambda t: t.popitem(), lambda t: t.setdefault("c", 5.0), lambda t: t.__delitem__("b"), lambda t: t.clear(),
        lambda t: t.__ior__({"a": 9.0}), store, lambda _: setattr(holder, "factor", 2.0),
        lambda _: vars(holder).update(factor=3.0), lambda _: object.__setattr__(holder, "factor", 4.0),
    ):  # fmt: skip
        table.clear()
        table.update(a=1.0, b=1.0)
        holder.factor = 1.0
        function = made(plain)
        agree(function, plain, device)
        assert replays(function) == 1, reasons(function)
        change(table)
        agree(function, plain, device)
        table["a"] = table.get("a")  # the same value: a change of the dict alone
        if table["a"] is None:
            del table["a"]
        agree(function, plain, device)
        assert replays(function) == 2, reasons(function)


def case_comprehensions_with_variables(made, device):
    scale = 2.0

    def plain(x):
        return (
            sum(x * scale * i for i in range(3))
            + sum([x + scale for _ in range(2)])
            + len({k: scale + i for i, k in enumerate("ab")})
        )

    function = made(plain)
    agree(function, plain, device)
    assert replays(function) == 1, reasons(function)
    scale = 5.0
    agree(function, plain, device)
    assert replays(function) == 2, reasons(function)


def case_equal_numbers_are_the_same(made, device):
    plain = Scaled()
    function = made(plain)
    for _ in range(CALLS):
        plain.factor = float(str(3.0))
        agree(function, plain, device, calls=1)
    assert replays(function) == 1, reasons(function)


def case_variables_change(made, device):
    global scale
    factor = 1.0

    def plain(x, table={"bias": 0.5}):  # noqa: B006 - the default is changed below
        return x * factor * scale + table["bias"]

    function = made(plain)
    agree(function, plain, device)
    factor = 3.0
    agree(function, plain, device)
    scale = 5.0
    agree(function, plain, device)
    plain.__defaults__[0]["bias"] = 1.5
    agree(function, plain, device)
    scale = 2.0
    assert replays(function) == 4, reasons(function)


def case_defaults_are_replaced(made, device):
    def inner(x, factor=2.0, *, bias=0.5):
        return x * factor + bias

    def plain(x):
        return inner(x)

    function = made(plain)
    agree(function, plain, device)
    inner.__defaults__ = (3.0,)
    agree(function, plain, device)
    inner.__kwdefaults__ = {"bias": 1.5}
    agree(function, plain, device)
    inner.__kwdefaults__["bias"] = 2.5
    agree(function, plain, device)
    inner.__code__ = (lambda x, factor, *, bias: x - factor * bias).__code__
    agree(function, plain, device)
    assert replays(function) == 5, reasons(function)


def helper(x):
    return x + 1


def case_a_function_is_replaced(made, device):
    def plain(x):
        return helper(x) * 2

    function = made(plain)
    agree(function, plain, device)
    here, before = sys.modules[__name__], helper
    here.helper = lambda x: x - 1
    try:
        agree(function, plain, device)
    finally:
        here.helper = before


def case_hooks_are_called(made, device):
    plain, seen = model(device), []
    function = made(plain)
    agree(function, plain, device)
    plain[1].register_forward_hook(lambda module, args, out: seen.append(1))
    function(torch.ones(2, 3, device=device))
    assert seen == [1]


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x * self.calls


def case_it_counts(made, device):
    function, plain = made(Counting()), Counting()
    agree(function, plain, device)
    assert function.function.calls == CALLS and replays(function) == 0
    assert "'calls'" in reasons(function)


def case_it_fills_a_list(made, device):
    kept = []

    def plain(x):
        kept.append(x)
        return x + 1

    function = made(plain)
    agree(function, plain, device)
    assert len(kept) == 2 * CALLS and replays(function) == 0


def case_it_asks_elsewhere(made, device):
    def timed(x):
        return x * (time.time() > 0)

    def drawn(x):
        return x * (random.random() >= 0)

    def printed(x):
        print(end="")
        return x * 2

    for plain, name in ((timed, "time"), (drawn, "random"), (printed, "print")):
        function = made(plain)
        agree(function, plain, device)
        assert replays(function) == 0
        assert name in reasons(function)


def case_random_numbers_of_the_cpu(made, device):
    function = made(lambda x: x + torch.rand(1).item())
    torch.manual_seed(3)
    got = [function(torch.zeros(2, device=device)) for _ in range(CALLS)]
    torch.manual_seed(3)
    want = [torch.rand(1).item() for _ in range(CALLS)]
    assert all(torch.equal(g, torch.full((2,), w, device=device)) for g, w in zip(got, want, strict=True))
    assert replays(function) == 0


def case_an_argument_is_changed(made, device):
    def plain(x, memory):
        memory.add_(x)
        return memory * 2

    function = made(plain)
    memory, other = torch.zeros(2, 3, device=device), torch.zeros(2, 3, device=device)
    for i in range(CALLS):
        x = torch.full((2, 3), float(i), device=device)
        version = memory._version
        assert torch.equal(function(x, memory), plain(x, other))
        assert torch.equal(memory, other)
        assert memory._version > version
    assert replays(function) == 1, reasons(function)
    x, memory = torch.ones(2, 3, device=device), torch.ones(2, 3, device=device)  # other memory
    assert torch.equal(function(x, memory), plain(x, torch.ones(2, 3, device=device)))
    assert torch.equal(memory, x * 2)


def case_an_argument_is_a_part_of_what_changes(made, device):
    def plain(x, memory):
        memory.add_(1)
        return x * 2

    function, memory, other = made(plain), torch.zeros(6, device=device), torch.zeros(6, device=device)
    for i in range(CALLS):
        x = torch.full((2,), float(i), device=device)
        assert torch.equal(function(x, memory), plain(x, other))
    assert replays(function) == 1, reasons(function)
    for _ in range(CALLS):
        assert torch.equal(function(memory[1:3], memory), plain(other[1:3], other))
        assert torch.equal(memory, other)


def case_arguments_come_back(made, device):
    function = made(lambda x, y: (x, y + 1))
    for _ in range(CALLS):
        x, y = torch.ones(2, device=device), torch.ones(2, device=device)
        first, second = function(x, y)
        assert first is x
        assert torch.equal(second, y + 1)
    assert replays(function) == 1, reasons(function)
    function = made(lambda x: x.view(-1))
    for _ in range(CALLS):
        x = torch.ones(2, 3, device=device)
        function(x).add_(1)
        assert torch.equal(x, torch.full((2, 3), 2.0, device=device))


def case_the_same_argument_twice(made, device):
    def plain(x, y):
        return x.mul(2).add(y)

    function = made(plain)
    for i in range(CALLS):
        x = torch.full((3,), float(i), device=device)
        assert torch.equal(function(x, x), x * 3)
        assert torch.equal(function(x, x + 1), x * 3 + 1)
    wide = torch.arange(6.0, device=device)
    assert torch.equal(function(wide[:3], wide[1:4]), plain(wide[:3], wide[1:4]))


Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Answer:
    value: torch.Tensor
    notes: dict


class Outputs(collections.OrderedDict):
    pass


def case_kinds_of_results(made, device):
    marker = object()

    def plain(x):
        y = x + 1
        return {"pair": Pair(y, [x * 2, None]), "answer": Answer(x - 1, {"n": 3}), "marker": marker}, Outputs(a=y * 3)

    function = made(plain)
    for i in range(CALLS):
        x = torch.full((2,), float(i), device=device)
        (found, outputs), _ = function(x), None
        assert type(found["pair"]) is Pair
        assert torch.equal(found["pair"].first, x + 1)
        assert torch.equal(found["pair"].second[0], x * 2)
        assert found["pair"].second[1] is None
        assert type(found["answer"]) is Answer
        assert torch.equal(found["answer"].value, x - 1)
        assert found["answer"].notes == {"n": 3}
        assert found["marker"] is marker
        assert type(outputs) is Outputs
        assert torch.equal(outputs["a"], (x + 1) * 3)
    assert replays(function) == 1, reasons(function)


def case_functions_that_wait_for_each_other(made, device):
    """Nothing of ours is locked while a function runs: one may wait for another thread that calls a replayed one."""
    other = made(lambda x: x * 3)

    def plain(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(other(x)))
        thread.start()
        thread.join(60)
        return found[0] + 1

    function = made(plain)
    for i in range(CALLS):
        x = torch.full((2,), float(i), device=device)
        assert torch.equal(function(x), x * 3 + 1)
    assert replays(function) == 0


def case_gradients(made, device):
    plain = model(device).requires_grad_(True)
    function = made(plain)
    for i in range(CALLS):
        x = torch.full((2, 3), float(i), device=device)
        plain.zero_grad()
        function(x).sum().backward()
        assert plain[0].weight.grad is not None
    assert replays(function) == 0
    assert "requires grad" in reasons(function)
    with torch.no_grad():
        agree(function, plain, device)
    assert replays(function) == 1, reasons(function)


def case_shapes_and_constants(made, device):
    def plain(x, factor):
        return x.sum(0) * factor

    function = made(plain)
    for _ in range(6):
        for shape in ((2, 3), (4, 3)):
            for factor in (1, 2.5, 1.0):
                x = torch.ones(shape, device=device)
                got, want = function(x, factor), plain(x, factor)
                assert torch.equal(got, want)
                assert got.dtype == want.dtype
    assert replays(function) == 6, reasons(function)


def case_settings(made, device):
    def plain(x):
        return torch.mm(x, x.T), torch.is_grad_enabled()

    function = made(plain)
    x = torch.rand(4, 4, device=device)
    for _ in range(6):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                assert function(x)[1] is grad
        with torch.autocast(device, dtype=torch.bfloat16):
            assert function(x)[0].dtype == torch.bfloat16
        assert function(x)[0].dtype == torch.float32


def case_modes_see_every_call(made, device):
    function, seen = made(lambda x: x.sin()), []
    agree(function, torch.sin, device)

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, 3, device=device)
    with Watching():
        function(x)
    assert seen == ["aten.sin.default"]


def case_threads(made, device):
    plain = model(device)
    function, wrong = made(plain), []

    def run(start):
        for i in range(30):
            x = torch.full((2, 3), float(start + i), device=device)
            if not torch.equal(function(x), plain(x)):
                wrong.append((start, i))

    threads = [threading.Thread(target=run, args=(100 * n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert replays(function) >= 1, reasons(function)


CASES = {name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")}
