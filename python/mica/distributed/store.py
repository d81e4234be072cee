"""Stores of keys and values that processes share. The process that uses one is alone."""

import datetime
import os
import time


class Store:
    """Values by keys, which the processes of a group share."""

    def __init__(self):
        self._values, self.timeout = {}, datetime.timedelta(seconds=300)

    def set(self, key, value):
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key):
        self.wait([key])
        return self._values[key]

    def add(self, key, amount):
        value = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(value).encode()
        return value

    def append(self, key, value):
        self._values[key] = self._values.get(key, b"") + (value.encode() if isinstance(value, str) else value)

    def compare_set(self, key, expected_value, desired_value):
        present = self._values.get(key)
        if (present is None and not expected_value) or (present is not None and present.decode() == expected_value):
            self.set(key, desired_value)
        return self._values.get(key, expected_value.encode())

    def check(self, keys):
        return all(key in self._values for key in keys)

    def wait(self, keys, timeout=None):
        missing = [key for key in keys if key not in self._values]
        if missing:
            raise RuntimeError(f"wait timeout: no other process can set {missing}: Mica computes in one process")

    def delete_key(self, key):
        return self._values.pop(key, None) is not None

    def num_keys(self):
        return len(self._values)

    def set_timeout(self, timeout):
        self.timeout = timeout

    def multi_get(self, keys):
        return [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def clone(self):
        return self


class HashStore(Store):
    """Keys and values in memory."""


class FileStore(Store):
    """Keys and values beside a file."""

    def __init__(self, file_name, world_size=-1):
        super().__init__()
        self.path = os.fspath(file_name)


class TCPStore(Store):
    """Keys and values of a server, which is this process."""

    def __init__(self, host_name, port=0, world_size=None, is_master=False, timeout=None, **options):
        super().__init__()
        self.host, self.port = host_name, port
        if world_size not in (None, 1):
            raise NotImplementedError(f"TCPStore for {world_size} processes: Mica computes in one process")


class PrefixStore(Store):
    """A store within another: its keys begin with a prefix."""

    def __init__(self, prefix, store):
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        self.started = time.time()
