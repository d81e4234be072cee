"""What must not need NumPy, which Mica does not depend on: checkpoints in torch's older format, objects between ranks."""

import subprocess
import sys

PROGRAM = """
import io, sys
sys.modules["numpy"] = None
import mica
from mica.distributed.object_collectives import _from_tensor, _to_tensor

state = {"a": mica.arange(6.0).reshape(2, 3), "b": mica.tensor([True, False]), "none": mica.empty(0)}
file = io.BytesIO()
mica.save(state, file, _use_new_zipfile_serialization=False)
file.seek(0)
found = mica.load(file)
assert found.keys() == state.keys() and all(mica.equal(found[name], state[name]) for name in state)
data = _to_tensor({"step": 3, "names": ["x", "y"]})
assert _from_tensor(mica.cat([data, data.new_zeros(5)]), data.numel()) == {"step": 3, "names": ["x", "y"]}
print("done")
"""


def test_older_checkpoints_and_objects_of_ranks():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr
