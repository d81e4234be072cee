"""The package: what an import costs, and the functions that are said in Python."""

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import mica
import pytest
from cpu_work import unit


def in_a_fresh_process(program):
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.no_sanitizer("it measures time and memory")
def test_import_is_light():
    program = """
import resource, sys, time
loaded = set(sys.modules)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
import mica
print((time.process_time() - start) * 1000, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
heavy = {'numpy', 'typing', 'inspect', 'dataclasses', 'subprocess', 'multiprocessing', 'asyncio', 'mica.demo', 'mica.testing'}
heavy |= {'collections', 'contextlib', 'functools', 'importlib', 'math', 'types', 'warnings'}
heavy -= loaded
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    runs = [tuple(map(float, in_a_fresh_process(program).split())) for _ in range(3)]
    work = 1000 * unit()
    assert min(time for time, _ in runs) < 8 * work and min(memory for _, memory in runs) < 40, (runs, work)


def test_names():
    assert mica.__version__ == mica.version.__version__ == "0.1.0"
    assert (mica.inf, mica.pi, mica.e, mica.newaxis) == (float("inf"), 3.141592653589793, 2.718281828459045, None)
    assert mica.nan != mica.nan
    for name in ("autograd", "cuda", "nn", "overrides", "testing", "utils", "backends", "random", "storage"):
        assert getattr(mica, name).__name__ == f"mica.{name}"
    with pytest.raises(AttributeError, match="module 'mica' has no attribute 'nothing'"):
        mica.nothing  # noqa: B018
    scope = {}
    exec("from mica import *", scope)
    assert scope["no_grad"] is mica.no_grad and scope["einsum"] is mica.einsum


def test_functional_has_the_operations():
    f = mica.nn.functional
    for name in ["relu", "gelu", "softmax", "layer_norm", "rms_norm", "embedding", "one_hot", "pad", "dropout"]:
        assert callable(getattr(f, name)), name


def test_einsum_forms():
    a, b = mica.arange(6.0).reshape(2, 3), mica.arange(12.0).reshape(3, 4)
    expected = (a @ b).tolist()
    assert mica.einsum("ij,jk->ik", a, b).tolist() == expected
    assert mica.einsum("ij,jk", [a, b]).tolist() == expected
    assert mica.einsum(a, [0, 1], b, [1, 2]).tolist() == expected
    assert mica.einsum(a, [0, 1], b, [1, 2], [2, 0]).tolist() == (a @ b).t().tolist()
    assert mica.einsum(a, [..., 1], b, [1, 2]).tolist() == expected
    with pytest.raises(ValueError, match="at least one operand"):
        mica.einsum("ij")
    with pytest.raises(ValueError, match="not within the valid range"):
        mica.einsum(a, [60, 1])


def test_tensordot():
    a, b = mica.arange(6.0).reshape(2, 3), mica.arange(12.0).reshape(3, 4)
    for dims in (1, ([1], [0]), mica.tensor([[1], [0]]), mica.tensor(1)):
        assert mica.tensordot(a, b, dims).tolist() == (a @ b).tolist()
    assert mica.tensordot(a, b, 0).shape == (2, 3, 3, 4)
    out = mica.empty(2, 4)
    assert mica.tensordot(a, b, 1, out=out) is out and out.tolist() == (a @ b).tolist()
    with pytest.raises(RuntimeError, match="dims >= 0"):
        mica.tensordot(a, b, -1)
    with pytest.raises(RuntimeError, match="ndim_a or ndim_b"):
        mica.tensordot(a, b, 3)


def test_unique():
    x = mica.tensor([3, 1, 3])
    values, inverse, counts = mica.unique(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 3], [1, 0, 1], [1, 2])
    assert x.unique().tolist() == [1, 3] and len(x.unique(return_counts=True)) == 2
    assert mica.unique(mica.tensor([[3, 1], [3, 1]]), dim=0).tolist() == [[3, 1]]
    assert mica.unique_consecutive(mica.tensor([3, 3, 1, 3])).tolist() == [3, 1, 3]


def test_split():
    x = mica.arange(5)
    for split in (mica.split, mica.Tensor.split):
        assert [part.tolist() for part in split(x, 2)] == [[0, 1], [2, 3], [4]]
        assert [part.tolist() for part in split(x, [2, 3])] == [[0, 1], [2, 3, 4]]
        assert [part.tolist() for part in split(x, mica.tensor(3))] == [[0, 1, 2], [3, 4]]
    with pytest.raises(RuntimeError, match="sum exactly to 5"):
        mica.split(x, [2, 2])


def test_several_tensors():
    one, two = mica.arange(2), mica.arange(3)
    x, y = mica.meshgrid(one, two, indexing="ij")
    assert x.tolist() == [[0, 0, 0], [1, 1, 1]] and y.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert mica.meshgrid([one, two], indexing="xy")[0].tolist() == [[0, 1]] * 3
    assert mica.cartesian_prod(one, one).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert mica.block_diag(mica.ones(1, 2), mica.tensor(3.0)).tolist() == [[1, 1, 0], [0, 0, 3]]
    assert [t.shape for t in mica.broadcast_tensors(mica.ones(2, 1), mica.ones(3))] == [(2, 3)] * 2
    assert mica.atleast_1d(mica.tensor(1)).shape == (1,)
    assert [t.shape for t in mica.atleast_2d(mica.tensor(1), mica.ones(2))] == [(1, 1), (1, 2)]
    assert mica.atleast_3d([mica.ones(2)])[0].shape == (1, 2, 1)


def test_broadcast_shapes():
    assert mica.broadcast_shapes((3, 1), (1, 4)) == (3, 4) and mica.broadcast_shapes(2, (1, 2)) == (1, 2)
    assert mica.broadcast_shapes() == () and mica.broadcast_shapes((0,), (1,)) == (0,)
    with pytest.raises(RuntimeError, match="Attempting to broadcast a dimension of length 3"):
        mica.broadcast_shapes((2,), (3,))
    with pytest.raises(ValueError, match="negative length"):
        mica.broadcast_shapes((-1,))


def test_nonzero():
    x = mica.tensor([[1, 0], [0, 2]])
    assert mica.nonzero(x).tolist() == x.nonzero().tolist() == [[0, 0], [1, 1]]
    assert [i.tolist() for i in mica.nonzero(x, as_tuple=True)] == [[0, 1], [0, 1]]
    assert x[x.nonzero(as_tuple=True)].tolist() == [1, 2]


def test_histogramdd():
    hist, edges = mica.histogramdd(mica.tensor([[0.0, 1.0], [1.0, 0.0]]), bins=[2, 2])
    assert hist.tolist() == [[0, 1], [1, 0]] and [e.tolist() for e in edges] == [[0, 0.5, 1]] * 2


def test_functions_ask_subclasses():
    seen = []

    class Asked(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = mica.ones(2, 2).as_subclass(Asked)
    mica.einsum("ij,jk", x, x)
    mica.unique(x)
    mica.block_diag(x, x)
    assert {mica.einsum, mica.unique, mica.block_diag} <= set(seen)


def test_apply_and_map():
    assert mica.ones(2, 2).apply_(lambda v: v * 2).tolist() == [[2, 2], [2, 2]]
    assert mica.ones(3).map_(mica.arange(3.0), lambda a, b: a + b).tolist() == [1, 2, 3]
    x = mica.arange(4).reshape(2, 2)
    x.t().apply_(lambda v: v + 1)
    assert x.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(RuntimeError, match="requires grad"):
        mica.ones(1, requires_grad=True).apply_(float)


def test_dim_order():
    assert mica.ones(2, 3).dim_order() == (0, 1) and mica.ones(2, 3).t().dim_order() == (1, 0)
    assert mica.ones(2, 3, 4, 5).to(memory_format=mica.channels_last).dim_order() == (0, 2, 3, 1)
    with pytest.raises(RuntimeError, match="unique dim order"):
        mica.ones(1, 1).dim_order(ambiguity_check=True)


def test_determinism_settings():
    assert not mica.are_deterministic_algorithms_enabled() and mica.get_deterministic_debug_mode() == 0
    try:
        mica.use_deterministic_algorithms(True, warn_only=True)
        assert mica.is_deterministic_algorithms_warn_only_enabled() and mica.get_deterministic_debug_mode() == 1
        mica.set_deterministic_debug_mode("error")
        assert mica.get_deterministic_debug_mode() == 2
        with pytest.raises(RuntimeError, match="expected 0, 1, or 2"):
            mica.set_deterministic_debug_mode(5)
    finally:
        mica.use_deterministic_algorithms(False)


def test_other_settings():
    assert mica.get_float32_matmul_precision() == "highest"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mica.set_float32_matmul_precision("low")
    assert len(seen) == 1 and mica.get_float32_matmul_precision() == "highest"
    assert mica.get_num_interop_threads() > 0
    with pytest.raises(RuntimeError, match="positive"):
        mica.set_num_interop_threads(0)
    assert mica.typename(mica.ones(1)) == "torch.FloatTensor" and mica.typename(3) == "int"


def test_flush_denormal():
    tiny = mica.full((4,), 1e-310, dtype=mica.float64)
    try:
        if mica.set_flush_denormal(True):
            assert (tiny * 1).tolist() == [0] * 4
    finally:
        mica.set_flush_denormal(False)
    assert (tiny * 1).tolist() == [1e-310] * 4


def test_random_state():
    state = mica.get_rng_state()
    a = mica.rand(3)
    mica.set_rng_state(state)
    assert mica.equal(a, mica.rand(3)) and state.dtype == mica.uint8
    mica.manual_seed(3)
    assert mica.initial_seed() == 3
    with mica.random.fork_rng():
        a = mica.rand(3)
    assert mica.equal(a, mica.rand(3))
    with mica.random.fork_rng(enabled=False):
        a = mica.rand(3)
    assert not mica.equal(a, mica.rand(3))


@pytest.mark.parametrize("first", ["einops", "mica"])
def test_einops(first):
    pytest.importorskip("einops")
    second = "mica" if first == "einops" else "einops"
    program = f"""
import {first}; import {second}
from einops import einsum, rearrange, reduce, repeat
x = mica.arange(24.).reshape(2, 3, 4)
y = rearrange(x, 'b s (h d) -> b h s d', h=2)
assert y.shape == (2, 2, 3, 2) and y.data_ptr() == x.data_ptr()
assert mica.equal(reduce(x, 'b s d -> b d', 'mean'), x.mean(1)) and reduce(x, 'b s d -> ', 'max').item() == 23
assert repeat(x, 'b s d -> b s d k', k=3).shape == (2, 3, 4, 3)
assert rearrange([x, x], 'n b s d -> (n b) s d').shape == (4, 3, 4)
assert mica.equal(einsum(x, x, 'b s d, b t d -> b s t'), x @ x.mT)
"""
    in_a_fresh_process(program)


def test_type_stubs_know_the_functions_and_methods():
    package = Path(mica.__file__).parent
    assert (package / "py.typed").exists()
    tree = ast.parse((package / "_C.pyi").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    tensor = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    methods = {node.name for node in tensor.body if isinstance(node, ast.FunctionDef)}
    assert len(functions) > 400 and all(hasattr(mica._C, name) for name in functions)
    assert len(methods) > 500 and all(hasattr(mica.Tensor, name) for name in methods)
    for stub, space in (
        ("_nn_functional.pyi", "_nn_functional"),
        ("_nn_init.pyi", "_nn_init"),
        ("_special.pyi", "_special"),
    ):
        names = {
            node.name for node in ast.parse((package / stub).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert names and all(hasattr(getattr(mica._C, space), name) for name in names)


def test_type_hints_of_modules():
    import typing

    for name in ("Linear", "CrossEntropyLoss", "LayerNorm", "ReLU", "LSTM"):
        assert typing.get_type_hints(getattr(mica.nn, name))["training"] is bool
    assert typing.get_type_hints(mica.nn.CrossEntropyLoss())["ignore_index"] is int
