"""Gradients that reach a leaf: code of the program runs meanwhile, and several threads add at once."""

import threading

import mica
import pytest
from mica.utils._python_dispatch import TorchDispatchMode


def finishes(function, seconds=30):
    """What the function returns. A call that hangs fails the test instead of the whole run."""
    outcome = []

    def call():
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the call hangs"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


class Watch(TorchDispatchMode):
    """Calls a function before every operation."""

    def __init__(self, action):
        super().__init__()
        self.action = action
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        self.action()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_mode_reads_the_gradient_while_it_is_added_to(create_graph):
    w = mica.ones(3, requires_grad=True)
    seen = []

    def run():
        for factor in (2.0, 3.0):
            loss = (w * factor).sum()
            with Watch(lambda: seen.append(w.grad)) as watch:
                loss.backward(create_graph=create_graph)
        return watch.names

    names = finishes(run)
    assert w.grad.tolist() == [5.0] * 3
    assert any(grad is not None for grad in seen) and any("add" in name for name in names)
    w.grad = None


def test_a_mode_sets_and_clears_the_gradient_while_it_is_added_to():
    w = mica.ones(3, requires_grad=True)

    def run():
        w.grad = before
        loss = (w * 2.0).sum()
        watch = Watch(lambda: setattr(w, "grad", None) if "add_" in watch.names[-1] else None)
        with watch:
            loss.backward()

    before = mica.ones(3)
    finishes(run)
    assert w.grad is None and before.tolist() == [3.0] * 3  # it was cleared while the sum was made


def test_a_mode_runs_a_backward_pass_of_its_own_into_the_same_leaf():
    w = mica.zeros(3, requires_grad=True)
    w.grad = mica.ones(3)
    depth = []

    def again():
        if not depth:
            depth.append(1)
            with mica.enable_grad():
                (w * 10.0).sum().backward()

    def run():
        loss = (w * 2.0).sum()
        with Watch(again):
            loss.backward()

    finishes(run)
    assert w.grad.tolist() == [13.0] * 3


def test_a_mode_waits_for_another_thread_that_adds_to_the_same_leaf():
    w = mica.zeros(3, requires_grad=True)
    w.grad = mica.ones(3)
    started = []

    def other():
        with mica.enable_grad():
            (w * 10.0).sum().backward()

    def wait_for_another():
        if not started:
            started.append(threading.Thread(target=other))
            started[0].start()
            started[0].join()

    def run():
        loss = (w * 2.0).sum()
        with Watch(wait_for_another):
            loss.backward()

    finishes(run)
    assert w.grad.tolist() == [13.0] * 3


def test_hooks_read_the_gradient():
    w = mica.ones(4, requires_grad=True)
    seen = []
    w.register_hook(lambda grad: seen.append(("hook", w.grad)))
    w.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.clone())))

    def run():
        for _ in range(2):
            (w * 2.0).sum().backward()

    finishes(run)
    assert [name for name, _ in seen] == ["hook", "after"] * 2
    assert seen[0][1] is None and seen[3][1].tolist() == [4.0] * 4


@pytest.mark.parametrize("size", [1, 1000, 300_000])
@pytest.mark.parametrize("create_graph", [False, True])
def test_threads_add_to_one_leaf(size, create_graph):
    w = mica.zeros(size, requires_grad=True)
    threads, turns = 4, 25
    start = threading.Barrier(threads)

    def add():
        start.wait()
        for _ in range(turns):
            (w * 2.0).sum().backward(create_graph=create_graph)

    def run():
        workers = [threading.Thread(target=add) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    finishes(run, 120)
    assert w.grad.unique().tolist() == [2.0 * threads * turns]
    w.grad = None


def test_threads_add_to_one_retained_gradient():
    x = mica.ones(1000, requires_grad=True)
    y = x * 1.0
    y.retain_grad()
    losses = [(y * 2.0).sum() for _ in range(4)]

    def run():
        workers = [
            threading.Thread(target=lambda each=loss: [each.backward(retain_graph=True) for _ in range(25)])
            for loss in losses
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    finishes(run, 120)
    assert y.grad.unique().tolist() == [200.0] == x.grad.unique().tolist()


def test_a_failed_sum_leaves_the_leaf_usable():
    w = mica.ones(3, requires_grad=True)
    w.grad = mica.ones(3)

    class Refuse(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "add" in str(func):
                raise ValueError("no sums today")
            return func(*args, **(kwargs or {}))

    def run():
        loss = (w * 2.0).sum()
        with pytest.raises(ValueError, match="no sums today"), Refuse():
            loss.backward()
        (w * 2.0).sum().backward()

    finishes(run)
    assert w.grad.tolist() == [3.0] * 3


def test_a_mode_reads_the_history_of_a_view_while_it_is_written():
    """The history of a view whose base was changed is made by operations, which a mode sees."""
    x = mica.ones(4, requires_grad=True)
    base = x * 1.0
    view = base[:2]
    base.mul_(3.0)
    seen = []

    def run():
        with Watch(lambda: seen.append(view.grad_fn)):
            return view.grad_fn

    assert finishes(run) is view.grad_fn
    view.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 0.0, 0.0]
