"""Threads of Python that run operations."""

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import threading, time
    import mica

    def work():
        x = mica.randn(300, 300)
        while True:
            x = (x @ x).tanh()

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    print("end")
    """
)


def test_the_interpreter_ends_while_daemon_threads_compute():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
