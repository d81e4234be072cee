"""What script and trace hand out: the Python function or module, in a type that says that no program was made of it."""

import functools
import logging

_NO_PROGRAM = (
    "there is no TorchScript in Mica yet, so that script and trace make no program: what they return runs as Python"
)
# Attributes of torch's compiled functions and modules that a Python program does not have.
_OF_PROGRAMS = ("code", "code_with_constants", "graph", "graph_for", "inlined_graph", "save", "save_to_buffer",
                "schema", "get_debug_state", "_c")  # fmt: skip
_said = False


def say_once():
    """Log once that nothing is compiled."""
    global _said
    if not _said:
        _said = True
        logging.getLogger("torch.jit").warning("torch.jit: %s (this is said once)", _NO_PROGRAM)


class NoProgramError(AttributeError, NotImplementedError):
    """Raised for attributes that only a compiled program has. hasattr finds no such attribute."""


def _refuse(name):
    raise NoProgramError(f"'{name}': {_NO_PROGRAM}")


class PythonFunction:
    """A function that was given to script or trace. It runs as the Python it is."""

    def __init__(self, function):
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, /, *args, **kwargs):
        return self._function(*args, **kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else self._function.__get__(instance, owner)

    def __getattr__(self, name):
        if name in _OF_PROGRAMS:
            _refuse(name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def __reduce__(self):
        return self.__qualname__  # pickles hold functions by their names

    def __repr__(self):
        return f"<function {self.__qualname__}, which runs as Python>"


class PythonModule:
    """The part of a module's class that says that the module was given to script or trace, and runs as Python."""

    def __getattr__(self, name):
        if name in _OF_PROGRAMS:
            _refuse(name)
        return super().__getattr__(name)

    def __reduce_ex__(self, protocol):
        raise RuntimeError("a module that torch.jit returned cannot be pickled: save its state_dict()")

    def __copy__(self):
        return as_python(_original(self))

    def __deepcopy__(self, memo):
        import copy

        return as_python(copy.deepcopy(_original(self), memo))


@functools.cache
def _class_of(kind):
    name = f"PythonModule[{kind.__name__}]"
    return type(name, (PythonModule, kind), {"__module__": "torch.jit", "original_name": kind.__name__})


def _original(module):
    """A module of the class that it had, which shares everything with the one from script or trace."""
    kind = type(module).__mro__[2]
    made = kind.__new__(kind)
    made.__dict__ = module.__dict__
    return made


def as_python(module):
    """A module with the parameters, buffers and submodules of another, whose type says that it runs as Python."""
    if isinstance(module, PythonModule):
        return module
    kind = _class_of(type(module))
    made = kind.__new__(kind)
    made.__dict__ = dict(module.__dict__)
    return made
