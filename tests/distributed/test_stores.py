"""Stores of keys and values."""

import contextlib
import datetime
import gc
import os
import signal
import socket
import threading
import time

import mica.distributed as dist
import pytest

SHORT = datetime.timedelta(milliseconds=100)


def make(kind, tmp_path):
    if kind == "tcp":
        return dist.TCPStore("localhost", 0, is_master=True)
    if kind == "file":
        return dist.FileStore(str(tmp_path / "store"), 1)
    if kind == "prefix":
        return dist.PrefixStore("inner", dist.PrefixStore("outer", dist.HashStore()))
    return dist.HashStore()


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    made = make(request.param, tmp_path)
    made.set_timeout(SHORT)
    return made


def test_values(store):
    store.set("a", "1")
    store.set("bytes", b"\x00\xff\n")
    assert store.get("a") == b"1" and store.get("bytes") == b"\x00\xff\n"
    assert store.add("n", 2) == 2 and store.add("n", -5) == -3 and store.get("n") == b"-3"
    store.append("a", "23")
    store.append("fresh", b"x")
    assert store.multi_get(["a", "fresh"]) == [b"123", b"x"]
    store.multi_set(["p", "q"], ["1", b"2"])
    assert store.check(["p", "q"]) and not store.check(["p", "no"]) and store.check([])
    assert store.delete_key("p") and not store.delete_key("p") and not store.check(["p"])
    store.wait(["a", "q"])
    assert {"a", "q", "fresh"} <= set(store.list_keys())


def test_compare_set(store):
    assert store.compare_set("k", "expected", "new") == b"expected" and not store.check(["k"])
    assert store.compare_set("k", "", "first") == b"first"
    assert store.compare_set("k", "wrong", "second") == b"first"
    assert store.compare_set("k", "first", "second") == b"second" and store.get("k") == b"second"


def test_time_limits(store):
    with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms, keys: /.*missing"):
        store.get("missing")
    with pytest.raises(dist.DistStoreError, match="wait timeout after 20ms"):
        store.wait(["missing", "other"], datetime.timedelta(milliseconds=20))


def test_queues(store):
    store.queue_push("q", "a")
    store.queue_push("q", b"b")
    assert store.check(["q"]) and not store.check(["q", "none"])  # a queue with something in it is a key
    store.wait(["q"])
    assert store.queue_len("q") == 2 and store.queue_pop("q") == b"a" and store.queue_pop("q", block=False) == b"b"
    assert store.queue_len("q") == 0 and not store.check(["q"])
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", block=False)
    with pytest.raises(dist.DistStoreError):
        store.queue_pop("q")


def test_barriers(store):
    store.barrier("alone", 1)
    with pytest.raises(dist.DistStoreError, match="barrier timeout after 100ms.*1 of 2 have come"):
        store.barrier("two", 2)
    store.set_timeout(datetime.timedelta(seconds=20))
    for _ in range(2):  # the same key serves again
        threads = [threading.Thread(target=store.clone().barrier, args=("all", 3)) for _ in range(2)]
        for thread in threads:
            thread.start()
        store.barrier("all", 3)
        for thread in threads:
            thread.join()


def test_stores_of_ones_own():
    class Nothing(dist.Store):
        pass

    class Compared(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def compare_set(self, key, expected, desired):
            if self.values.get(key, b"") == expected:
                self.values[key] = desired
            return self.values[key]

    with pytest.raises(RuntimeError, match=r"Not implemented\. Nothing has no"):
        Nothing().append("a", "b")
    store = Compared()
    dist.PrefixStore("p", store).append("a", "x")
    dist.PrefixStore("p", store).append("a", "y")
    assert store.values == {"p/a": b"xy"}
    with pytest.raises(ValueError, match="cannot be None"):
        dist.PrefixStore("p", None)


def test_servers_as_launchers_make_them(monkeypatch):
    with pytest.raises(ValueError, match="world size cannot be 0"):
        dist.TCPStore("localhost", 0, world_size=0)
    bound = socket.socket()
    bound.bind(("localhost", 0))
    port = bound.getsockname()[1]
    store = dist.TCPStore("localhost", port, 1, True, master_listen_fd=bound.detach())
    assert store.num_keys() == 1 and store.port == port
    with pytest.raises(dist.DistNetworkError, match="failed to listen"):
        dist.TCPStore("localhost", port, 1, True)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    dist.TCPStore("localhost", port, 1, True).set("a", "1")
    assert store.get("a") == b"1"


def test_a_port_that_nobody_serves_is_an_error_in_time():
    with socket.socket() as silent:
        silent.bind(("localhost", 0))
        silent.listen()
        with pytest.raises(dist.DistNetworkError):
            dist.TCPStore("localhost", silent.getsockname()[1], 1, timeout=datetime.timedelta(seconds=1))


def test_what_waits_is_woken(store):
    store.set_timeout(datetime.timedelta(seconds=20))
    other, seen = store.clone(), []
    thread = threading.Thread(target=lambda: seen.append(other.get("later")))
    thread.start()
    store.set("later", "now")
    thread.join(20)
    assert seen == [b"now"]


def test_adding_to_what_is_no_number(store):
    store.set("a", "text")
    with pytest.raises(dist.DistStoreError, match="not a number"):
        store.add("a", 1)
    assert store.get("a") == b"text"


def test_a_number_of_keys():
    store = dist.TCPStore("localhost", 0, is_master=True)
    store.set("a", "1")
    assert store.num_keys() == 1
    store = dist.TCPStore("localhost", 0, 1, True)
    store.set("a", "1")
    assert store.num_keys() >= 2  # one counts the workers, as in torch


def test_clients_of_one_server():
    server = dist.TCPStore("localhost", 0, is_master=True)
    clients = [dist.TCPStore("localhost", server.port) for _ in range(5)]
    threads = [threading.Thread(target=lambda c=c: [c.add("n", 1) for _ in range(200)]) for c in clients]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert server.get("n") == b"1000" and server.host == "localhost"
    large = bytes(range(256)) * 20_000
    clients[0].set("large", large)
    assert clients[1].get("large") == large


def test_a_server_survives_strangers():
    server = dist.TCPStore("localhost", 0, is_master=True)
    for text in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        b"\x05\x00\x00\x00\xee1234",
        b"\x09\x00\x00\x00\x00\xff\xff\xff\xff",
    ):
        with socket.create_connection(("localhost", server.port)) as stranger:
            stranger.sendall(text)
            stranger.settimeout(0.2)
            with contextlib.suppress(OSError):
                stranger.recv(10)
    server.set("a", "1")
    assert server.get("a") == b"1"


def test_errors_of_the_network():
    server = dist.TCPStore("localhost", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match="EADDRINUSE"):
        dist.TCPStore("localhost", server.port, is_master=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    with pytest.raises(
        dist.DistNetworkError, match=r"The client socket has timed out after 100ms while trying to connect"
    ):
        dist.TCPStore("127.0.0.1", free, timeout=SHORT)
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        dist.TCPStore("localhost", 0, 2, True, timeout=SHORT)
    client = dist.TCPStore("localhost", server.port)
    del server
    with pytest.raises(dist.DistNetworkError, match="Did the remote server shutdown or crash"):
        client.set("a", "1")


def test_a_store_of_ones_own():
    class Mine(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value if isinstance(value, bytes) else value.encode()

        def get(self, key):
            self.wait([key])
            return self.values[key]

        def check(self, keys):
            return all(key in self.values for key in keys)

    store = dist.PrefixStore("p", Mine())
    store.set("a", "1")
    store.append("a", "2")
    assert store.get("a") == b"12" and store.underlying_store.values == {"p/a": b"12"}
    with pytest.raises(NotImplementedError, match="Mine has no add"):
        store.add("n", 1)


def test_a_file_is_removed_by_the_last(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("a", "1")
    assert second.get("a") == b"1"
    del first
    assert path.exists()
    del second
    assert not path.exists()


def status_of(child, seconds=20):
    """The status with which a child ends. A child that hangs is killed."""
    for _ in range(int(seconds * 100)):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_that_lets_go_of_the_server():
    kept = [dist.TCPStore("localhost", 0, is_master=True)]
    kept[0].set("a", "1")
    child = os.fork()
    if child == 0:  # it has none of the server's thread, whose end it must not wait for, nor ask for
        kept.clear()
        gc.collect()
        os._exit(0)
    assert status_of(child) == 0
    kept[0].set("b", "2")
    assert kept[0].get("a") == b"1" and kept[0].get("b") == b"2"
