"""The base of stores of keys and values."""

import datetime
import time

from mica.distributed._errors import DistStoreError

_DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)


def _seconds(timeout):
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)


def _bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def _check_keys(keys):
    if isinstance(keys, (str, bytes)) or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"expected a list of str keys, but got {keys!r}")
    return list(keys)


class Store:
    """Values by keys, which the processes of a group share. A program's own store is a class with these methods."""

    def __init__(self):
        self._timeout = _DEFAULT_TIMEOUT

    @property
    def timeout(self):
        """How long a key is waited for."""
        return self._timeout

    def set_timeout(self, timeout):
        """How long a key is waited for from now on."""
        self._timeout = timeout

    def _limit(self, timeout=None):
        return _seconds(self._timeout if timeout is None else timeout)

    def _absent(self, name, *args):
        raise NotImplementedError(f"Not implemented. {type(self).__name__} has no {name}")

    def set(self, key, value):
        self._absent("set")

    def get(self, key):
        self._absent("get")

    def add(self, key, value):
        self._absent("add")

    def check(self, keys):
        self._absent("check")

    def compare_set(self, key, expected_value, desired_value):
        self._absent("compare_set")

    def delete_key(self, key):
        self._absent("delete_key")

    def num_keys(self):
        self._absent("num_keys")

    def list_keys(self):
        self._absent("list_keys")

    def wait(self, keys, timeout=None):
        """Return when all keys are there."""
        keys, end = _check_keys(keys), time.monotonic() + self._limit(timeout)
        while not self.check(keys):
            if time.monotonic() > end:
                self._timed_out(keys, timeout)
            time.sleep(0.01)

    def _timed_out(self, keys, timeout=None):
        limit = round(self._limit(timeout) * 1000)
        raise DistStoreError(f"wait timeout after {limit}ms, keys: {', '.join('/' + key for key in keys)}")

    def append(self, key, value):
        """Put a value behind what the key has."""
        value = _bytes(value)
        try:
            present = self.get(key) if self.check([key]) else b""
        except NotImplementedError:
            return self._append_by_comparison(key, value)
        return self.set(key, present + value)

    def _append_by_comparison(self, key, value):
        expected, desired = b"", value
        while (found := self.compare_set(key, expected, desired)) != desired:
            expected, desired = found, found + value

    def multi_get(self, keys):
        return [self.get(key) for key in _check_keys(keys)]

    def multi_set(self, keys, values):
        keys = _check_keys(keys)
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def barrier(self, key, world_size, timeout=None):
        """Return when so many have called it with this key; it may be used again."""
        came = self.add(f"{key}/came", 1)
        all_here = f"{key}/all/{(came - 1) // world_size}"
        if came % world_size == 0:
            self.set(all_here, "1")
        try:
            self.wait([all_here], self.timeout if timeout is None else timeout)
        except DistStoreError:
            limit = round(self._limit(self.timeout if timeout is None else timeout) * 1000)
            here = (self.add(f"{key}/came", 0) - 1) % world_size + 1
            raise DistStoreError(
                f"barrier timeout after {limit}ms, key: /{key}: {here} of {world_size} have come"
            ) from None

    def queue_push(self, key, value):
        self._absent("queue_push")

    def queue_pop(self, key, block=True):
        self._absent("queue_pop")

    def queue_len(self, key):
        self._absent("queue_len")

    def has_extended_api(self):
        """Whether append, multi_get and multi_set are one step each."""
        return False

    def clone(self):
        """Another connection to the same keys, for another thread."""
        return self


class _Table:
    """Keys and queues in memory, with the rules that every store follows."""

    def __init__(self):
        self.values, self.queues = {}, {}

    def __contains__(self, key):
        return key in self.values or bool(self.queues.get(key))

    def add(self, key, amount):
        try:
            value = int(self.values.get(key, b"0")) + amount
        except ValueError:
            raise DistStoreError(f"add: the value of {key!r} is not a number") from None
        self.values[key] = str(value).encode()
        return value

    def compare_set(self, key, expected, desired):
        present = self.values.get(key)
        if present is None:
            if expected:
                return expected
            self.values[key] = present = desired
        elif present == expected:
            self.values[key] = present = desired
        return present


class _TableStore(Store):
    """A store whose keys are one table: `_change(f)` calls f with it while nobody else touches it."""

    def _change(self, change):
        self._absent("_change")

    def set(self, key, value):
        value = _bytes(value)
        self._change(lambda table: table.values.__setitem__(key, value))

    def add(self, key, value):
        return self._change(lambda table: table.add(key, value))

    def append(self, key, value):
        value = _bytes(value)
        self._change(lambda table: table.values.__setitem__(key, table.values.get(key, b"") + value))

    def compare_set(self, key, expected_value, desired_value):
        return self._change(lambda table: table.compare_set(key, _bytes(expected_value), _bytes(desired_value)))

    def delete_key(self, key):
        return self._change(lambda table: table.values.pop(key, None) is not None)

    def queue_push(self, key, value):
        value = _bytes(value)
        self._change(lambda table: table.queues.setdefault(key, []).append(value))
