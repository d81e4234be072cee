"""Values that come later."""

import threading

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that is set later, once. A thread that waits for it sleeps until then."""

    def __init__(self, *, devices=None):
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._value = self._error = None
        self._callbacks = []
        self.devices = list(devices or [])

    def __class_getitem__(cls, item):
        return cls

    def __reduce_ex__(self, protocol):
        raise RuntimeError("Can not pickle torch.futures.Future")

    def done(self):
        """Whether the value, or an error, is there."""
        return self._ready.is_set()

    def wait(self):
        """The value, when it is there; an error is raised."""
        self._ready.wait()
        return self.value()

    def value(self):
        """The value of a future that is done; otherwise an error."""
        if not self.done():
            raise RuntimeError("the future has no value yet: wait() for it")
        if self._error is not None:
            raise self._error
        return self._value

    def _complete(self, value, error):
        with self._lock:
            if self.done():
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future can only be marked completed once."
                )
            self._value, self._error = value, error
            self._ready.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback):
        """Call a function with this future. An exception of the function is logged and goes no further."""
        try:
            callback(self)
        except Exception:
            import logging

            logging.getLogger(__name__).exception("Got the following error when running the callback:")

    def set_result(self, result):
        """Give the value to all who wait."""
        self._complete(result, None)

    def set_exception(self, result):
        """Give an error to all who wait."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def add_done_callback(self, callback):
        """Call a function with this future when it is done, at once if it is."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        self._call(callback)

    def then(self, callback):
        """A future of the result of a function that gets this future."""
        result = Future(devices=self.devices)

        def on_done(future):
            try:
                value = callback(future)
            except Exception as error:
                result.set_exception(_of_callback(error))
            else:
                result.set_result(value)

        self.add_done_callback(on_done)
        return result


def _of_callback(error):
    """The error of a future whose callback has failed."""
    import traceback

    place = "".join(traceback.format_tb(error.__traceback__))
    text = f"Got the following error when running the callback: {type(error).__name__}: {error}\n\nAt:\n{place}"
    wrapped = RuntimeError(text)
    wrapped.__cause__ = error
    return wrapped


def collect_all(futures):
    """A future of the list of futures, done when all of them are; the error of one is its error."""
    futures = list(futures)
    if any(future is None for future in futures):
        raise RuntimeError(f"Future can't be None, but number {futures.index(None)} of {len(futures)} is")
    together, left, lock = Future(), [len(futures)], threading.Lock()
    if not futures:
        together.set_result([])

    def on_done(_):
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            failed = next((each._error for each in futures if each._error is not None), None)
            together.set_result(futures) if failed is None else together.set_exception(failed)

    for future in futures:
        future.add_done_callback(on_done)
    return together


def wait_all(futures):
    """The values of all futures, when they are there."""
    return [future.wait() for future in collect_all(futures).wait()]
