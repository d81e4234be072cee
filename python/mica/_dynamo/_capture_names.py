"""Classes of calls in a capture: which are recorded and how they are written, which end a graph, which only look."""

import contextlib
import dataclasses
import operator
import os
import sys
import threading
import types

import mica
from mica import _C
from mica._dynamo.full_graph import branches, instruction
from mica._ops import OpOverload, OpOverloadPacket

getitem = operator.getitem
nothing = contextlib.nullcontext

# Calls that ask for values, or that change more of a tensor than its values: what was recorded runs before them.
_BREAKS = frozenset([
    "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__", "is_nonzero",
    "equal", "allclose", "__repr__", "__str__", "__format__", "__contains__", "data_ptr", "backward", "requires_grad_",
    "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "share_memory_", "set_", "resize_", "detach_",
    "untyped_storage", "storage", "__reduce_ex__", "__deepcopy__", "__dlpack__", "__setstate__", "__set__", "apply_",
    "map_", "pin_memory", "as_subclass", "is_shared", "copy_to_numpy", "rename_", "__iter__", "swap_tensors",
    "nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "bincount", "__delete__", "is_set_to",
])  # fmt: skip
# Those of them after which torch can go on in one graph. Here they end a graph, but are no reason to refuse a function.
_LET_PASS = frozenset([
    "item", "numpy", "__int__", "__float__", "__index__", "__complex__", "__array__", "__contains__", "__iter__", "nonzero",
    "masked_select", "unique", "unique_consecutive", "argwhere", "bincount", "requires_grad_", "__getitem__", "__setitem__",
    "where", "__set__", "detach_", "register_hook", "register_post_accumulate_grad_hook", "untyped_storage", "set_",
])  # fmt: skip
# Calls that look at facts about a tensor, and not at its values.
_PLAIN = frozenset([
    "size", "stride", "dim", "ndimension", "numel", "nelement", "is_contiguous", "storage_offset", "element_size",
    "is_floating_point", "is_complex", "is_signed", "get_device", "__len__", "is_same_size", "is_conj", "is_neg",
    "is_inference", "has_names", "type", "__hash__", "is_tensor", "__dir__",
])  # fmt: skip
disallowed = set()  # functions of torch's that the program keeps out of graphs
SIZES = frozenset(["shape", "size", "stride", "numel", "nelement"])
_ATTRIBUTES = frozenset(["T", "mT", "H", "mH", "real", "imag", "data"])
_VALUE_ATTRIBUTES = frozenset(["_base", "__cuda_array_interface__"])
_RANDOM = ("rand", "dropout", "bernoulli", "normal", "uniform", "multinomial", "exponential", "poisson", "geometric",
           "cauchy", "rrelu", "gumbel", "init_", "random_", "binomial", "fractional_max_pool", "_gamma",
           "scaled_dot_product_attention", "multi_head_attention", "lstm", "gru", "rnn_")  # fmt: skip
_MAGIC = {f"__{name}__": getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "pow", "neg", "pos", "invert", "eq", "ne", "lt", "le",
    "gt", "ge", "getitem", "setitem", "lshift", "rshift", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod")}  # fmt: skip
_MAGIC |= {"__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__abs__": operator.abs}
_REFLECTED = {f"__r{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod",
                                                                   "matmul", "pow")}  # fmt: skip


# Methods that stand for Python's operators, by the text of the running instruction.
_WRITTEN = {
    "add": {"+": operator.add}, "sub": {"-": operator.sub}, "mul": {"*": operator.mul}, "div": {"/": operator.truediv},
    "remainder": {"%": operator.mod}, "matmul": {"@": operator.matmul}, "ne": {"!=": operator.ne},
    "gt": {">": operator.gt}, "lt": {"<": operator.lt}, "ge": {">=": operator.ge}, "le": {"<=": operator.le},
    "add_": {"+=": operator.iadd}, "sub_": {"-=": operator.isub}, "mul_": {"*=": operator.imul},
    "div_": {"/=": operator.itruediv},
}  # fmt: skip


_local = threading.local()


def active():
    """The capture that is under way on this thread, or None."""
    return getattr(_local, "capture", None)


def set_active(capture):
    _local.capture = capture


def are_breaks_errors():
    """Whether a break is an error here: error_on_graph_break(True)."""
    return getattr(_local, "breaks_are_errors", False)


def let_breaks_be_errors(enabled):
    """Set whether breaks of graphs are errors. Returns the setting before."""
    before, _local.breaks_are_errors = are_breaks_errors(), enabled
    return before


def name_of(func):
    """The name of a function, of an attribute by its getter, and of an operator without the overload's."""
    if isinstance(func, OpOverload):
        func = func.overloadpacket
    name = getattr(func, "__name__", type(func).__name__)
    return func.__self__.__name__ if name == "__get__" else name


def kind_of(func, args):
    """Whether a call is recorded ("call", or "random" if it draws), looks ("plain") or ends a graph ("break")."""
    if getattr(func, "__name__", "") == "__get__":
        attribute = func.__self__.__name__
        return "call" if attribute in _ATTRIBUTES else "break" if attribute in _VALUE_ATTRIBUTES else "plain"
    name = name_of(func)
    if name in _PLAIN and (name != "type" or len(args) == 1):
        return "plain"
    if name == "where" and len(args) == 1:  # the same as nonzero
        return "break"
    if name in _BREAKS or getattr(func, "_torchdynamo_disable", False) or func in disallowed:
        return "break"
    return "random" if any(part in name for part in _RANDOM) else "call"


def is_refused(name, tensor=None):
    """Whether torch refuses a call that asks for values in a function that is to be one graph."""
    if is_within_transform() or (name == "backward" and are_passes_let_pass()):
        return False
    if name == "__bool__":  # it is a branch, unless it is an assertion
        return (frame := _user_frame()) is not None and branches(frame)
    if name == "tolist":
        return tensor is None or tensor.dtype.is_floating_point
    if name in ("__repr__", "__str__", "__format__"):
        if _is_let_print():
            return False
        here = instruction(frame) if (frame := _user_frame()) is not None else None
        return here is None or not here.opname.startswith("FORMAT_")
    return name not in _LET_PASS


def _is_let_print():
    """Whether a function that the program has named prints: one of Python's, such as print, or one that is running."""
    from mica._dynamo import config

    functions = config.reorderable_logging_functions
    if any(isinstance(each, types.BuiltinFunctionType) for each in functions):
        return True
    codes, frame = {getattr(each, "__code__", None) for each in functions} - {None}, sys._getframe(1)
    while codes and frame is not None and frame.f_code is not _entry:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def are_passes_let_pass():
    """Whether a backward pass within a function that is to be one graph is no error. It ends a graph all the same."""
    from mica._dynamo import config

    return bool(config.trace_autograd_ops)


def is_of_torch(func):
    """Whether a function is Mica's, and not one of the program's own."""
    module = getattr(func, "__module__", None) or getattr(getattr(func, "__objclass__", None), "__module__", None) or ""
    return module.partition(".")[0] in ("mica", "torch", "_operator") or isinstance(func, types.BuiltinFunctionType)


def told_apart(value):
    """A key that tells a value in a graph's code from others: the value itself where it cannot change, or its identity."""
    return (type(value), value) if isinstance(value, (int, float, complex, str, bytes, range)) else id(value)


def tensor_factor(func, kwargs):
    """The tensor that x.addcmul_(y, z, value=tensor) takes in the place of a number; None for other calls."""
    if getattr(func, "__name__", "") != "addcmul_":
        return None
    return value if isinstance(value := kwargs.get("value"), _C.TensorBase) else None


def holder_among(types, args, kwargs):
    """The first argument that answers for functions of torch and is no tensor, such as a dict of tensors; None without one."""
    kinds = tuple(kind for kind in types if not issubclass(kind, _C.TensorBase))

    def found(values):
        for value in values:
            if isinstance(value, kinds):
                return value
            if isinstance(value, (list, tuple)) and (inner := found(value)) is not None:
                return inner
        return None

    return found((*args, *kwargs.values())) if kinds else None


def changes_arguments(func, kwargs):
    """Whether a call that returns nothing writes into its arguments, and does nothing else."""
    name = name_of(func)
    if kwargs.get("out") is not None:  # torch.unbind_copy(x, out=[a, b])
        return True
    if name == "__setitem__" or (name.startswith("_foreach_") and name.endswith("_")):
        return True
    if not isinstance(func, (OpOverload, OpOverloadPacket)):
        return False
    schemas = [func._schema] if isinstance(func, OpOverload) else func._schemas.values()
    arguments = [argument for schema in schemas for argument in schema.arguments]
    return any(each.alias_info is not None and each.alias_info.is_write for each in arguments)


def call(func, args, kwargs):
    """(op, target, args, kwargs, name) of a node that calls the function."""
    name = name_of(func)
    if getattr(func, "__name__", "") == "__get__":
        return "call_function", getattr, (args[0], name), {}, name
    if name in _MAGIC and not kwargs and _is_method(func):
        return "call_function", _MAGIC[name], args, {}, name.strip("_")
    if name in _REFLECTED and not kwargs and _is_method(func):
        return "call_function", _REFLECTED[name], (args[1], args[0]), {}, name.strip("_")[1:]
    if _is_method(func):
        if name in _WRITTEN and len(args) == 2 and not kwargs and (written := _written_as(name)) is not None:
            if name in ("add", "mul") and isinstance(args[1], (int, float)) and _is_tensor_on_the_right():
                args = (args[1], args[0])
            return "call_function", written, args, {}, written.__name__
        return "call_method", name, args, kwargs, name.strip("_") or name
    return "call_function", func, args, kwargs, getattr(func, "__name__", name).replace(".", "_")


def _is_method(func):
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return True
    return isinstance(func, types.FunctionType) and getattr(_C.Tensor, func.__name__, None) is func


_OWN = os.path.dirname(os.path.dirname(__file__))
_TRANSFORMS = os.path.join(_OWN, "func") + os.sep


def _user_frame():
    frame = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename.startswith(_OWN) or frame.f_code.co_filename.startswith("<")):
        frame = frame.f_back
    return frame


def is_within_transform():
    """Whether what runs is a part of a transform of torch.func that the program calls, and not a call of its own."""
    frame, called = sys._getframe(1), None
    while frame is not None and frame.f_code is not _entry and frame.f_code.co_filename.startswith((_OWN, "<")):
        frame, called = frame.f_back, frame
    return called is not None and called.f_code.co_filename.startswith(_TRANSFORMS)


def _written_as(name):
    """The operator that the program's line writes for a method, if it does: `x + y` is the method add too."""
    frame = _user_frame()
    here = instruction(frame) if frame is not None else None
    return None if here is None else _WRITTEN[name].get(here.argrepr.removeprefix("bool(").removesuffix(")"))


def _is_tensor_on_the_right():
    """Whether the program's line says `number * tensor`, which calls the same method as `tensor * number`. The right side
    has to be a variable."""
    frame = _user_frame()
    before = instruction(frame, -1) if frame is not None else None
    return (
        before is not None
        and before.opname.startswith("LOAD_FAST")
        and isinstance(frame.f_locals.get(before.argval), _C.TensorBase)
    )


def line_of(error):
    """The line of the program's own that has raised an exception."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_OWN, "<")):
            found = trace
        trace = trace.tb_next
    return "" if found is None else _line(found.tb_frame, found.tb_lineno)


def user_line():
    """The line of the program's own that is being run."""
    frame = _user_frame()
    return "" if frame is None else _line(frame, frame.f_lineno)


@dataclasses.dataclass
class GraphCompileReason:
    """Why a graph ends where it does, and at which lines of the program's own, the innermost last."""

    reason: str
    user_stack: list
    graph_break: bool = True


def end_of_graph(reason):
    """Describe the end of a graph: a break with its reason and lines, or the end of the function where the reason is None."""
    if reason is None:
        return GraphCompileReason("return_value", [], graph_break=False)
    import traceback

    stack, frame = [], sys._getframe(1)
    while frame is not None and frame.f_code is not _entry:
        if not frame.f_code.co_filename.startswith((_OWN, "<")):
            stack.append(traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return GraphCompileReason(reason, stack[::-1])


_entry = None  # the code that calls captured functions


def set_entry(function):
    """Name the function of Mica's that calls the program's. Frames above it do not belong to the captured function."""
    global _entry
    _entry = function.__code__


def _line(frame, line):
    import linecache

    code = frame.f_code
    text = linecache.getline(code.co_filename, line).strip()
    return f'  File "{code.co_filename}", line {line}, in {code.co_name}\n    {text}'


# ---- modes that a graph was recorded in


def modes_now():
    """Autocast, inference mode, and the default dtype and device, as a value that can be compared."""
    return (
        tuple((kind, mica.is_autocast_enabled(kind), mica.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")),
        mica.is_inference_mode_enabled(),
        (mica.get_default_dtype(), str(mica.get_default_device())),
    )


@contextlib.contextmanager
def in_modes(modes):
    """A block in which a graph runs in the modes that were active when it began. The modes outside are restored
    afterwards, also after a failure."""
    autocast, inference, (dtype, device) = modes
    with contextlib.ExitStack() as stack:
        stack.callback(_set_casts, modes_now()[0])
        for kind, enabled, cast in autocast:
            if (enabled, cast) != (mica.is_autocast_enabled(kind), mica.get_autocast_dtype(kind)):
                stack.enter_context(mica.autocast(kind, cast, enabled))
        if inference != mica.is_inference_mode_enabled():
            stack.enter_context(mica.inference_mode(inference))
        if dtype != (before := mica.get_default_dtype()):
            stack.callback(mica.set_default_dtype, before)
            mica.set_default_dtype(dtype)
        if device != str(mica.get_default_device()):
            stack.enter_context(mica.device(device))
        yield


_FACTORIES = frozenset([
    "arange", "asarray", "as_tensor", "bartlett_window", "blackman_window", "empty", "empty_permuted", "empty_strided",
    "eye", "fftfreq", "full", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "ones", "rand",
    "randint", "randn", "randperm", "range", "rfftfreq", "scalar_tensor", "tensor", "tril_indices", "triu_indices",
    "zeros",
])  # fmt: skip


def placed(func, kwargs, device):
    """The keyword arguments of a call, with the default device in those of functions that make tensors: the graph runs
    with the default device that it began with."""
    is_factory = name_of(func) in _FACTORIES and not isinstance(func, types.MethodDescriptorType)
    return kwargs | {"device": mica.device(device)} if is_factory and kwargs.get("device") is None else kwargs


def _set_casts(casts):
    for kind, enabled, dtype in casts:
        if (enabled, dtype) != (mica.is_autocast_enabled(kind), mica.get_autocast_dtype(kind)):
            mica.set_autocast_enabled(kind, enabled)
            mica.set_autocast_dtype(kind, dtype)


def version_of(tensor):
    """How often a tensor was changed; tensors of inference mode do not count."""
    return None if tensor.is_inference() else tensor._version


def kind_of_input(tensor):
    """What a graph relies on of an input."""
    return (type(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device), tensor.requires_grad)
