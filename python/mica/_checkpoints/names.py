"""What classes and functions are called in files: by torch's names, so that torch opens Mica's files and Mica torch's."""

import importlib
import types

from mica import _C
from mica._functions.quantization_schemes import qscheme

# Where a name of torch's is here, if it is not in the module of the same name.
_HERE = {
    ("torch._tensor", "_rebuild_from_type_v2"): ("mica._utils", "_rebuild_from_type_v2"),
    ("torch._utils", "_rebuild_parameter"): ("mica.nn.parameter", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"): ("mica.nn.parameter", "_rebuild_parameter_with_state"),
    ("torch.serialization", "_get_layout"): ("mica._checkpoints.names", "get_layout"),
    ("torch._C", "_VariableFunctionsClass"): ("mica", None),  # torch's functions are methods of this class
    ("torch._C", "TensorBase"): ("mica", "Tensor"),
    ("torch._C", "_TensorBase"): ("mica", "Tensor"),
    ("torch.nn.functional", "_threshold"): ("mica.nn.functional", "threshold"),
}
_THERE = {here: there for there, here in _HERE.items() if here[1] not in (None, "Tensor")}
_HERE_MODULES = {"torch.tensor": "mica._tensor"}

# The modules in which torch has what is in a module that only Mica has. For other modules of Mica's own, named with an
# underscore, that is the package around them.
_THERE_MODULES = {
    **{f"mica._C.{family}": f"torch._C.{family}" for family in ("_fft", "_linalg", "_nn", "_special")},
    **{f"mica._functions.{name}": "torch" for name in ("conditions", "settings", "symbolic")},
    **{f"mica._operators.{name}": "torch" for name in ("quantized_makers", "rare", "root_names", "segments")},
    "mica.distributed.collectives": "torch.distributed.distributed_c10d",
    "mica.distributed.messages": "torch.distributed.distributed_c10d",
    "mica.fx._codegen": "torch.fx.graph",
    "mica.fx._pytree": "torch.fx._pytree",
    "mica.fx._pytree_codegen": "torch.fx.graph",
    "mica.fx._root_arguments": "torch.fx._symbolic_trace",
    "mica.fx._symbolic_trace": "torch.fx._symbolic_trace",
    "mica.nn.modules._parameter_containers": "torch.nn.modules.container",
    "mica.nn.modules._rnn_cells": "torch.nn.modules.rnn",
    "mica.nn.modules.attention": "torch.nn.modules.activation",
    "mica.nn.modules.response_norm": "torch.nn.modules.normalization",
    "mica.nn.modules.sparse_bag": "torch.nn.modules.sparse",
    "mica.utils._pytree": "torch.utils._pytree",
    "mica.utils.data.datapipes._decorator": "torch.utils.data.datapipes._decorator",
    "mica.utils.data._utils.iterator": "torch.utils.data.dataloader",
}


def find_class(module, name):
    """The object that a file means by torch's `module` and `name`: the one of Mica's that has this name. Python itself finds
    those of other modules."""
    if module != "torch" and not module.startswith("torch."):
        raise ValueError(f"{module} is not torch's")
    if (module, name) in _HERE:
        here, name = _HERE[module, name]
        found = importlib.import_module(here)
        return found if name is None else getattr(found, name)
    here = _HERE_MODULES.get(module, "mica" + module.removeprefix("torch"))
    # A class may stand in a package's own namespace where torch has a module for it.
    while here:
        try:
            found = importlib.import_module(here)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ModuleNotFoundError, AttributeError):
            if here.count(".") < 2 and here != "mica.functional":
                break
            here = here.rpartition(".")[0]
    raise AttributeError(f"the file needs {module}.{name}, and Mica has none")


def get_layout(name):
    """The layout of this name. A pickled layout calls this function, which files know as torch.serialization._get_layout."""
    return getattr(_C, name.removeprefix("torch."))


def is_torch_module(module):
    return isinstance(module, str) and module.partition(".")[0] in ("torch", "mica")


def full_name(obj):
    """The dotted name that a class or function has in files."""
    return ".".join(_pair(obj))


def _pair(obj):
    module, name = obj.__module__, obj.__qualname__
    if module is None:  # a class's method that is written in C
        module = getattr(getattr(obj, "__self__", None), "__module__", None) or "builtins"
    # Where torch is Mica, the module itself has torch's name.
    here = "mica" + module.removeprefix("torch") if module.startswith("torch.") else module
    return _THERE.get((here, name)) or (torch_module_name(module), name)


def torch_module_name(module):
    """What torch calls the module that has what Mica's module of this name has."""
    if module in _THERE_MODULES:
        return _THERE_MODULES[module]
    package, _, last = module.rpartition(".")
    if module in ("mica._C", "torch._C"):
        return "torch"
    if last.startswith("functional_") and package == "mica.nn":
        return "torch.nn.functional"
    if last.startswith("_") and package.startswith("mica."):
        return torch_module_name(package)
    return "torch" + module.removeprefix("mica") if module.partition(".")[0] == "mica" else module


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, _C._Function)


def name_in_file(obj):
    """ "module, newline, name" for Mica's dtypes, classes and functions; None for objects that pickle itself can name."""
    if isinstance(obj, _C.dtype):
        return "torch\n" + str(obj).removeprefix("torch.")
    if isinstance(obj, qscheme):
        return "torch\n" + repr(obj).removeprefix("torch.")
    if not isinstance(obj, _NAMED) or not is_torch_module(getattr(obj, "__module__", None)):
        return None
    module, name = _pair(obj)
    if "." in name:  # the name is inside a class, and pickle goes through the class
        return None
    try:
        found = find_class(module, name)
    except (AttributeError, ImportError):
        return None
    return f"{module}\n{name}" if found is obj or found == obj else None
