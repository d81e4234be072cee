"""Workers that fail, hang or are left: clear errors, soon, and nothing that stays behind."""

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import time

import mica
import pytest
from cpu_work import unit
from mica.utils.data import DataLoader, Dataset, TensorDataset
from mica.utils.data._utils import crew


class Failing(Dataset):
    def __init__(self, fail):
        self.fail = fail

    def __len__(self):
        return 40

    def __getitem__(self, i):
        if i == 13:
            self.fail()
        return mica.full((100, 100), float(i))


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def crash():
    faulthandler.disable()  # pytest's, which would show the stack
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(3)


def bad_value():
    raise ValueError("sample 13 is bad")


def bad_key():
    raise KeyError("absent")


def bad_type():
    class Local(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    raise Local(1, 2)


def stop():
    raise StopIteration("too early")


def hang():
    time.sleep(600)


def children():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as f:
        return f.read().split()


@pytest.mark.parametrize(
    ("fail", "error", "message"),
    [
        (kill, RuntimeError, r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: .*SIGKILL"),
        pytest.param(
            crash,
            RuntimeError,
            r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: .*SIGSEGV",
            marks=pytest.mark.no_sanitizer("it reports the signal itself"),
        ),
        (leave, RuntimeError, r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly with code 3"),
        (bad_value, ValueError, r"Caught ValueError in DataLoader worker process 1\.\nOriginal Traceback"),
        (bad_key, KeyError, r"Caught KeyError in DataLoader worker process 1\.\nOriginal Traceback"),
        (bad_type, RuntimeError, r"Caught \w+ in DataLoader worker process 1\.\nOriginal Traceback"),
        (stop, Exception, r"too early"),
    ],
)
def test_a_worker_that_fails(fail, error, message, monkeypatch):
    """The failure itself wakes the loader; the look at all workers that it takes now and then is far away here."""
    monkeypatch.setattr(crew, "_PATIENCE", 300.0)
    before, begin = children(), time.monotonic()
    with pytest.raises(error, match=message):
        for _ in DataLoader(Failing(fail), batch_size=4, num_workers=2):
            pass
    assert time.monotonic() - begin < 100
    assert children() == before


def test_errors_of_threads():
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker thread 1"):
        list(DataLoader(Failing(bad_value), batch_size=4, num_workers=2, worker_method="thread"))


def test_a_worker_that_hangs():
    before, begin = children(), time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.5 seconds"):
        list(DataLoader(Failing(hang), batch_size=4, num_workers=2, timeout=0.5))
    assert time.monotonic() - begin < 100  # the worker would sleep for 600
    assert children() == before


def fail_to_start(worker_id):
    raise OSError(f"no license for {worker_id}")


def test_a_worker_that_cannot_start():
    with pytest.raises(OSError, match="Caught OSError in DataLoader worker process 0.*\n(.*\n)*.*no license for 0"):
        list(DataLoader(range(4), num_workers=2, worker_init_fn=fail_to_start))


def test_what_cannot_be_sent():
    def unsendable(batch):
        return lambda: batch

    with pytest.raises(Exception, match="in DataLoader worker process 0"):
        next(iter(DataLoader(range(4), num_workers=1, collate_fn=unsendable)))
    graph = mica.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        next(iter(DataLoader([graph], num_workers=1, collate_fn=lambda batch: batch[0])))


def test_after_an_error_the_loader_can_be_used_again():
    flaky = Failing(bad_value)
    loader = DataLoader(flaky, batch_size=4, num_workers=2, persistent_workers=True)
    with pytest.raises(ValueError, match="sample 13"):
        list(loader)
    killed = DataLoader(Failing(kill), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(killed)


def test_leaving_in_the_middle():
    before = children()
    for _ in range(3):
        for _ in DataLoader(TensorDataset(mica.ones(1000, 100)), batch_size=2, num_workers=2):
            break
    assert children() == before


def computed():
    """Seconds of the processor that this process and its ended children have taken."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.mark.no_sanitizer("it measures time")
def test_the_first_batch_costs_little():
    data = TensorDataset(mica.ones(10000, 100))
    begin = computed()
    iterator = iter(DataLoader(data, batch_size=10, num_workers=2))
    next(iterator)
    del iterator  # ends the workers, and waits for them
    taken, work = computed() - begin, unit()
    assert taken < 50 * work, (taken, work)


def run_program(text, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


PROGRAM = """
import os, signal, sys, time, mica
from mica.utils.data import DataLoader, Dataset

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        time.sleep(0.01)
        return mica.ones(100, 100)

if sys.argv[1] == "early":
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
loader = DataLoader(Slow(), batch_size=2, num_workers=2, persistent_workers=sys.argv[1] == "persistent",
                    worker_method="thread" if sys.argv[1] == "thread" else "multiprocessing")
iterator = iter(loader)
next(iterator)
print(*(worker.pid for worker in getattr(iterator, "_workers", ())), flush=True)
if sys.argv[1] in ("loop", "early"):
    for batch in iterator:
        pass
"""


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(pids, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(is_running, pids)):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", ["simple", "persistent", "thread"])
def test_the_program_ends_in_the_middle(how):
    program = run_program(PROGRAM, how)
    out, err = program.communicate(timeout=100)
    assert program.returncode == 0 and err == ""
    assert all_end(map(int, out.split()))


@pytest.mark.parametrize("when", ["loop", "early"])
def test_an_interrupt(when):
    """While workers compute, and also in the moment in which they start."""
    program = run_program(PROGRAM, when, start_new_session=True)
    pids = [int(pid) for pid in program.stdout.readline().split()]
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: all of them get it
    _, err = program.communicate(timeout=100)
    assert program.returncode != 0 and err.count("Traceback") == 1 and "KeyboardInterrupt" in err
    assert all_end(pids)


def test_the_parent_is_killed():
    program = run_program(PROGRAM, "loop")
    pids = [int(pid) for pid in program.stdout.readline().split()]
    program.kill()
    program.communicate(timeout=100)
    assert all_end(pids)


MEMORY = """
import os, warnings, mica
from mica.utils.data import DataLoader, TensorDataset

def proportional(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) * 1024

warnings.simplefilter("ignore")
x = mica.ones(50000, 500)  # 100 MB
iterator = iter(DataLoader(TensorDataset(x), batch_size=64, shuffle=True, num_workers=8))
for _ in range(100):
    batch = next(iterator)
pids = [os.getpid(), *(worker.pid for worker in iterator._workers)]
print(sum(map(proportional, pids)))
"""


@pytest.mark.no_sanitizer("it measures memory")
def test_workers_share_the_dataset():
    program = run_program(MEMORY)
    out, err = program.communicate(timeout=100)
    assert err == "" and int(out) < 200e6  # eight copies would be 900 MB


def test_a_message_that_cannot_be_pickled_leaves_no_segment_behind():
    import socket

    from mica.utils.data._utils.channel import BatchReceiver, BatchSender

    here, there = socket.socketpair()
    with here, there:
        sender, receiver = BatchSender(here), BatchReceiver(there)
        large = mica.arange(50_000.0)
        addresses = set()
        for number in range(20):
            with pytest.raises(Exception, match="pickle"):
                sender.send(number, [large, large.numpy(), lambda: None])
            free = sender.pool.allocate(large.nbytes)
            addresses.add(free.data_ptr())
            del free
        assert len(addresses) <= 2  # one for the tensor, one for the array: they come back every time
        sender.send(20, [large, large * 2])
        number, (first, second) = receiver.receive()
        assert number == 20 and first.equal(large) and second.equal(large * 2)


def test_workers_of_other_libraries_say_who_they_are(monkeypatch):
    from mica.utils.data import get_worker_info
    from mica.utils.data._utils import worker

    assert worker._worker_info is None and get_worker_info() is None
    monkeypatch.setattr(worker, "_worker_info", worker.WorkerInfo(id=1, num_workers=4, seed=7, dataset=None))
    assert get_worker_info().id == 1 and get_worker_info().num_workers == 4
    monkeypatch.undo()
    assert get_worker_info() is None


def test_numpys_seeds_are_torchs():
    from mica.utils.data._utils.worker import _generate_state

    assert _generate_state(13434589827475259383, 4) == [2884386318, 1088094898, 3523808998, 3860348662]
    assert _generate_state(15014285634777110771, 1) == [1934848465, 763213760, 2959016433, 179751970]
