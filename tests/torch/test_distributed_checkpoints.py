"""Folders of torch.distributed.checkpoint: each library reads what the other has written."""

import subprocess
import sys
import textwrap

import mica
import mica.distributed.checkpoint as dcp
import pytest
import ranks

pytestmark = pytest.mark.torch

# Both programs are the same but for the library: its name stands in place of LIBRARY.
COMMON = """
import sys, warnings
import LIBRARY as torch
import LIBRARY.distributed.checkpoint as dcp
from LIBRARY.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
warnings.simplefilter("ignore")

def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def extras(value):
    return {
        "dtypes": {str(d): (torch.arange(4) * value).to(d) for d in (
            torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn)},
        "none": torch.empty(0, 3), "scalar": torch.tensor(2.5 * value), "list": [torch.ones(2) * value, {"deep": torch.full((3,), value)}],
        "step": value, "words": ["a", "b"] * value, "turned": (torch.arange(6.0).reshape(2, 3) * value).t(),
    }
"""
SAVE = """
model, optim = made(0)
model(torch.ones(5, 3) * torch.arange(5.0)[:, None]).square().sum().backward()
optim.step()
states, optim_states = get_state_dict(model, optim)
dcp.save({"model": states, "optim": optim_states, "extras": extras(3)}, checkpoint_id=sys.argv[1])
"""
LOAD = """
import hashlib
model, optim = made(1)
states, optim_states = get_state_dict(model, optim)
state = {"model": states, "optim": optim_states, "extras": extras(1)}
dcp.load(state, checkpoint_id=sys.argv[1])
set_state_dict(model, optim, model_state_dict=states, optim_state_dict=optim_states)

def shown(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.complex128).tolist()
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    return [shown(v) for v in value] if isinstance(value, (list, tuple)) else value

print(repr(shown([dict(model.state_dict()), optim.state_dict(), state["extras"]])))
"""


def _run(library, source, folder):
    program = textwrap.dedent(COMMON + source).replace("LIBRARY", library)
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("writer", ["torch", "mica"])
def test_each_reads_what_the_other_has_written(tmp_path, writer):
    _run(writer, SAVE, tmp_path)
    by_torch, by_mica = _run("torch", LOAD, tmp_path), _run("mica", LOAD, tmp_path)
    assert by_torch == by_mica and "0.weight" in by_torch and "exp_avg_sq" in by_torch


def _save_spread(rank, size):
    from mica.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh, whole = init_device_mesh("cpu", (size,)), mica.arange(35.0).reshape(5, 7)
    state = {f"by_{dim}": distribute_tensor(whole + dim, mesh, [Shard(dim)]) for dim in range(2)}
    dcp.save({**state, "same": whole, "step": 4}, checkpoint_id=sys.argv[1])


TORCH_READS = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
loaded, whole = _load_state_dict_from_keys(checkpoint_id=sys.argv[1]), torch.arange(35.0).reshape(5, 7)
print([torch.equal(loaded["by_0"], whole), torch.equal(loaded["by_1"], whole + 1), torch.equal(loaded["same"], whole), loaded["step"]])
"""


def test_torch_reads_what_several_ranks_have_written(tmp_path):
    start = "import mica.distributed.checkpoint as dcp; dist.init_process_group('gloo')"
    ranks.run(2, _save_spread, init=start, script_arguments=[str(tmp_path)])
    assert len(list(tmp_path.glob("*.distcp"))) == 2
    done = subprocess.run([sys.executable, "-c", TORCH_READS, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "[True, True, True, 4]\n", done.stderr
