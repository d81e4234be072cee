"""Forks while other threads are at work: a child has no other thread, and must not wait for one."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading, time
import mica
from mica.utils.data import TensorDataset

work_name, path, forks = sys.argv[1], sys.argv[2], int(sys.argv[3])
mica.save({"weight": mica.ones(300_000)}, path)
symmetric = mica.eye(100) * 3 + mica.ones(100, 100)
leaf = mica.zeros(100_000, requires_grad=True)
turn = [0]

def draw():
    mica.rand(300_000), mica.randn(50), mica.randperm(20), mica.Generator()  # a long call runs without Python's lock

def transform():
    turn[0] += 1
    mica.fft.fft(mica.ones(50, 64 + turn[0] % 700)), mica.fft.rfft(mica.ones(20_000 + 64 * (turn[0] % 700)))

def factorise():
    mica.linalg.eigh(symmetric), mica.linalg.solve(symmetric.expand(8, 100, 100), symmetric)

def load():
    mica.load(path, weights_only=True)

def allocate():
    for size in (10, 1000, 30_000, 100_000, 500_000):
        mica.ones(size)

def differentiate():
    (leaf * 2.0).sum().backward()

def multiply():
    mica.ones(300, 300) @ mica.ones(300, 300)

def describe():
    mica.set_printoptions(precision=4), repr(mica.ones(3)), mica.cpu.empty_cache()

@mica.compile
def chain(x, exponents):
    for exponent in exponents:  # each way through is a program of its own
        x = x + 1.0 if exponent else x * 2.0
    return x

def compile():
    turn[0] += 1
    chain(mica.ones(300_000), [turn[0] >> bit & 1 for bit in range(11)])

everything = dict(draw=draw, transform=transform, factorise=factorise, load=load, allocate=allocate,
                  differentiate=differentiate, multiply=multiply, describe=describe, compile=compile)
work = everything[work_name]
work()
stopping = False

def busy():
    while not stopping:
        work()

threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
status = 0
for _ in range(forks):
    pid = os.fork()
    if pid == 0:
        try:
            work(), allocate(), draw()
            if os.fork() == 0:  # and a child of the child
                work()
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        finally:
            os._exit(7)
    deadline = time.monotonic() + 30
    while True:
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            code = 256 * 99
            break
        time.sleep(0.0005)
    if code:
        status = os.waitstatus_to_exitcode(code)
        print("a child hangs" if status == 99 else f"a child ended with {status}", flush=True)
        break
stopping = True
for thread in threads:
    thread.join(20)
    assert not thread.is_alive(), "a thread of the parent hangs"
os._exit(status)
"""


@pytest.mark.no_sanitizer("a child of fork that starts threads is beyond what a sanitizer follows")
@pytest.mark.parametrize(
    "work",
    ["draw", "transform", "factorise", "load", "allocate", "differentiate", "multiply", "describe", "compile"],
)
def test_children_finish_while_threads_work(work, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, work, str(tmp_path / "file.pt"), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
