"""What torch's tests of its compilers ask for before they test: whether tools are there, counters to set back, a log to listen to.

Names that programs use are Mica's own. What stands here is of use to torch's tests alone, by the name below torch that they
have it under.
"""

import contextlib
import itertools
import logging
import types


def _no(*args, **kwargs):
    return False


def _nothing(*args, **kwargs):
    return None


def _decorator(*args, **kwargs):
    return lambda given: given


def _marked(given=None, **options):
    """What a decorator with arguments or without has marked."""
    return given or (lambda function: function)


def _by_default(static, dynamic):
    """What a test expects of sizes that are fixed by default, and of those that are not."""
    import torch

    return static if torch._dynamo.config.assume_static_by_default else dynamic


class _CompileCounterInt(int):
    pass


def _is_tensor_constructor(function):
    """Whether an operator makes a tensor of none."""
    schema = function._schema
    given = any("Tensor" in str(a.type) for a in schema.arguments)
    return not given and len(schema.returns) == 1 and "Tensor" in str(schema.returns[0].type)


def _fake_map(function, xs, *args):
    """What torch's tests compare map with: a loop."""
    from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten(xs)
    rows = [function(tree_unflatten(list(row), spec), *args) for row in zip(*leaves, strict=True)]
    return tree_map(lambda *each: _stacked(each), *rows)


def _fake_scan(combine_fn, init, xs=None, dim=0, reverse=False):
    """What torch's tests compare scan with: a loop."""
    from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    carry, rows = init, []
    places = range(leaves[0].size(dim))
    for i in reversed(places) if reverse else places:
        carry, out = combine_fn(carry, tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec))
        rows.append(out)
    rows = rows[::-1] if reverse else rows
    return carry, tree_map(lambda *each: _stacked(each, dim), *rows)


def _stacked(each, dim=0):
    import torch

    made = torch.stack(each)
    return made.movedim(0, dim) if dim < made.dim() else made


def _run_and_get_code(function, *args, **kwargs):
    """What a function returns, and the code that was generated for it: there is none."""
    import torch

    torch._dynamo.reset()
    return function(*args, **kwargs), [""]


def _run_fw_bw_and_get_code(function):
    """The same with a backward pass of the sum."""

    def run():
        result = function()
        result.sum().backward()
        return result

    return _run_and_get_code(run)


def _context(*args, **kwargs):
    return contextlib.nullcontext()


def _unwrap_steps():
    """Tests take the wrappers off an optimizer's step, of which there are none here."""
    import torch

    for found in vars(torch.optim).values():
        step = getattr(found, "step", None) if isinstance(found, type) else None
        if isinstance(step, types.FunctionType):
            step.__wrapped__ = types.SimpleNamespace(__wrapped__=step)


class _Device:
    """What a test asks of a device: whether it has a dtype. The processor has all."""

    @staticmethod
    def is_dtype_supported(dtype, including_emulation=True):
        return True


GIVEN = {
    "_C._autograd._saved_tensors_hooks_enable": _nothing,
    "_C._PreserveDispatchKeyGuard": _context,
    "_C._has_mkldnn": True,
    "_C._profiler.symbolize_tracebacks": lambda tracebacks: [[] for _ in tracebacks],  # for the lines of logs
    "_dispatch.python.enable_python_dispatcher": contextlib.nullcontext,  # which way torch calls its own operators
    "_dynamo.eval_frame.TorchPatcher.patch": _unwrap_steps,
    "_dynamo.device_interface.get_interface_for_device": lambda device: _Device,
    "_dynamo.utils.CompileCounterInt": _CompileCounterInt,
    "_dynamo.utils.ifdynstaticdefault": _by_default,
    "_dynamo.utils.ReinplaceCounters": types.SimpleNamespace(
        clear=_nothing,
        get_total_missed=lambda: 0,
        get_total_missed_bytes=lambda: 0,
    ),
    "_dynamo.utils.range_iterator": type(iter(range(0))),
    "_dynamo.utils.disable_cache_limit": _decorator,
    "_functorch.aot_autograd.AOT_COUNTER": itertools.count(),  # by which torch's logs number graphs
    "_export.config": types.SimpleNamespace(patch=lambda **options: contextlib.nullcontext()),  # which of two tracers
    "_functorch._aot_autograd.autograd_cache.AOTAutogradCache": types.SimpleNamespace(
        clear=_nothing
    ),  # Mica keeps none
    "_higher_order_ops.InvokeQuant": _nothing,
    "_higher_order_ops.map._fake_map": _fake_map,
    "_higher_order_ops.scan._fake_scan": _fake_scan,
    "_higher_order_ops.invoke_subgraph.mark_compile_region": _marked,  # graphs that torch compiles once
    "_export.config.patch": _context,
    "_is_functional_tensor": _no,
    "_inductor.codecache.CppCodeCache.load": _nothing,  # whether there is a compiler of C++
    "_inductor.cpu_vec_isa.pick_vec_isa": _nothing,
    "_inductor.cpu_vec_isa.valid_vec_isa_list": list,
    "_inductor.lowering.force_fallback": _decorator,  # kernels of the library, which is what runs here
    "_subclasses.fake_tensor._is_tensor_constructor": _is_tensor_constructor,
    "_inductor.metrics.reset": _nothing,
    "_inductor.utils.get_gpu_type": lambda: "cuda",
    "_inductor.utils.GPU_TYPES": ("cuda",),
    "_inductor.utils.has_torchvision_roi_align": _no,
    "_inductor.utils.is_gpu": _no,
    "_inductor.utils.is_mkldnn_bf16_supported": lambda device: True,
    "_inductor.utils.is_mkldnn_fp16_supported": lambda device: True,
    "_inductor.utils.run_and_get_code": _run_and_get_code,
    "_inductor.utils.run_and_get_cpp_code": lambda *args, **kwargs: (_run_and_get_code(*args, **kwargs)[0], ""),
    "_inductor.utils.run_and_get_kernels": lambda *args, **kwargs: (_run_and_get_code(*args, **kwargs)[0], []),
    "_inductor.utils.run_and_get_triton_code": lambda *args, **kwargs: "",
    "_inductor.utils.timed": lambda model, inputs, times=1, device="cpu": 1.0,
    "_inductor.utils.run_fw_bw_and_get_code": _run_fw_bw_and_get_code,
    "_logging._internal._get_log_state": _nothing,
    "_logging._internal._init_logs": _nothing,
    "_logging._internal._set_log_state": _nothing,
    "_logging._internal.LogState": _nothing,
    "_logging._internal.log_registry": types.SimpleNamespace(get_log_qnames=list),
    "_logging._internal.log_state": types.SimpleNamespace(clear=_nothing),
    "_logging._internal.trace_log": logging.getLogger("torch.__trace"),
    "cuda._is_compiled": _no,
    "ops.mkldnn._is_mkldnn_bf16_supported": lambda: True,
    "ops.mkldnn._is_mkldnn_fp16_supported": lambda: True,
    "_utils_internal.full_aoti_runtime_assert": _no,
    "utils._helion.has_helion": _no,
    "utils._pallas.has_pallas_package": _no,
    "utils._pallas.has_tpu_pallas": _no,
    "utils._pytree._cxx_pytree_dynamo_traceable": False,
    "utils._triton.has_triton": _no,
    "utils._triton.has_triton_experimental_host_tma": _no,
    "utils._triton.has_triton_package": _no,
    "utils._triton.has_triton_tensor_descriptor_host_tma": _no,
    "utils._triton.has_triton_tma_device": _no,
}


def given():
    """All of them, with those that need torch to be there."""
    import torch

    short = (
        "float64 f64 float32 f32 float16 f16 bfloat16 bf16 complex64 c64 complex128 c128 int64 i64 int32 i32 int16 i16"
    )
    names = iter(f"{short} int8 i8 uint8 u8 bool b8".split())
    return {**GIVEN, "utils._dtype_abbrs.dtype_abbrs": {getattr(torch, name): next(names) for name in names}}
