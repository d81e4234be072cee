"""torch.multiprocessing.start_processes and spawn: how failures are reported, and that no process is left."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import mica
import mica.multiprocessing as mp
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def _fail_with_a_long_text(rank):
    if rank == 1:
        raise ValueError("long " * 100_000)
    time.sleep(60)


def _end(rank, how):
    if rank == 1:
        os.kill(os.getpid(), how) if how > 0 else os._exit(-how)
    time.sleep(60)


def test_a_failure_is_reported_with_its_traceback_however_long():
    with pytest.raises(mp.ProcessRaisedException, match="Process 1 terminated with the following error") as caught:
        mp.start_processes(_fail_with_a_long_text, nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and caught.value.error_pid > 0
    assert "long long" in str(caught.value) and "_fail_with_a_long_text" in str(caught.value)


def test_signals_and_exit_codes_are_reported():
    with pytest.raises(mp.ProcessExitedException, match="process 1 terminated with signal SIGKILL") as caught:
        mp.start_processes(_end, (int(signal.SIGKILL),), nprocs=2, start_method="fork")
    assert (caught.value.exit_code, caught.value.signal_name) == (-9, "SIGKILL")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.error_index, again.error_pid, again.exit_code) == (1, caught.value.error_pid, -9)
    with pytest.raises(mp.ProcessExitedException, match="process 1 terminated with exit code 7"):
        mp.start_processes(_end, (-7,), nprocs=2, start_method="fork")


def test_processes_are_waited_for_one_after_the_other():
    context = mp.start_processes(_sleep, (0.2,), nprocs=2, join=False, start_method="fork")
    assert len(context.pids()) == 2 and context.join(timeout=0.01) is False
    while not context.join(timeout=5):
        pass
    assert context.join() is True


def _sleep(rank, seconds):
    time.sleep(seconds * (rank + 1))


def test_spawn_spawns():
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        context = mp.spawn(os.getpid, nprocs=0, join=False, start_method="fork")
    assert context.pids() == [] and context.join()
    with pytest.warns(UserWarning, match="SpawnContext is renamed to ProcessContext"):
        mp.SpawnContext([], [])


PARENT = r"""
import os, time
import mica.multiprocessing as mp

def work(rank):
    os.write(1, b"%d\n" % os.getpid())  # One write: print may write the end of its line by itself.
    time.sleep(60)

if __name__ == "__main__":
    mp.start_processes(work, nprocs=2, start_method="fork")
"""


@pytest.mark.parametrize("ignored", [False, True])
def test_processes_end_with_the_one_that_has_started_them(ignored, tmp_path):
    interruption = "signal.SIG_IGN" if ignored else "signal.default_int_handler"  # as in a shell's background, or not
    (tmp_path / "parent.py").write_text(f"import signal\nsignal.signal(signal.SIGINT, {interruption})\n" + PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(mica.__file__).parent.parent.absolute())}
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
    finally:
        parent.kill()
        parent.communicate(timeout=20)
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)
