"""What code asks for by name: of globals, of builtins, of modules."""

import functools
import opcode
import sys
import weakref

# Names of functions that take other names as texts.
_BY_TEXT = frozenset(("getattr", "hasattr", "__getattribute__", "__dict__", "attrgetter", "methodcaller"))
# Names of what no snapshot holds: what a call of them says may change unseen.
_UNCOMPARED = ("import_module", "getrecursionlimit", "__subclasses__", "__globals__", "cell_contents")
_BY_ADDRESS = ("id", "hash")  # what they say of an argument is another thing for each tensor
_EXTENDED, _IMPORT = opcode.opmap["EXTENDED_ARG"], opcode.opmap["IMPORT_NAME"]
_GLOBAL, _NAME = opcode.opmap["LOAD_GLOBAL"], opcode.opmap["LOAD_NAME"]


def is_own(module):
    """Whether a module is Mica's: its tables are compared, but not what they hold."""
    return isinstance(module, str) and module.partition(".")[0] in ("mica", "torch")


def is_of_python(module):
    """Whether a module is of Python's library."""
    return isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names


def asks_by_text(code):
    """Whether code may ask for names that it has as texts, or makes."""
    return not _BY_TEXT.isdisjoint(code.co_names)


def refusal_of(code, names):
    """Why what code of a program asks for cannot be compared; None where it can. Python's library looks modules up and asks
    for the limit of recursion too, and nothing follows from it."""
    if "_getframe" in code.co_names:
        return "it looks at the functions that called it"
    if is_of_python(names.get("__name__")):
        return None
    if (asked := next((each for each in _UNCOMPARED if each in code.co_names), None)) is not None:
        return f"it asks for {asked}"
    if any(names.get(each) is weakref or names.get(each) is weakref.ref for each in code.co_names):
        return "it may make weak references"  # a tensor that a call has made lives longer while the call is recorded
    return next((f"it calls {each}" for each in _BY_ADDRESS if _calls_builtin(code, names, each)), None)


def _calls_builtin(code, names, name):
    return name in globals_in(code) and name not in names and code.co_name != "__hash__"


@functools.lru_cache(4096)
def names_in(code):
    """The names that code may ask for, some of them as texts."""
    if not asks_by_text(code):
        return code.co_names
    texts = [part for each in code.co_consts if type(each) is str for part in each.split(".") if part.isidentifier()]
    return tuple(dict.fromkeys((*code.co_names, *texts)))


@functools.lru_cache(4096)
def globals_in(code):
    """The names that code looks up among its globals, and then among builtins."""
    found, extension = {}, 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument |= extension << 8
        extension = argument if operation == _EXTENDED else 0
        if operation in (_GLOBAL, _NAME):  # the lowest bit of a LOAD_GLOBAL says something else
            found[code.co_names[argument >> 1 if operation == _GLOBAL else argument]] = None
    return tuple(found)


@functools.lru_cache(4096)
def imports(code):
    return _IMPORT in code.co_code[::2]


def imported_by(code, names):
    """The names in sys.modules of what code with these globals may import, from its own package too."""
    if not imports(code):
        return ()
    package = names.get("__package__") or names.get("__name__", "").rpartition(".")[0]
    packages = [package]
    while package := package.rpartition(".")[0]:
        packages.append(package)
    asked = code.co_names
    found = [*asked, *packages, *(f"{each}.{name}" for each in packages for name in asked)]
    return [each for each in dict.fromkeys(found) if each and each in sys.modules]
