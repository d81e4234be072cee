"""Threads of Python that run operations."""

import subprocess
import sys
import textwrap


def run(program):
    """What the program prints; it must end well and say nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", "import mica\n" + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_interpreter_ends_while_daemon_threads_compute():
    program = """
        import threading, time

        def work():
            x = mica.randn(300, 300)
            while True:
                x = (x @ x).tanh()

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        print("end")
        """
    assert run(program) == "end\n"


def test_gradients_read_and_cleared_during_backward():
    run(
        """
        import threading, warnings
        warnings.simplefilter("ignore")  # of the cycle that create_graph makes
        p = mica.ones(1000, requires_grad=True)
        q = (mica.ones(1000, requires_grad=True) + 0.0).requires_grad_()
        q.retain_grad()
        stop = False

        def meddle():
            while not stop:
                g = p.grad
                if g is not None:
                    assert g.shape == (1000,)
                p.grad = None
                q.grad

        threads = [threading.Thread(target=meddle) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(400):
            r = q * 1.0
            (p * p + p + r).sum().backward()
            mica.autograd.backward([(p * 2).sum()], create_graph=True)
        stop = True
        for thread in threads:
            thread.join()
        """
    )


def test_operations_modules_and_losses_of_several_threads_at_once():
    program = """
        import threading

        x = mica.sin(mica.arange(600.0)).view(20, 30)
        net = mica.nn.Sequential(mica.nn.Linear(30, 8), mica.nn.GELU(), mica.nn.Linear(8, 2))
        start = threading.Barrier(4)
        found = []

        def work():
            start.wait()
            for _ in range(30):
                values = mica.fft.fft(x).abs().sum(), (x @ x.T).sort().values.cumsum(0).mean(), net(x).logsumexp(1).sum()
                sum(values).backward()
            found.append([value.item() for value in values])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(each == found[0] for each in found), found
        assert all(p.grad is not None for p in net.parameters())
        print("end")
        """
    assert run(program) == "end\n"


def test_hooks_come_and_go_while_other_threads_go_backward():
    program = """
        import threading

        w = mica.ones(4, requires_grad=True)
        done = threading.Event()
        calls = []

        def backward():
            while not done.is_set():
                (w * 2).sum().backward()

        threads = [threading.Thread(target=backward) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            handles = [w.register_hook(lambda g: calls.append(g)) for _ in range(5)]
            handles += [w.register_post_accumulate_grad_hook(lambda t: calls.append(t)) for _ in range(5)]
            for handle in handles:
                handle.remove()
        done.set()
        for thread in threads:
            thread.join()
        calls.clear()
        (w * 2).sum().backward()
        assert not calls  # all were taken off

        # A hook that is added by a hook has its turn the next time.
        w.register_hook(lambda g: w.register_hook(lambda g: calls.append(2 * g)) and None)
        w.sum().backward()
        assert not calls
        w.sum().backward()
        assert len(calls) == 1
        print("end")
        """
    assert run(program) == "end\n"
