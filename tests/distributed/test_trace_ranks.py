"""`mica trace --ranks N`: what the ranks of a program did together, on one page."""

import subprocess
import sys

PROGRAM = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    if dist.get_rank() == 1:
        time.sleep(0.2)
    dist.all_reduce(torch.ones(1000))
pair = dist.new_group([0, 1])
dist.broadcast(torch.ones(10), 0, group=pair)
dist.destroy_process_group()
"""


def trace(folder, *words):
    command = [sys.executable, "-m", "mica.cli", "trace", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def test_one_page_for_all_ranks(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = trace(tmp_path, "--ranks", "2", "-o", "page.html", "train.py")
    assert done.returncode == 0, done.stderr
    assert "rank 0: 4 collectives" in done.stderr and "rank 1: 4 collectives" in done.stderr
    assert "s for rank 1" in done.stderr and "train.py:10  all_reduce, 3 calls" in done.stderr
    page = (tmp_path / "page.html").read_text()
    for text in ("Who waited for whom", "for rank 1", "train.py:10", "train.py:12", "broadcast", "ms for rank 1"):
        assert text in page
    assert "<script" not in page


def test_a_program_that_fails_is_shown_with_what_it_did(tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    assert trace(tmp_path, "--ranks", "1", "train.py").returncode != 0
    assert "takes a number of processes, but got 0" in trace(tmp_path, "--ranks", "0", "train.py").stderr
