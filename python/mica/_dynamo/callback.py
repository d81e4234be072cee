"""Functions that are called before and after a backend of the program's own compiles a graph."""

import contextlib
import dataclasses
import enum
import threading

__all__ = ["CallbackArgs", "CallbackTrigger", "callback_handler", "on_compile_end", "on_compile_start"]


class CallbackTrigger(enum.Enum):
    """What is compiled. Here that is always a graph of a function."""

    DYNAMO = 1
    LAZY_BACKWARD = 2
    TRITON_AUTOTUNING = 3
    CUDAGRAPH_RECORDING = 4


@dataclasses.dataclass
class CallbackArgs:
    """What callbacks are told: what is compiled, and which graph of which function it is."""

    callback_trigger: CallbackTrigger
    compile_id: str


class CompilationCallbackHandler:
    """The functions that are called. Of compilations within one another, the outermost counts."""

    def __init__(self):
        self.start_callbacks, self.end_callbacks = [], []
        self._depth, self._lock = 0, threading.Lock()

    def register_start_callback(self, callback):
        self.start_callbacks.append(callback)
        return callback

    def register_end_callback(self, callback):
        self.end_callbacks.append(callback)
        return callback

    def remove_start_callback(self, callback):
        self.start_callbacks.remove(callback)

    def remove_end_callback(self, callback):
        self.end_callbacks.remove(callback)

    def run_start_callbacks(self, args):
        for callback in self.start_callbacks:
            callback(args)

    def run_end_callbacks(self, args):
        for callback in self.end_callbacks:
            callback(args)

    @contextlib.contextmanager
    def install_callbacks(self, trigger, compile_id):
        """A block in which something is compiled."""
        args = CallbackArgs(trigger, compile_id)
        with self._lock:
            self._depth += 1
            is_outermost = self._depth == 1
        try:
            if is_outermost:
                self.run_start_callbacks(args)
            yield
        finally:
            with self._lock:
                self._depth -= 1
                is_last = self._depth == 0
            if is_last:
                self.run_end_callbacks(args)

    def clear(self):
        self.start_callbacks.clear()
        self.end_callbacks.clear()


callback_handler = CompilationCallbackHandler()


def on_compile_start(callback):
    """A decorator: the function is called before a graph is compiled."""
    return callback_handler.register_start_callback(callback)


def on_compile_end(callback):
    """A decorator: the function is called after a graph was compiled."""
    return callback_handler.register_end_callback(callback)
