"""The errors that compilation may raise."""

import enum


class TorchDynamoException(RuntimeError):
    pass


class Unsupported(TorchDynamoException):
    pass


class UncapturedHigherOrderOpError(TorchDynamoException):
    """A function that torch.cond, a loop or a scan calls does what a graph of it could not hold. `msg` is the text."""

    def __init__(self, msg, real_stack=None):
        super().__init__(msg)
        self.msg, self.real_stack = msg, real_stack


class InternalTorchDynamoError(TorchDynamoException):
    pass


class BackendCompilerFailed(TorchDynamoException):
    """A backend of the program's own has failed."""

    def __init__(self, backend_fn, inner_exception, first_useful_frame=None):
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")


class RecompileError(TorchDynamoException):
    pass


class FailOnRecompileLimitHit(Exception):
    """More graphs were to be compiled than torch._dynamo.config.recompile_limit allows."""


class UserErrorType(enum.Enum):
    """What kind of mistake a UserError is about."""

    DYNAMIC_CONTROL_FLOW = 1
    ANTI_PATTERN = 2
    STANDARD_LIBRARY = 3
    CONSTRAINT_VIOLATION = 4
    DYNAMIC_DIM = 5
    INVALID_INPUT = 6
    INVALID_OUTPUT = 7
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = 8


class UserError(TorchDynamoException):
    """A mistake of the caller's. `msg` is the text, and `error_type` says what kind of mistake it is."""

    def __init__(self, error_type, msg, case_name=None):
        super().__init__(msg)
        self.error_type, self.msg, self.message = error_type, msg, msg

    def __reduce__(self):
        return type(self), (self.error_type, self.msg)


class TorchRuntimeError(TorchDynamoException):
    pass


class InvalidBackend(TorchDynamoException):
    def __init__(self, name):
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")


def observed(error, line, of_a_call):
    """An exception out of a function that is to be one graph: it is torch's, too, which raises another in its place.

    Args:
        error: the exception; what cannot be made again from its arguments is returned as it is
        line: where it was raised
        of_a_call: whether a call of torch has raised it: that is a TorchRuntimeError, and others are Unsupported
    """
    torchs = TorchRuntimeError if of_a_call else Unsupported
    if isinstance(error, (OSError, UnicodeError, SyntaxError, ImportError)):
        return error

    class Observed(*((torchs,) if issubclass(torchs, type(error)) else (type(error), torchs))):
        def __str__(self):
            return f"{type(error).__str__(self)}\n\nObserved exception, from user code:\n{line}"

    Observed.__name__ = Observed.__qualname__ = torchs.__name__ if of_a_call else type(error).__name__
    try:
        made = Observed.__new__(Observed, *error.args)
        made.args = error.args
        made.__dict__.update(error.__dict__)
        if isinstance(error, AttributeError):
            made.name, made.obj = error.name, error.obj
    except Exception:
        return error
    made.__cause__, made.__context__, made.__suppress_context__ = error.__cause__, error.__context__, True
    return made.with_traceback(error.__traceback__)
