"""Compiled functions on the CPU whose calls C makes again: state of Python's that a function reads where it is hard to see."""

import abc
import builtins
import collections
import decimal
import enum
import functools
import importlib
import sys
import threading
import types

import mica as torch
import pytest
from calls_made_again import agree

pytestmark = pytest.mark.usefixtures("replays_begin_early")
hidden = {"factor": 2.0}  # a global that functions ask for by a name which they make


class Kept:
    factor = 2.0


def made_module(monkeypatch, name, **entries):
    module = types.ModuleType(name)
    vars(module).update(entries)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# Each makes, with pytest's monkeypatch, a function that gives a factor, and a function that changes what it gives.


def attribute_of_a_function(patch):
    def marked():
        raise AssertionError

    marked.factor = 2.0
    return lambda: marked.factor, lambda: setattr(marked, "factor", 3.0)


def attribute_that_comes_later(patch):
    def marked():
        raise AssertionError

    return lambda: getattr(marked, "factor", 2.0), lambda: setattr(marked, "factor", 3.0)


def list_in_an_attribute_of_a_function(patch):
    class Holder:
        @staticmethod
        def marked():
            raise AssertionError

    Holder.marked.factors = [2.0]
    return lambda: Holder.marked.factors[0], lambda: Holder.marked.factors.__setitem__(0, 3.0)


def cache_that_is_cleared(patch):
    factors = [2.0]

    @functools.lru_cache
    def cached():
        return factors[0]

    def change():
        factors[0] = 3.0
        cached.cache_clear()

    return cached, change


def cache_that_has_forgotten(patch):
    factors = [2.0]

    @functools.lru_cache(maxsize=1)
    def cached(number):
        return factors[0] + number

    def change():
        factors[0] = 3.0
        cached(1)

    return lambda: cached(0), change


def answers_of_a_cache_that_change_places(patch):
    first = [True]

    @functools.lru_cache
    def cached(name):
        return (name == "first") == first[0]

    def change():
        first[0] = False
        cached.cache_clear()
        cached("first"), cached("second")

    cached("first"), cached("second")
    return lambda: 2.0 if cached("first") else 3.0, change


def list_in_a_cache(patch):
    @functools.lru_cache
    def cached():
        return [2.0]

    return lambda: cached()[0], lambda: cached().__setitem__(0, 3.0)


def order_of_a_dict(patch):
    ordered = collections.OrderedDict(first=2.0, second=3.0)
    return lambda: next(iter(ordered.values())), lambda: ordered.move_to_end("first")


def dict_behind_a_proxy(patch):
    entries = {"factor": 2.0}
    proxy = types.MappingProxyType(entries)
    return lambda: proxy["factor"], lambda: entries.update(factor=3.0)


def object_in_a_set(patch):
    kept = Kept()
    objects = {kept}
    return lambda: sum(each.factor for each in objects), lambda: setattr(kept, "factor", 3.0)


def object_in_a_frozen_set(patch):
    kept = Kept()
    objects = frozenset({kept})
    return lambda: sum(each.factor for each in objects), lambda: setattr(kept, "factor", 3.0)


def object_that_is_a_key(patch):
    kept = Kept()
    entries = {kept: 1.0}
    return lambda: sum(each.factor for each in entries), lambda: setattr(kept, "factor", 3.0)


def bases_of_a_class(patch):
    class Twice:
        def factor(self):
            return 2.0

    class Thrice:
        def factor(self):
            return 3.0

    class Either(Twice):
        pass

    class Last(Either):
        pass

    last = Last()
    return lambda: last.factor(), lambda: setattr(Either, "__bases__", (Thrice,))


def abstract_class(patch):
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Concrete:
        pass

    one = Concrete()
    return lambda: 3.0 if isinstance(one, Abstract) else 2.0, lambda: Abstract.register(Concrete)


def value_of_an_enumeration(patch):
    class Factors(enum.Enum):
        FIRST = [2.0]  # noqa: RUF012

    return lambda: Factors.FIRST.value[0], lambda: Factors.FIRST.value.__setitem__(0, 3.0)


def method_of_an_enumeration(patch):
    class Factors(enum.Enum):
        FIRST = 1

        def factor(self):
            return 2.0

    return lambda: Factors.FIRST.factor(), lambda: setattr(Factors, "factor", lambda self: 3.0)


def special_entry_of_a_class(patch):
    class Special:
        __factors__ = [2.0]  # noqa: RUF012

    return lambda: Special.__factors__[0], lambda: Special.__factors__.__setitem__(0, 3.0)


def exception_that_is_kept(patch):
    error = ValueError(2.0)
    return lambda: error.args[0], lambda: setattr(error, "args", (3.0,))


def keywords_of_a_partial(patch):
    class Partial(functools.partial):
        pass

    partial = Partial(lambda factors: factors[0], factors=[2.0])
    return partial, lambda: partial.keywords["factors"].__setitem__(0, 3.0)


def builtin_of_a_program(patch):
    patch.setattr(builtins, "factor_of_all", 2.0, raising=False)
    return lambda: factor_of_all, lambda: setattr(builtins, "factor_of_all", 3.0)  # noqa: F821


def global_before_a_builtin(patch):
    names = {"len": len}
    del names["len"]
    ask = eval("lambda: len((1, 2))", names)
    return ask, lambda: names.update(len=lambda items: 3)


def global_that_there_is_not(patch):
    names = {}
    exec("def ask():\n    try:\n        return factor\n    except NameError:\n        return 2.0", names)
    return names["ask"], lambda: names.update(factor=3.0)


def module_of_sys_modules(patch):
    made_module(patch, "factors_of_a_program", factor=2.0)

    def ask():
        import factors_of_a_program

        return factors_of_a_program.factor

    return ask, lambda: made_module(patch, "factors_of_a_program", factor=3.0)


def neighbour_in_a_package(patch):
    made_module(patch, "a_program", __path__=[])
    module = made_module(patch, "a_program.factors", factor=2.0)
    names = {"__name__": "a_program.main", "__package__": "a_program"}
    exec("def ask():\n    from .factors import factor\n    return factor", names)
    return names["ask"], lambda: setattr(module, "factor", 3.0)


def module_by_a_name_that_is_made(patch):
    module = made_module(patch, "factors_of_a_program", factor=2.0)
    return lambda: importlib.import_module("factors_of_" + "a_program"[:9]).factor, lambda: setattr(
        module, "factor", 3.0
    )


def attribute_of_a_module_by_a_name_that_is_made(patch):
    module, name = made_module(patch, "factors_of_a_program", factor=2.0), ["factor"]
    return lambda: getattr(module, name[0]), lambda: setattr(module, "factor", 3.0)


def global_by_a_name_that_is_made(patch):
    patch.setitem(hidden, "factor", 2.0)
    return lambda: globals()["hid" + "den"]["factor"], lambda: hidden.update(factor=3.0)


def function_of_the_library(patch):
    import math

    patch.setattr(math, "sqrt", math.sqrt)
    return lambda: math.sqrt(4.0), lambda: setattr(math, "sqrt", lambda value: 3.0)


def attribute_that_torch_has_not(patch):
    patch.setattr(torch, "factor_of_a_program", 3.0, raising=False)
    del torch.factor_of_a_program
    return lambda: getattr(torch, "factor_of_a_program", 2.0), lambda: setattr(torch, "factor_of_a_program", 3.0)


def precision_of_decimals(patch):
    decimals, context = decimal.Decimal, decimal.getcontext()
    patch.setattr(context, "prec", 28)
    return lambda: float(decimals(2) / decimals(3)), lambda: setattr(context, "prec", 2)


def limit_of_recursion(patch):
    limit = sys.getrecursionlimit()
    return lambda: sys.getrecursionlimit(), lambda: sys.setrecursionlimit(limit + 1)


def options_of_printing(patch):
    return lambda: torch._tensor_str.PRINT_OPTS.precision, lambda: torch.set_printoptions(precision=9)


def setting_of_the_compiler(patch):
    config = torch._dynamo.config
    return lambda: config.recompile_limit, lambda: setattr(config, "recompile_limit", 9)


def group_of_processes(patch):
    store = torch.distributed.HashStore()

    def change():
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    return lambda: 3.0 if torch.distributed.is_initialized() else 2.0, change


def search_for_anomalies(patch):
    return lambda: 3.0 if torch.is_anomaly_enabled() else 2.0, lambda: torch.autograd.set_detect_anomaly(True)


def dtype_of_autocast(patch):
    get, dtype = torch.get_autocast_dtype, torch.float16
    return lambda: 3.0 if get("cpu") == dtype else 2.0, lambda: torch.set_autocast_dtype("cpu", dtype)


def default_device(patch):
    return lambda: len(torch.get_default_device().type), lambda: torch.set_default_device("meta")


READS = (
    attribute_of_a_function, attribute_that_comes_later, list_in_an_attribute_of_a_function, cache_that_is_cleared,
    cache_that_has_forgotten, answers_of_a_cache_that_change_places, list_in_a_cache, order_of_a_dict, dict_behind_a_proxy, object_in_a_set,
    object_in_a_frozen_set, object_that_is_a_key, bases_of_a_class, abstract_class, value_of_an_enumeration,
    method_of_an_enumeration, special_entry_of_a_class, exception_that_is_kept, keywords_of_a_partial,
    builtin_of_a_program, global_before_a_builtin, global_that_there_is_not, module_of_sys_modules,
    neighbour_in_a_package, module_by_a_name_that_is_made, attribute_of_a_module_by_a_name_that_is_made,
    global_by_a_name_that_is_made, function_of_the_library, attribute_that_torch_has_not, precision_of_decimals,
    limit_of_recursion, options_of_printing, setting_of_the_compiler, group_of_processes, search_for_anomalies,
    dtype_of_autocast, default_device,
)  # fmt: skip


@pytest.fixture
def settings_of_the_process():
    limit = sys.getrecursionlimit()
    with torch._dynamo.config.patch(recompile_limit=8):
        yield
    sys.setrecursionlimit(limit)
    torch.set_printoptions(precision=4)
    torch.autograd.set_detect_anomaly(False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_default_device("cpu")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    vars(builtins).pop("factor_of_all", None)
    vars(torch).pop("factor_of_a_program", None)


@pytest.mark.usefixtures("settings_of_the_process")
@pytest.mark.parametrize("make", READS, ids=lambda make: make.__name__)
def test_what_functions_read(make, monkeypatch):
    ask, change = make(monkeypatch)

    def plain(x):
        return torch.sin(x) * ask()

    compiled = torch.compile(plain)
    x = torch.randn(3, 8)
    agree(compiled, plain, 9, x.clone)
    before = ask()
    change()
    assert ask() != before
    agree(compiled, plain, 9, x.clone)


def test_threads_that_are_asked_who_they_are():
    factors = {threading.get_ident(): 2.0}

    def plain(x):
        return torch.sin(x) * factors.get(threading.get_ident(), 3.0)

    compiled, failed = torch.compile(plain), []
    agree(compiled, plain, 9)

    def in_a_thread():
        try:
            agree(compiled, plain, 3)
        except AssertionError as error:
            failed.append(error)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert not failed


def test_functions_that_look_at_their_callers():
    def plain(x):
        frame = sys._getframe()
        while frame.f_code.co_name not in ("first", "another"):
            frame = frame.f_back
        return torch.sin(x) * len(frame.f_code.co_name)

    compiled = torch.compile(plain)

    def first(x):
        return compiled(x)

    def another(x):
        return compiled(x)

    x = torch.ones(3, 8)
    for _ in range(9):
        first(x)
    assert torch.equal(first(x), torch.sin(x) * len("first"))
    assert torch.equal(another(x), torch.sin(x) * len("another"))


@pytest.mark.parametrize("limit", (None, 3))
def test_a_cache_may_keep_more(limit):
    """What a functools.lru_cache keeps for others does not end replays."""

    @functools.lru_cache(maxsize=limit)
    def cached(number):
        return number + 2.0

    def plain(x):
        return torch.sin(x) * cached(0)

    compiled = torch.compile(plain)
    assert agree(compiled, plain, 9) > 0
    cached(1)
    cached(2)
    assert agree(compiled, plain, 6) == 6
    cached(0)
    assert agree(compiled, plain, 6) == 6
