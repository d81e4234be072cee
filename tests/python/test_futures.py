"""Values that come later."""

import pickle
import threading

import pytest
from mica.futures import Future, collect_all, wait_all


def test_values_arrive():
    future = Future()
    threading.Timer(0.01, future.set_result, (5,)).start()
    assert future.wait() == 5 and future.done() and future.value() == 5
    seen = []
    future.add_done_callback(lambda f: seen.append(f.value()))
    assert seen == [5]
    assert future.then(lambda f: f.value() + 1).then(lambda f: f.value() * 2).wait() == 12
    with pytest.raises(RuntimeError, match="can only be marked completed once"):
        future.set_result(6)


def test_errors_arrive():
    future = Future()
    later = future.then(lambda f: f.value())
    future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        future.wait()
    with pytest.raises(RuntimeError, match="ValueError: no"):
        later.wait()
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception(3)
    with pytest.raises(RuntimeError, match="no value yet"):
        Future().value()


def test_many():
    futures = [Future() for _ in range(4)]
    together = collect_all(futures)
    for i, future in enumerate(futures):
        assert not together.done()
        future.set_result(i)
    assert [f.value() for f in together.wait()] == [0, 1, 2, 3]
    assert wait_all(futures) == [0, 1, 2, 3] and collect_all([]).wait() == []


def test_errors_of_callbacks():
    future = Future()
    future.add_done_callback(lambda _: 1 / 0)  # its own affair
    later = future.then(lambda _: 1 / 0)
    future.set_result(5)
    future.add_done_callback(lambda _: 1 / 0)
    assert future.wait() == 5
    with pytest.raises(RuntimeError, match="Got the following error when running the callback: ZeroDivisionError"):
        later.wait()
    with pytest.raises(RuntimeError, match="Got the following error"):
        collect_all([future, later]).wait()
    failed = Future()
    failed.set_exception(ValueError("why"))
    with pytest.raises(RuntimeError, match="ValueError: why"):
        failed.then(lambda f: f.value()).wait()


def test_futures_do_not_pickle():
    with pytest.raises(RuntimeError, match="Can not pickle"):
        pickle.dumps(Future())


def test_no_future():
    for call in (wait_all, collect_all):
        with pytest.raises(RuntimeError, match="Future can't be None"):
            call((Future(), None))
