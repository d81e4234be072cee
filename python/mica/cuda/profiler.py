"""The switch of NVIDIA's profilers."""

import contextlib

__all__ = ["profile", "start", "stop"]


def start():
    raise RuntimeError("torch.cuda.profiler: Mica does not steer NVIDIA's profilers; torch.profiler records what runs")


stop = start


@contextlib.contextmanager
def profile():
    start()
    yield
