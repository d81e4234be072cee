"""Names of torch's that Mica does not have: they can be imported, and fail when they are used."""

import os
import pathlib
import subprocess
import sys

import mica

PACKAGE_PARENT = str(pathlib.Path(mica.__file__).parent.parent.absolute())


def run(program):
    start = "from mica._as_torch.alias import install; install()\nimport torch\n"
    environment = {**os.environ, "PYTHONPATH": PACKAGE_PARENT}
    done = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_and_classes_can_be_named():
    program = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
import torch.distributed.checkpoint.state_dict as state
from torch.distributed.pipelining import ScheduleGPipe
assert not isinstance(torch.ones(1), FSDP) and FSDP.__name__ == 'FullyShardedDataParallel'
assert ShardingStrategy.FULL_SHARD is ShardingStrategy.FULL_SHARD != StateDictType.FULL_STATE_DICT
def f(model: FSDP | None = None, strategy=ShardingStrategy.FULL_SHARD) -> 'FSDP': ...
import typing; typing.get_type_hints(f)
class Mine(FSDP): pass
for use in (lambda: FSDP(1), lambda: Mine(), lambda: state.get_model_state_dict(1), lambda: ScheduleGPipe()):
    try: use()
    except NotImplementedError as error: print(error)
"""
    lines = run(program).splitlines()
    assert lines[0] == "torch.distributed.fsdp.FullyShardedDataParallel is not in Mica: Mica computes in one process"
    assert len(lines) == 4 and lines[3].startswith("torch.distributed.pipelining.ScheduleGPipe is not in Mica")


def test_imports_that_are_tried_fail():
    program = """
try:
    import torch.distributed.rpc
    print('no')
except ImportError as error:
    print(error.name)
try:
    from torch.distributed.rpc import RRef
    print('no')
except ImportError:
    print('tried')
import importlib.util
print(hasattr(torch, 'no_such_function'), hasattr(torch.distributed, 'fsdp'))
try:
    from torch.nn.functional import no_such_function
except ImportError as error:
    print(error.name)
"""
    assert run(program).split() == ["torch.distributed.rpc", "tried", "False", "False", "torch.nn.functional"]


def test_exceptions_are_exceptions():
    program = """
from torch._dynamo.exc import Unsupported
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
try: raise ChildFailedError('gone')
except ChildFailedError as error: print(error)
"""
    assert run(program) == "gone\n"


def test_what_torch_does_not_have_is_missing():
    program = """
try: from torch.distributed.fsdp import NoSuchThing
except ImportError as error: print('missing')
import torch.distributed.fsdp
print(hasattr(torch.distributed.fsdp, 'NoSuchThing'), hasattr(torch.distributed.fsdp, 'CPUOffload'))
"""
    assert run(program).split() == ["missing", "False", "True"]


def test_the_engines_names():
    program = """
torch._C._log_api_usage_once('x')
from torch._C import DispatchKey, DispatchKeySet
from torch._C._distributed_c10d import ReduceOp
import torch._C._nn
keys = DispatchKeySet(DispatchKey.AutocastCPU)
with torch.autocast('cpu', dtype=torch.bfloat16), torch._C._ExcludeDispatchKeyGuard(keys):
    print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
print(torch._C._nn.gelu(torch.zeros(1)).item(), torch._C._get_tracing_state(), isinstance(1, torch.SymInt))
"""
    assert run(program).split() == ["torch.float32", "0.0", "None", "False"]


def test_names_beside_modules_of_mica():
    program = """
from torch.nn.modules.transformer import Tensor, MultiheadAttention
from torch.distributed._tensor.experimental import implicit_replication
from torch.utils._triton import has_triton
from torch._inductor.lowering import register_lowering
assert Tensor is torch.Tensor and MultiheadAttention is torch.nn.MultiheadAttention and not has_triton()
@register_lowering(torch.ops.aten.add.Tensor)
def lowered(x): return x
@torch.distributed.rpc.api._require_initialized
def remote(x): return x
print(lowered(3), str(torch.quint4x2), hasattr(torch, '_cslt_compress'), torch.distributed.fsdp.CPUOffload.__name__)
for use in (lambda: torch._cslt_compress(1), lambda: remote(1)):
    try: use()
    except NotImplementedError as error: print(error)
try: torch._cslt_compress
except AttributeError: print('tried')
"""
    lines = run(program).splitlines()
    assert lines[0] == "3 torch.quint4x2 False CPUOffload"
    assert lines[1].startswith("torch._cslt_compress is not in Mica") and "_require_initialized" in lines[2]
    assert lines[3] == "tried"


def test_functorch_comes_with_torch():
    program = """
import functorch
net = torch.nn.Linear(2, 1)
function, parameters = functorch.make_functional(net)
x = torch.ones(3, 2)
assert torch.equal(function(parameters, x), net(x)) and isinstance(function, functorch.FunctionalModule)
print(functorch.vmap(torch.sum)(x).tolist())
"""
    assert run(program) == "[2.0, 2.0, 2.0]\n"


def test_functorch_is_ours_even_beside_another(tmp_path):
    (tmp_path / "functorch").mkdir()
    (tmp_path / "functorch" / "__init__.py").write_text("raise ImportError('of another torch')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport functorch; print(functorch.vmap.__module__)"
    assert run(program) == "torch.func\n"
