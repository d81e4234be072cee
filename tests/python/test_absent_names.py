"""Names of torch's that Mica does not have: absent for everyone who asks, but for a list of names that can be imported."""

import os
import pathlib
import subprocess
import sys

import mica
import pytest
from mica._as_torch.importable import LISTED

PACKAGE_PARENT = str(pathlib.Path(mica.__file__).parent.parent.absolute())
RECORDED = pathlib.Path(__file__).parent.parent / "recorded" / "torch_names.txt"


def run(program):
    start = "from mica._as_torch.alias import install; install()\nimport torch\n"
    environment = {**os.environ, "PYTHONPATH": PACKAGE_PARENT}
    done = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


WAYS = """
import contextlib, importlib
def plainly(module, name):
    exec(f'from {module} import {name}', {})
def in_a_with_block(module, name):
    with contextlib.nullcontext():
        exec(f'from {module} import {name}', {})
def asked(module, name):
    assert hasattr(importlib.import_module(module), name)
def used(module, name):
    eval(f'{module}.{name}', {'torch': torch})
def seen(module, name):
    found = []
    for way in (plainly, in_a_with_block, asked, used):
        try:
            way(module, name)
            found.append(True)
        except (ImportError, AttributeError, AssertionError):
            found.append(False)
    return found
"""


def test_every_way_to_ask_sees_the_same():
    names = [("torch.distributed.fsdp", "FSDPModule"), ("torch", "TensorType"), ("torch.distributed", "fsdp"),
             ("torch.distributed.fsdp", "NoSuchThing"), ("torch", "_cslt_compress"), ("torch", "no_such_function"),
             ("torch.distributed", "_shard"), ("torch.nn.functional", "no_such_function")]  # fmt: skip
    lines = run(WAYS + f"for each in {names!r}: print(*set(seen(*each)))").splitlines()
    assert lines == ["True"] * 3 + ["False"] * 5


def test_an_import_within_try_is_like_any_other():
    program = """
def bare():
    import torch.distributed.fsdp.api
def tried():
    try:
        import torch.distributed.fsdp.api
    except ImportError:
        return 'no'
def missing():
    try:
        import torch.distributed._shard
    except ImportError as error:
        return error.name
print(bare(), tried(), missing())
try:
    torch._cslt_compress
except AttributeError as error:
    print(error)
"""
    lines = run(program).splitlines()
    assert lines == ["None None torch.distributed._shard", "module 'torch' has no attribute '_cslt_compress'"]


def test_what_is_listed_can_be_named_and_not_used():
    program = """
from torch.distributed._composable.fsdp.fully_shard import FSDPModule as Sharded
from torch._higher_order_ops.inline_asm_elementwise import inline_asm_elementwise
assert not isinstance(torch.ones(1), Sharded) and Sharded.__name__ == 'FSDPModule'
assert not hasattr(Sharded, 'no_such_member')
def f(module: Sharded | None = None) -> 'Sharded': ...
import typing; typing.get_type_hints(f)
class Mine(Sharded): pass
for use in (lambda: Sharded(1), lambda: Mine(), lambda: inline_asm_elementwise(f)):
    try: use()
    except NotImplementedError as error: print(error)
"""
    lines = run(program).splitlines()
    assert lines[0].startswith("torch.distributed._composable.fsdp.fully_shard.FSDPModule is not in Mica")
    assert len(lines) == 3 and "inline_asm_elementwise is not in Mica" in lines[2]


def torch_has():
    """The names of torch's modules: {module: names}."""
    found = {}
    for line in RECORDED.read_text().splitlines():
        module, *groups, imported = line.split("\t")
        names = {name for group in groups for name in group.split()}
        found[module.rstrip("/")] = names | {pair.partition("=")[0] for pair in imported.split()}
    return found


def test_the_list_holds_names_that_torch_has_and_mica_lacks():
    recorded = torch_has()
    for module, names, reason in LISTED:
        assert reason and (module in recorded or module == "_C"), module
        for name in names.split():
            assert module == "_C" or name in recorded[module], (module, name)
    asks = [(module, name) for module, names, _ in LISTED for name in names.split()]
    # Without the alias there is no list, so a name that Mica has then must not be listed.
    program = f"""
import importlib, mica
for module, name in {asks!r}:
    try: found = importlib.import_module('mica.' + module if module else 'mica')
    except ImportError: continue
    if hasattr(found, name): print(module, name)
"""
    environment = {**os.environ, "PYTHONPATH": PACKAGE_PARENT}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_list_is_short():
    assert sum(len(names.split()) for _, names, _ in LISTED) < 70


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
print(hasattr(torch._C._distributed_c10d, 'NoSuchGroup'), torch._C.Tag is torch.Tag)
"""
    assert run(program).split() == ["torch.float32", "0.0", "None", "False", "False", "True"]


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


# ---- small names of torch's that packages take from inner modules


def test_strides_of_shapes():
    from mica._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format

    for shape in ((2, 3, 4), (), (0, 3), (2, 0, 5)):
        assert make_contiguous_strides_for(shape) == mica.empty(shape).stride()
    assert make_contiguous_strides_for((2, 3, 4), row_major=False) == (12, 1, 3)
    x = mica.empty(2, 3, 4, 5).contiguous(memory_format=mica.channels_last)
    assert make_channels_last_strides_for(x.shape) == x.stride()
    assert suggest_memory_format(x) == mica.channels_last
    assert suggest_memory_format(x.contiguous()) == mica.contiguous_format


def test_a_tensor_takes_the_place_of_a_parameter():
    from mica.nn.utils._named_member_accessor import swap_tensor

    layer = mica.nn.Linear(2, 2)
    weight = layer.weight
    assert swap_tensor(layer, "weight", mica.zeros(2, 2)) is weight and layer(mica.ones(2)).equal(layer.bias)
    swap_tensor(layer, "weight", weight)
    assert layer.weight is weight
    with pytest.raises(AttributeError, match="Linear has no attribute `other`"):
        swap_tensor(layer, "other", weight)


def test_elements_as_text():
    text = mica._tensor_str._tensor_str
    assert text(mica.arange(4.0).reshape(2, 2), 3) == "[[0., 1.],\n    [2., 3.]]"
    assert text(mica.tensor(3.0, dtype=mica.float64), 0) == "3." and text(mica.empty(0, 3), 0) == "[]"


def test_questions_and_small_tools():
    from mica._dynamo.utils import warn_once
    from mica._higher_order_ops.out_dtype import out_dtype
    from mica.utils._triton import has_triton

    assert not has_triton() and mica.distributed.rpc.is_available() is False
    x = mica.full((2, 2), 100, dtype=mica.int8)
    product = out_dtype(mica.ops.aten.mm.default, mica.int32, x, x)
    assert product.dtype == mica.int32 and product[0, 0] == 20000
    assert mica._utils._get_device_module("cpu") is mica.cpu
    with pytest.raises(RuntimeError, match="'npu' does not have a corresponding module"):
        mica._utils._get_device_module("npu")
    assert mica._has_compatible_shallow_copy_type(x, mica.ones(3))
    assert not mica._has_compatible_shallow_copy_type(x, mica.ones(3).to_sparse())
    assert isinstance(x.untyped_storage(), mica.StorageBase)
    assert mica.serialization.normalize_storage_type(mica.FloatStorage) is mica.FloatStorage
    with pytest.warns(UserWarning, match="only this once") as caught:
        warn_once("only this once")
        warn_once("only this once")
    assert len(caught) == 1
