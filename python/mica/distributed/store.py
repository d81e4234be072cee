"""Stores of keys and values, which processes share to meet."""

import threading

from mica.distributed._errors import QueueEmptyError
from mica.distributed._store_base import Store, _bytes, _check_keys, _Table, _TableStore
from mica.distributed.file_store import FileStore
from mica.distributed.tcp_store import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]


class HashStore(_TableStore):
    """Keys and values in memory: for the threads of one process."""

    def __init__(self):
        super().__init__()
        self._table, self._changed = _Table(), threading.Condition()

    def _change(self, change):
        with self._changed:
            result = change(self._table)
            self._changed.notify_all()
            return result

    def _wait_until(self, there, keys, timeout=None):
        if not self._changed.wait_for(there, self._limit(timeout)):
            self._timed_out(keys, timeout)

    def get(self, key):
        with self._changed:
            self._wait_until(lambda: key in self._table.values, [key])
            return self._table.values[key]

    def check(self, keys):
        with self._changed:
            return all(key in self._table for key in _check_keys(keys))

    def wait(self, keys, timeout=None):
        keys = _check_keys(keys)
        with self._changed:
            self._wait_until(lambda: all(key in self._table for key in keys), keys, timeout)

    def num_keys(self):
        return len(self._table.values)

    def list_keys(self):
        with self._changed:
            return sorted(self._table.values)

    def queue_pop(self, key, block=True):
        with self._changed:
            if not block and not self._table.queues.get(key):
                raise QueueEmptyError(f"queue is empty: {key}")
            self._wait_until(lambda: self._table.queues.get(key), [key])
            return self._table.queues[key].pop(0)

    def queue_len(self, key):
        return len(self._table.queues.get(key, ()))

    def has_extended_api(self):
        return True


class PrefixStore(Store):
    """A store within another: its keys begin with a prefix."""

    def __init__(self, prefix, store):
        super().__init__()
        if store is None:
            raise ValueError("PrefixStore: the underlying store cannot be None")
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self):
        return self._store

    @property
    def prefix(self):
        return self._prefix

    @property
    def _underlying_non_prefix_store(self):
        store = self._store
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    @property
    def timeout(self):
        return self._store.timeout

    def set_timeout(self, timeout):
        self._store.set_timeout(timeout)

    def _join(self, key):
        return f"{self._prefix}/{key}"

    def set(self, key, value):
        self._store.set(self._join(key), value)

    def get(self, key):
        return self._store.get(self._join(key))

    def add(self, key, value):
        return self._store.add(self._join(key), value)

    def append(self, key, value):
        self._store.append(self._join(key), _bytes(value))

    def compare_set(self, key, expected_value, desired_value):
        return self._store.compare_set(self._join(key), expected_value, desired_value)

    def check(self, keys):
        return self._store.check([self._join(key) for key in _check_keys(keys)])

    def wait(self, keys, timeout=None):
        keys = [self._join(key) for key in _check_keys(keys)]
        if timeout is None:
            self._store.wait(keys)
        else:
            self._store.wait(keys, timeout)

    def delete_key(self, key):
        return self._store.delete_key(self._join(key))

    def num_keys(self):
        return self._store.num_keys()

    def list_keys(self):
        own = f"{self._prefix}/"
        return [key[len(own) :] for key in self._store.list_keys() if key.startswith(own)]

    def multi_get(self, keys):
        return self._store.multi_get([self._join(key) for key in _check_keys(keys)])

    def multi_set(self, keys, values):
        self._store.multi_set([self._join(key) for key in _check_keys(keys)], values)

    def queue_push(self, key, value):
        self._store.queue_push(self._join(key), value)

    def queue_pop(self, key, block=True):
        return self._store.queue_pop(self._join(key), block)

    def queue_len(self, key):
        return self._store.queue_len(self._join(key))

    def has_extended_api(self):
        return self._store.has_extended_api()

    def clone(self):
        return PrefixStore(self._prefix, self._store.clone())
