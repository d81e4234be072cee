"""The seam of backends, seen from Python with backends that the core knows nothing of: tests/backends/stub.

An opened backend stays, and is the accelerator: its tests have a process of their own. CUDA would be the accelerator
before it, so that its devices are hidden there.
"""

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "stub"


def run_cases(file):
    # Runs a plain pytest: plugins of the machine would take it for a worker of the run that started it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES / file)],
        capture_output=True, text=True, env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]


def test_stub_backend():
    run_cases("stub_cases.py")


def test_slots_write_over_garbage():
    run_cases("strict_cases.py")


def test_a_backend_that_fuses_calls():
    run_cases("fusing_cases.py")


def test_products_of_one_row_on_a_backend_that_fuses_calls():
    run_cases("fusing_rows_cases.py")
