"""Functions that are replayed with objects among their arguments: what each has to do, as in replay_cases.py."""

import collections
import gc
import weakref

import mica as torch
import replay_cases
from replay_cases import CALLS, agree, model, reasons, replays

scale = 2.0  # a global that a case changes


class Owner:
    def __init__(self, factor):
        self.factor = factor


def case_objects_behind_weak_references(made, device):
    owner = Owner(2.0)
    reference = weakref.ref(owner)

    def plain(x):
        found = reference()
        return x * (found.factor if found is not None else -1.0)

    function = made(plain)
    agree(function, plain, device)
    assert replays(function) == 1, reasons(function)
    owner.factor = 3.0
    agree(function, plain, device)
    assert replays(function) == 2, reasons(function)
    del owner
    gc.collect()
    assert reference() is None and replays(function) == 0
    agree(function, plain, device)
    assert replays(function) == 1, reasons(function)


class Node:
    """It refers to itself by its part."""

    def __init__(self, factor):
        self.factor, self.part = factor, Owner(factor)
        self.part.parent, self.parts = self, [self]


def case_arguments_that_refer_to_themselves_are_let_go(made, device):
    def plain(x, node):
        return x * node.factor + node.part.factor

    function, seen = made(plain), []
    for i in range(9):
        node = Node(float(i))
        seen.append(weakref.ref(node))
        agree(function, plain, device, node)
        assert any(kind.graphs for kind in function._kinds.values()), reasons(function)
        del node
    gc.collect()
    assert sum(each() is not None for each in seen) <= 4
    nodes = [Node(float(i)) for i in range(3)]  # a few are used by turns
    for _ in range(CALLS):
        for node in nodes:
            agree(function, plain, device, node, calls=1)
    assert replays(function) >= 3, reasons(function)


class Held:
    """An object among the arguments, as a cache of keys is."""

    def __init__(self, factor, device):
        self.factor, self.kept = factor, torch.ones(2, 3, device=device)


def case_objects_come_one_after_the_other(made, device):
    """What the function reads without them is looked at once, and again where it has changed."""
    global scale
    layer = model(device)

    def plain(x, held):
        return layer(x).sum() * scale * held.factor + held.kept.sum()

    def compare(function, factor):
        ours, theirs = Held(factor, device), Held(factor, device)
        for i in range(5):
            x = torch.arange(6.0, device=device).reshape(2, 3) + i
            assert torch.equal(plain(x, theirs), function(x, ours)), (factor, i)
        return ours

    function = made(plain)
    held = [compare(function, 1.0), compare(function, 1.0)]
    base = function._base
    held.append(compare(function, 3.0))
    assert base is not None and function._base is base and replays(function) == 3, reasons(function)
    before = scale
    try:
        scale = before + 1
        held.append(compare(function, 3.0))
        assert function._base is not base
    finally:
        scale = before
    layer[0] = torch.nn.Linear(3, 4).to(device).requires_grad_(False)
    held.append(compare(function, 2.0))


class Number(int):
    """A number with attributes."""


class Keys:
    """A cache that a function changes in place, where memory of a GPU is meant; the CPU's is only read."""

    def __init__(self, device, factor=2.0, size=3, made=True):
        self.factor, self.names, self.parts = factor, {"a", "b"}, [Owner(1), Owner("x")]
        self.keys = torch.zeros(2, size, device=device) if made else None
        self.changes = device != "cpu"

    def update(self, x):
        if self.keys is None:
            self.keys = torch.ones(2, 3, device=x.device)
        return self.keys.add_(x) if self.changes else self.keys + x


def captured_in_first_call(function, plain, device, made_keys, calls=6):
    """Whether the first call with a new object was captured. All calls are compared with those of a like object."""
    ours, theirs, graphs = made_keys(), made_keys(), replays(function)
    for i in range(calls):
        x = torch.arange(6.0, device=device).reshape(2, 3) + i
        assert torch.equal(plain(x, theirs), function(x, ours)), i
        assert theirs.keys is ours.keys or torch.equal(theirs.keys, ours.keys), i
        if i == 0:
            first = replays(function) > graphs
    assert any(kind.graphs for kind in function._kinds.values()), reasons(function)
    function.alive.append(ours)
    return first


def case_objects_like_those_of_a_captured_call(made, device):
    def plain(x, cache):
        return cache.update(x) * cache.factor + len(cache.parts)

    def first(**given):
        return captured_in_first_call(function, plain, device, lambda: Keys(device, **given))

    function = made(plain)
    function.alive = []
    assert not first()
    assert first()
    assert first() and len(function._proven) == 1
    assert not first(factor=3.0)
    assert first(factor=3.0)
    assert not first(factor=0.0)
    assert not first(factor=-0.0)
    assert first(factor=-0.0)
    assert not first(factor=True)
    assert not first(made=False)  # its first call makes the keys
    assert not first()  # the proof is of other keys now
    assert first()

    seen = weakref.ref(function.alive.pop())
    function.alive.clear()
    function._kinds.clear()
    gc.collect()
    assert seen() is None  # what is proven keeps no arguments alive
    assert first()

    update = Keys.update
    try:
        Keys.update = lambda self, x: update(self, x) - 1
        assert not first()
    finally:
        Keys.update = update
    assert not first()


def case_objects_that_are_built_in_another_way(made, device):
    """Each differs in one thing from the one that was captured."""

    def plain(x, cache):
        extra = getattr(cache, "extra", None)
        return cache.update(x) * cache.factor + (0 if extra is None else extra[0] * 2 + extra[1])

    def keys(change=None):
        made_keys = Keys(device)
        made_keys.extra = [torch.ones(3, device=device), torch.ones(3, device=device)]
        if change:
            change(made_keys)
        return made_keys

    def alias(cache):
        cache.extra[1] = cache.extra[0]

    def views(cache):
        both = torch.ones(6, device=device)
        cache.extra = [both[:3], both[3:]]

    changes = [
        alias, views,
        lambda cache: cache.names.add("c"),
        lambda cache: setattr(cache, "other", 1),
        lambda cache: setattr(cache.parts[0], "factor", 1.0),
        lambda cache: setattr(cache, "extra", tuple(cache.extra)),
        lambda cache: setattr(cache, "__class__", type("Other", (Keys,), {})),
        lambda cache: setattr(cache.extra[0], "mark", 1),
        lambda cache: cache.extra.__setitem__(0, torch.ones(3, dtype=torch.float64, device=device)),
        lambda cache: cache.extra.__setitem__(0, torch.ones(6, device=device)[::2]),
        lambda cache: setattr(cache, "update", lambda x: cache.keys + x),  # a closure
        lambda cache: setattr(cache, "self", cache),
        lambda cache: setattr(cache, "bound", cache.parts.append),
        lambda cache: setattr(cache, "number", Number(1)),
        lambda cache: setattr(cache, "table", collections.defaultdict(int)),
    ]  # fmt: skip
    for kept in (Number(1), collections.defaultdict(int), {}.get):  # it cannot be said how they are built
        function, made_keys = made(plain), lambda kept=kept: keys(lambda cache: setattr(cache, "kept", kept))
        function.alive = []
        captured_in_first_call(function, plain, device, made_keys)
        assert not captured_in_first_call(function, plain, device, made_keys) and not function._proven
    for change in changes:
        function = made(plain)
        function.alive = []
        captured_in_first_call(function, plain, device, keys)
        assert captured_in_first_call(function, plain, device, keys)
        assert not captured_in_first_call(function, plain, device, lambda change=change: keys(change))


_own = {name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")}
CASES = replay_cases.CASES | _own
