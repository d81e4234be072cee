"""Functions that are replayed with objects among their arguments: what each has to do, as in replay_cases.py."""

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


_own = {name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")}
CASES = replay_cases.CASES | _own
