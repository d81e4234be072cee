"""Functions that torch keeps in families: torch.linalg.inv is torch._C._linalg.linalg_inv, and called by that name."""

import sys

from mica import _C

# function -> its name in the public module, where that is not its __name__
_OWN_NAMES = {}

# The dtypes that types of Python stand for, as in x.to(int).
DTYPES_OF_TYPES = {bool: _C.bool, int: _C.int64, float: _C.float64, complex: _C.complex128}


def publish(family):
    """name -> function of torch.linalg, torch.fft or torch.special. Its module in the engine answers to torch's names."""
    module = vars(_C)[f"_{family}"]
    public = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    _OWN_NAMES.update({function: name for name, function in public.items()})

    def by_torchs_name(name):
        own = name.removeprefix(f"{family}_")
        found = vars(sys.modules[f"mica.{family}"]).get(own) if own != name else None
        if found is None:
            raise AttributeError(f"module 'torch._C._{family}' has no attribute {name!r}")
        return found

    module.__getattr__ = by_torchs_name
    sys.modules[f"mica._C._{family}"] = module  # where pickles look
    return public


_OWN_NAMES[_C._nn_functional.logsigmoid] = "logsigmoid"


def own_name(function):
    """The name of a function within its family: "inv" of torch.linalg.inv. "" if it has none."""
    name = getattr(function, "__name__", "")
    return _OWN_NAMES.get(function, name) if isinstance(function, type(len)) else name


def is_functional(function):
    """Whether a function is one of torch.nn.functional."""
    module = str(getattr(function, "__module__", ""))
    return module.startswith(("mica.nn.functional", "torch.nn.functional", "mica._C._nn", "torch._C._nn"))
