"""Compiled functions on the CPU whose calls C makes again: objects and classes that keep state in unusual places."""

import collections
import functools
import logging
import math
import threading
import types
import weakref

import mica as torch
import pytest
from calls_made_again import agree

pytestmark = pytest.mark.usefixtures("replays_begin_early")


class Kept:
    factor = 2.0


# Each makes a function that gives a factor, and a function that changes what it gives.


def attribute_of_a_number():
    number = type("Number", (int,), {})(1)
    number.factor = 2.0
    return lambda: number.factor, lambda: setattr(number, "factor", 3.0)


def attribute_of_a_text():
    text = type("Text", (str,), {})("a")
    text.factors = [2.0]
    return lambda: text.factors[0], lambda: text.factors.__setitem__(0, 3.0)


def class_of_a_number():
    class Number(float):
        factor = 2.0

    number = Number(1.0)
    return lambda: number.factor, lambda: setattr(Number, "factor", 3.0)


def attribute_of_a_metaclass():
    class Meta(type):
        factor = 2.0

    class Made(metaclass=Meta):
        pass

    return lambda: Made.factor, lambda: setattr(Meta, "factor", 3.0)


def length_of_a_class():
    class Meta(type):
        def __len__(cls):
            return 2

    class Made(metaclass=Meta):
        pass

    return lambda: float(len(Made)), lambda: setattr(Meta, "__len__", lambda cls: 3)


def instance_check_of_a_metaclass():
    class Meta(type):
        def __instancecheck__(cls, instance):
            return True

    class Made(metaclass=Meta):
        pass

    return lambda: 2.0 if isinstance(1, Made) else 3.0, lambda: setattr(Meta, "__instancecheck__", lambda cls, one: 0)


def subclasses_of_a_class():
    class Base:
        pass

    made = []
    return lambda: 2.0 + len(Base.__subclasses__()), lambda: made.append(type("Made", (Base,), {}))


def what_a_dict_makes():
    made = collections.defaultdict(lambda: 2.0)

    def ask():
        made.pop("factor", None)
        return made["factor"], made.pop("factor")

    return lambda: ask()[0], lambda: setattr(made, "default_factory", lambda: 3.0)


def class_of_an_object_beside_a_weak_reference():
    class Changed:
        factor = 3.0

    kept, other = Kept(), Kept()
    reference = weakref.ref(other)

    def ask(keep=other):
        return kept.factor * (reference() is not None)

    return ask, lambda: setattr(kept, "__class__", Changed)


def class_of_an_object_behind_a_weak_reference():
    class Changed:
        factor = 3.0

    kept = Kept()
    reference = weakref.ref(kept)
    return lambda: reference().factor, lambda: setattr(kept, "__class__", Changed)


def dict_of_an_object():
    kept = Kept()
    kept.factor = 2.0
    return lambda: kept.factor, lambda: setattr(kept, "__dict__", {"factor": 3.0})


def dict_of_a_module():
    first, second = torch.nn.Linear(1, 2), torch.nn.Linear(1, 3)
    return lambda: float(first.out_features), lambda: setattr(first, "__dict__", vars(second))


def weak_proxy():
    kept = [Kept()]
    proxy = weakref.proxy(kept[0])

    def ask():
        try:
            return proxy.factor
        except ReferenceError:
            return 3.0

    return ask, kept.clear


def finalizer():
    kept = [Kept()]
    finalizer = weakref.finalize(kept[0], len, ())
    return lambda: 2.0 if finalizer.alive else 3.0, kept.clear


def value_of_a_weak_dict():
    kept, values = Kept(), weakref.WeakValueDictionary()
    values["kept"] = kept
    return lambda: values["kept"].factor, lambda: setattr(kept, "factor", 3.0)


def attribute_of_a_weak_reference():
    kept = Kept()
    reference = type("Reference", (weakref.ref,), {})(kept)
    reference.factor = 2.0

    def ask(keep=kept):
        return reference.factor

    return ask, lambda: setattr(reference, "factor", 3.0)


def handler_of_logs():
    handler = logging.NullHandler()
    handler.factor = 2.0
    return lambda: handler.factor, lambda: setattr(handler, "factor", 3.0)


def object_in_a_slice():
    class Index:
        number = 1

        def __index__(self):
            return self.number

    index, factors = Index(), [1.0, 1.0, 1.0]
    piece = slice(0, index)
    return lambda: 1.0 + sum(factors[piece]), lambda: setattr(index, "number", 2)


def lock_that_is_held():
    lock = threading.Lock()
    return lambda: 3.0 if lock.locked() else 2.0, lock.acquire


def lock_that_is_tried():
    lock = threading.Lock()

    def ask():
        if not lock.acquire(blocking=False):
            return 3.0
        lock.release()
        return 2.0

    return ask, lock.acquire


def name_that_a_module_answers_for():
    module = types.ModuleType("factors_of_a_program")
    exec("def __getattr__(name):\n    return 2.0", vars(module))
    return lambda: module.factor, lambda: setattr(module, "factor", 3.0)


def name_that_a_module_has_later():
    module = types.ModuleType("factors_of_a_program")
    names = {"module": module}
    exec("def ask():\n    try:\n        return module.factor\n    except AttributeError:\n        return 2.0", names)
    return names["ask"], lambda: setattr(module, "factor", 3.0)


def numbers_in_a_set():
    numbers = {2}

    def change():
        numbers.clear()
        numbers.add(2.0)

    return lambda: 2.0 if type(next(iter(numbers))) is int else 3.0, change


def order_of_a_set():
    numbers = {1, 9}  # both want the same place
    first = next(iter(numbers))

    def change():
        numbers.clear()
        numbers.update((9, 1) if first == 1 else (1, 9))

    return lambda: float(next(iter(numbers)) + 2), change


def attribute_of_a_tensor():
    tensor = torch.ones(3)
    return lambda: 3.0 if hasattr(tensor, "factor") else 2.0, lambda: setattr(tensor, "factor", 3.0)


def variable_of_a_function_that_does_not_run():
    factor = 2.0

    def change():
        nonlocal factor
        factor = 3.0

    def uncalled():
        return factor

    return lambda: uncalled.__closure__[0].cell_contents, change


STATES = (
    attribute_of_a_number, attribute_of_a_text, class_of_a_number, attribute_of_a_metaclass, length_of_a_class,
    instance_check_of_a_metaclass, subclasses_of_a_class, what_a_dict_makes, class_of_an_object_beside_a_weak_reference,
    class_of_an_object_behind_a_weak_reference, dict_of_an_object, dict_of_a_module, weak_proxy, finalizer, value_of_a_weak_dict, attribute_of_a_weak_reference,
    handler_of_logs, object_in_a_slice, lock_that_is_held, lock_that_is_tried, name_that_a_module_answers_for,
    name_that_a_module_has_later, numbers_in_a_set, order_of_a_set, attribute_of_a_tensor,
    variable_of_a_function_that_does_not_run,
)  # fmt: skip


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_what_objects_keep(make):
    ask, change = make()

    def plain(x):
        return torch.sin(x) * ask()

    compiled = torch.compile(plain)
    x = torch.randn(3, 8)
    agree(compiled, plain, 9, x.clone)
    before = ask()
    change()
    assert ask() != before
    agree(compiled, plain, 9, x.clone)


def test_these_kinds_of_objects_do_not_end_replays():
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        factor = 2.0

    made, number = collections.defaultdict(lambda: 2.0, factor=2.0), type("Number", (int,), {})(2)
    kept, lock = Kept(), threading.Lock()
    values = weakref.WeakValueDictionary(kept=kept)

    def plain(x):
        with lock:
            return torch.sin(x) * Made.factor * made["factor"] * number * values["kept"].factor * math.pi

    assert agree(torch.compile(plain), plain, 9) > 0


def test_the_class_of_an_object_among_the_arguments():
    class Other:
        factor = 3.0

    compiled, kept, x = torch.compile(lambda x, kept: x * kept.factor, mode="reduce-overhead"), Kept(), torch.ones(3)
    for _ in range(8):
        assert compiled(x, kept)[0] == 2
    kept.__class__ = Other
    for _ in range(8):
        assert compiled(x, kept)[0] == 3


# Functions that may tell their arguments from other tensors of the same form.


def address(first):
    known = {id(first): 3.0}
    return lambda x: torch.sin(x) * known.get(id(x), 2.0)


def hash_of_it(first):
    known = {hash(first): 3.0}
    return lambda x: torch.sin(x) * known.get(hash(x), 2.0)


def cache(first):
    return functools.lru_cache(maxsize=4)(lambda x: torch.sin(x) * 2 + x)


def endless_cache(first):
    cached = functools.lru_cache(maxsize=None)(lambda x, factor=1: torch.sin(x) * factor)
    return lambda x: cached(x, factor=2) + x


def weak_dict(first):
    known = weakref.WeakValueDictionary(first=first)
    return lambda x: torch.sin(x) * (3.0 if known["first"] is x else 2.0)


def dict_of_tensors(first):
    known = torch.utils.weak.WeakTensorKeyDictionary()
    known[first] = 3.0
    return lambda x: torch.sin(x) * known.get(x, 2.0)


@pytest.mark.parametrize("make", (address, hash_of_it, cache, endless_cache, weak_dict, dict_of_tensors))
@pytest.mark.parametrize("known_first", (True, False))
def test_functions_that_know_a_tensor(make, known_first):
    first, others = torch.ones(3, 8), [torch.full((3, 8), float(i)) for i in range(3)]
    plain = make(first)
    compiled = torch.compile(make(first))
    for x in ([first] * 9 + others * 3) if known_first else (others * 3 + [first] * 9):
        assert torch.equal(compiled(x), plain(x))


def test_an_address_that_is_kept():
    class Last:
        address = 0

    def plain(x):
        Last.address = id(x)
        return torch.sin(x)

    compiled, x, other = torch.compile(plain), torch.ones(3), torch.ones(3)
    for each in [x] * 9 + [other]:
        compiled(each)
        assert Last.address == id(each)
