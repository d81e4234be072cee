"""A store in a file."""

import os
import time
import weakref

from mica.distributed._errors import QueueEmptyError
from mica.distributed._store_base import _check_keys, _Table, _TableStore


class FileStore(_TableStore):
    """Keys and values in a file that all processes see. The last one of at least `world_size` stores on it removes it."""

    def __init__(self, file_name, world_size=-1):
        super().__init__()
        self._path, self._world_size = os.fspath(file_name), world_size
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o644))
        self._users = self._change(lambda table: table.add("__users__", 1))
        self._finalizer = weakref.finalize(self, _leave_file, self._path, world_size)

    @property
    def path(self):
        return self._path

    def _change(self, change, write=True):
        return _with_file(self._path, change, write)

    def _read(self, look):
        return self._change(look, write=False)

    def get(self, key):
        self.wait([key])
        return self._read(lambda table: table.values[key])

    def check(self, keys):
        keys = _check_keys(keys)
        return self._read(lambda table: all(key in table for key in keys))

    def num_keys(self):
        return self._read(lambda table: len(table.values))  # one of the keys counts the stores

    def list_keys(self):
        return self._read(lambda table: sorted(table.values))

    def queue_pop(self, key, block=True):
        end = time.monotonic() + self._limit()
        while True:
            value = self._change(lambda table: table.queues[key].pop(0) if table.queues.get(key) else None)
            if value is not None:
                return value
            if not block:
                raise QueueEmptyError(f"queue is empty: {key}")
            if time.monotonic() > end:
                self._timed_out([key])
            time.sleep(0.01)

    def queue_len(self, key):
        return self._read(lambda table: len(table.queues.get(key, ())))


def _encode_table(table):
    """The table as text: one line for each value, with keys and bytes in hexadecimal."""
    lines = [f"v {key.encode().hex()} {value.hex()}" for key, value in table.values.items()]
    lines += [f"q {key.encode().hex()} {value.hex()}" for key, queue in table.queues.items() for value in queue]
    return "\n".join(lines).encode()


def _decode_table(data):
    table = _Table()
    for line in data.decode().splitlines():
        kind, key, value = line.split(" ")
        key, value = bytes.fromhex(key).decode(), bytes.fromhex(value)
        if kind == "v":
            table.values[key] = value
        else:
            table.queues.setdefault(key, []).append(value)
    return table


def _with_file(path, change, write):
    """Calls `change` with the table in a file, which no other process touches meanwhile."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
        table = _decode_table(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        result = change(table)
        if write:
            data = _encode_table(table)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, data, 0)
        return result
    finally:
        os.close(descriptor)  # this releases the lock


def _leave_file(path, world_size):
    if not os.path.exists(path):
        return
    users, left = _with_file(path, lambda table: (table.add("__users__", -1), table.add("__left__", 1)), True)
    if world_size > 0 and users == 0 and left >= world_size:
        os.unlink(path)
