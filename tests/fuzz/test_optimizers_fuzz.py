"""Steps with spoilt states, gradients and options: a result or an exception, and what is seen to be wrong changes nothing."""

import json
import subprocess
import sys
from pathlib import Path

from optim_cases import OPTIMIZERS

HERE = Path(__file__).parent


def test_spoilt_steps():
    cases = [(key, seed) for key in OPTIMIZERS for seed in range(15)]
    paths = [HERE, HERE.parent / "ops", HERE.parent / "optim"]
    program = f"import sys; sys.path[:0] = {[str(p) for p in paths]}; import optimizer_cases; optimizer_cases.main()"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], input=json.dumps(cases), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
