"""A process of a command line in a session of its own, which ends with the launcher."""

import contextlib
import ctypes
import os
import signal
import subprocess

__all__ = ["SubprocessHandler"]

_PR_SET_PDEATHSIG = 1


def dying_with_parent():
    """What a child runs before its program: it is killed when the launcher dies, even by SIGKILL.

    Signals that the launcher ignores or blocks at that moment are not inherited as such.
    """
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare():
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the launcher has died meanwhile
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return prepare


class SubprocessHandler:
    """A process that was started."""

    def __init__(self, entrypoint, args, env, stdout, stderr, local_rank_id, numa_options=None):
        if numa_options is not None:
            raise NotImplementedError("binding processes to the CPUs of a NUMA node is not in Mica yet")
        self.local_rank_id = local_rank_id
        with contextlib.ExitStack() as files:  # the process has them open once it is started
            self.proc = subprocess.Popen(
                (entrypoint, *map(str, args)),
                env={**os.environ, **env},
                stdout=files.enter_context(open(stdout, "w")) if stdout else None,
                stderr=files.enter_context(open(stderr, "w")) if stderr else None,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )

    def close(self, death_sig=None):
        """Send a signal to the process and to those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.proc.pid, death_sig or signal.SIGTERM)
