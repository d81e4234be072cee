"""Names of torch._C beyond the engine's: types and switches that packages touch."""

import contextlib
import enum
import importlib
import weakref

from mica import _C


def _log_api_usage_once(*args):
    """Does nothing: Mica keeps no log of which functions programs use."""


def _get_tracing_state():
    """What torch.jit._get_trace_graph is making, or None."""
    import sys

    made = sys.modules.get("mica.jit._trace_graph")
    return made and made.tracing_state()


def _is_tracing():
    return False


def _dispatch_isTensorSubclassLike(tensor):
    """Whether the tensor's class answers for its operators."""
    own = getattr(type(tensor), "__torch_dispatch__", None)
    return own not in (None, _C._disabled_torch_dispatch_impl)


def _get_accelerator(check=None):
    """The device that computes beside the CPU, or the CPU."""
    return _C._accelerator() or _C.device("cpu")


def _get_privateuse1_backend_name():
    return "privateuseone"


def _get_default_device():
    return str(_C.get_default_device())


def _is_fwd_grad_enabled():
    from mica.autograd import forward_ad

    return forward_ad._is_fwd_grad_enabled()


def _set_fwd_grad_enabled(mode):
    from mica.autograd import forward_ad

    forward_ad._switch(mode)


def _current_graph_task_execution_order():
    """The nodes of the running backward pass, in the order in which they run."""
    from mica.autograd import is_multithreading_enabled

    order = _C._graph_task_order()
    if is_multithreading_enabled():
        raise RuntimeError(
            "get_current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled, e.g. by running:\n\n>>> with torch.autograd.set_multithreading_enabled(False):\n"
            "...     torch.autograd.backward(...)\n"
        )
    return order


_has_xpu = _has_cuda = _has_mps = has_cuda = has_mkldnn = has_mps = _has_mtia = False
has_openmp = has_mkl = False
has_spectral = True
has_lapack = True  # a library is opened at its first use; without one, an error says how to get it
_GLIBCXX_USE_CXX11_ABI = True


def _switch(*args, **kwargs):
    """A switch of a compiler that is not there."""
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode = _jit_override_can_fuse_on_gpu = _switch
_jit_override_can_fuse_on_cpu = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _switch
_jit_can_fuse_on_cpu = _jit_can_fuse_on_gpu = _jit_set_nvfuser_guard_mode = _jit_texpr_fuser_enabled = _switch
_jit_set_bailout_depth = _jit_pass_inline = _debug_set_autodiff_subgraph_inlining = _switch
_set_math_sdp_allow_fp16_bf16_reduction = _switch


def _get_deterministic_fill_uninitialized_memory():
    from mica.utils import deterministic

    return deterministic.fill_uninitialized_memory


def _set_deterministic_fill_uninitialized_memory(fill):
    from mica.utils import deterministic

    deterministic.fill_uninitialized_memory = fill


def _is_cow_tensor(tensor):
    """Whether the tensor's memory is shared until somebody writes it (Tensor._lazy_clone)."""
    return tensor.untyped_storage()._is_cow()


def _storage_address(tensor):
    return tensor.untyped_storage()._cdata


def _data_address(tensor):
    """Where the tensor's elements lie now. Memory that is shared until somebody writes it stays so."""
    return tensor.untyped_storage()._address() + tensor.storage_offset() * tensor.itemsize


def _infer_size(a, b):
    """The shape to which two shapes broadcast."""
    from mica.functional import broadcast_shapes

    return broadcast_shapes(a, b)


def _add_docstr(function, text):
    """Give a function its documentation; the engine's own functions keep theirs."""
    with contextlib.suppress(AttributeError, TypeError):
        function.__doc__ = text
    return function


def _is_any_autocast_enabled():
    """Whether autocast is on for any device that exists."""
    return any(_C.is_autocast_enabled(device) for device in ("cpu", "cuda"))


def _storage_Use_Count(pointer):
    raise NotImplementedError(
        "torch._C._storage_Use_Count: Mica does not tell how many tensors share a storage by its address"
    )


def _set_print_stack_traces_on_fatal_signal(enabled):
    """Whether a process that a signal ends shows where its threads were."""
    import faulthandler

    if enabled:
        faulthandler.enable()
    else:
        faulthandler.disable()


class _TorchFunctionState(enum.Enum):
    """Whether __torch_function__ is called for modes and classes, for modes only, or not at all."""

    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    ALL_DISABLED = 2


def _get_torch_function_state():
    modes_silent = _C._set_torch_function_disabled(False)
    _C._set_torch_function_disabled(modes_silent)
    classes_silent = _C._set_torch_function_subclass_disabled(False)
    _C._set_torch_function_subclass_disabled(classes_silent)
    if modes_silent:
        return _TorchFunctionState.ALL_DISABLED
    return _TorchFunctionState.SUBCLASSES_DISABLED if classes_silent else _TorchFunctionState.ENABLED


def _is_torch_function_all_disabled():
    """Whether neither modes nor classes are asked."""
    return _get_torch_function_state() is _TorchFunctionState.ALL_DISABLED


class _EnableTorchFunction:
    """Modes and classes are asked for as long as the object lives, whatever was switched off around it."""

    def __init__(self):
        self._before = _C._set_torch_function_disabled(False), _C._set_torch_function_subclass_disabled(False)

    def __del__(self):
        _C._set_torch_function_disabled(self._before[0])
        _C._set_torch_function_subclass_disabled(self._before[1])


def _set_torch_function_state(state):
    _C._set_torch_function_disabled(state is _TorchFunctionState.ALL_DISABLED)
    _C._set_torch_function_subclass_disabled(state is not _TorchFunctionState.ENABLED)


class _TensorMeta(type):
    """The type of tensor types in torch; here tensors are instances of an ordinary type."""


_TensorMeta = type(_C.Tensor)


class _Key(enum.IntEnum):
    """Keys that choose a function in torch's dispatcher. Registrations name them (torch.library)."""

    Undefined = 0
    CPU = 1
    CUDA = 2
    XPU = 3
    MPS = 4
    Meta = 5
    HPU = 6
    PrivateUse1 = 7
    QuantizedCPU = 8
    QuantizedCUDA = 9
    SparseCPU = 10
    SparseCUDA = 11
    BackendSelect = 12
    Python = 13
    Functionalize = 14
    ADInplaceOrView = 15
    AutogradOther = 16
    AutogradCPU = 17
    AutogradCUDA = 18
    AutogradXPU = 19
    AutogradMPS = 20
    AutogradMeta = 21
    AutocastCPU = 22
    AutocastCUDA = 23
    AutocastXPU = 24
    AutocastMPS = 25
    FuncTorchBatched = 26
    Autograd = 27
    CompositeImplicitAutograd = 28
    CompositeExplicitAutograd = 29
    PreDispatch = 30
    PythonDispatcher = 31
    Dense = 32
    Conjugate = 33
    Negative = 34
    ZeroTensor = 35


_Key.__name__ = _Key.__qualname__ = "DispatchKey"
DispatchKey = _Key


class _DisableTorchDispatch:
    """While it lives, neither modes nor classes with a __torch_dispatch__ are asked."""

    def __init__(self):
        from mica.utils._mode_utils import no_dispatch

        self._block = no_dispatch()
        self._block.__enter__()

    def __del__(self):
        self._block.__exit__(None, None, None)


class _WeakTensorRef:
    """A weak reference to a tensor, which says whether the tensor is gone."""

    def __init__(self, tensor):
        self._ref = weakref.ref(tensor)

    def expired(self):
        return self._ref() is None


class DispatchKeySet:
    """A set of dispatch keys, with the operations of a set."""

    def __init__(self, *keys):
        self._keys = frozenset(keys)

    def has(self, key):
        return key in self._keys

    def add(self, key):
        return DispatchKeySet(*self._keys, key)

    def remove(self, key):
        return DispatchKeySet(*(self._keys - {key}))

    def __or__(self, other):
        return DispatchKeySet(*(self._keys | other._keys))

    def __and__(self, other):
        return DispatchKeySet(*(self._keys & other._keys))

    def __contains__(self, key):
        return key in self._keys

    def __eq__(self, other):
        return self._keys == other._keys if isinstance(other, DispatchKeySet) else NotImplemented

    def __hash__(self):
        return hash(self._keys)

    def __repr__(self):
        return f"DispatchKeySet({', '.join(key.name for key in sorted(self._keys))})"


class _Guard(contextlib.ContextDecorator):
    """A with block in which torch's dispatcher would pass over some keys."""

    def __init__(self, *args):
        """The keys that the set holds at first."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


class _AutoDispatchBelowAutograd(_Guard):
    """A with block in which nothing is recorded for gradients."""

    def __enter__(self):
        self._before = _C.is_grad_enabled()
        _C._set_grad_enabled(False)
        return self

    def __exit__(self, *exception):
        _C._set_grad_enabled(self._before)


class _ExcludeDispatchKeyGuard(_Guard):
    """A with block that leaves out dispatch keys. Leaving out those of autocast switches autocast off; others change
    nothing."""

    _AUTOCAST = {DispatchKey.AutocastCPU: "cpu", DispatchKey.AutocastCUDA: "cuda"}  # noqa: RUF012

    def __init__(self, keys):
        self._keys = keys

    def __enter__(self):
        self._before = {}
        for key, device in self._AUTOCAST.items():
            if key in self._keys:
                self._before[device] = _C.is_autocast_enabled(device)
                _C.set_autocast_enabled(device, False)
        return self

    def __exit__(self, *exception):
        for device, enabled in self._before.items():
            _C.set_autocast_enabled(device, enabled)


def __getattr__(name):
    if name in ("FunctionSchema", "Argument"):
        from mica._library import schema

        return getattr(schema, name)
    if name == "parse_schema":
        from mica._library.schema import parse_schema

        return parse_schema
    if name in ("Future",):
        from mica.futures import Future

        return Future
    if name in ("ScriptModule", "ScriptFunction"):
        return getattr(importlib.import_module("mica.jit"), name)
    if name == "_VariableFunctions":
        return importlib.import_module("mica._VF")
    if name == "Tag":
        from mica._functions.tags import Tag

        return Tag
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")


def lookup(name):
    """The value of a name that the engine does not have."""
    if not name.startswith("__") and name in globals():
        return globals()[name]
    if name in (
        "_autograd",
        "_cpu",
        "_functions",
        "_dynamo",
        "_nn",
        "_functorch",
        "_distributed_c10d",
        "_distributed_rpc",
    ):
        return importlib.import_module(f"mica._C.{name}")
    return __getattr__(name)
