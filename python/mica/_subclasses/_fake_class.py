"""The class of tensors without data, and what it raises where a program asks for data."""

import contextlib
import math

import mica
from mica import _C
from mica._functions.families import own_name
from mica._subclasses import of_data, open_needs, open_pieces, open_sizes, open_statistics, open_views
from mica.utils._pytree import tree_leaves

# Calls that need numbers, which fake tensors do not have, and calls whose results' sizes depend on numbers.
_NUMBERS = {"item": "_local_scalar_dense", "is_nonzero": "_local_scalar_dense"}
_NUMBERS |= {"equal": "equal", "allclose": "allclose"}
_PLACES = frozenset(["to", "cuda", "cpu", "xpu", "type_as"])


class UnsupportedFakeTensorException(RuntimeError):
    """Raised for what has no fake counterpart."""


class UnsupportedOperatorException(RuntimeError):
    """Raised for an operator that does not say which shape its result has."""

    def __init__(self, func):
        super().__init__(func)
        self.func = func


class DataDependentOutputException(RuntimeError):
    """Raised where a program asks a fake tensor for numbers."""

    def __init__(self, func):
        super().__init__(func)
        self.func = func


class DynamicOutputShapeException(RuntimeError):
    """Raised where the size of a result depends on the numbers that a fake tensor does not have."""

    def __init__(self, func):
        super().__init__(func)
        self.func = func


class MetadataMismatchError(RuntimeError):
    """Raised where two fake tensors that should be alike are not."""


class FakeTensorDeviceMismatchError(RuntimeError):
    """Raised where fake tensors of several devices meet."""


def _normal(device):
    device = mica.device(device)
    return mica.device(device.type, 0) if device.index is None and device.type not in ("cpu", "meta") else device


class FakeTensor(mica.Tensor):
    """A tensor without data. Its `device` is the one that it stands for; its mode computes shapes and dtypes."""

    _values_are_plain = True  # for Tensor's methods that return a value
    constant = None  # the real tensor that it stands for, of a number that the program has written (constants.py)

    @staticmethod
    def __new__(cls, fake_mode, elem, device, constant=None, real_tensor=None):
        if elem.device.type != "meta":
            raise AssertionError(f"a FakeTensor is made of a tensor on the meta device, not on {elem.device}")
        return _as_fake(_C.Tensor._make_subclass(cls, elem, elem.requires_grad), fake_mode, device)

    def __init__(self, *args, **kwargs):
        super().__init__()

    @staticmethod
    def from_tensor(t, fake_mode):
        return fake_mode.from_tensor(t)

    @property
    def device(self):
        return self.fake_device

    # ---- sizes, some of which may be open (open_sizes.py)

    @property
    def shape(self):
        sizes = open_sizes.shape_of(self, self.fake_mode.shape_env)
        return _C.TensorBase.shape.__get__(self) if sizes is None else open_sizes.OpenSize(sizes)

    def size(self, dim=None):
        if "_sizes" not in self.__dict__:
            return _C.TensorBase.size(self) if dim is None else _C.TensorBase.size(self, dim)
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return math.prod(self.shape) if "_sizes" in self.__dict__ else _C.TensorBase.numel(self)

    nelement = numel

    def __len__(self):
        return int(self.shape[0]) if "_sizes" in self.__dict__ else _C.TensorBase.__len__(self)

    def stride(self, dim=None):
        numbers = _C.TensorBase.stride(self)
        if "_sizes" in self.__dict__:
            env = self.fake_mode.shape_env
            numbers = tuple(
                each if isinstance(each, int) else open_sizes.shown(each, env)
                for each in map(env.worlds.known, numbers)
            )
        return numbers if dim is None else numbers[dim]

    def storage_offset(self):
        number, env = _C.TensorBase.storage_offset(self), self.fake_mode.shape_env
        found = number if env is None or number == 0 else env.worlds.known(number)
        return found if isinstance(found, int) else open_sizes.shown(found, env)

    @property
    def is_meta(self):
        return self.fake_device.type == "meta"

    @property
    def is_cuda(self):
        return self.fake_device.type == "cuda"

    @property
    def is_cpu(self):
        return self.fake_device.type == "cpu"

    def type(self, dtype=None, non_blocking=False, **options):
        if dtype is not None:
            return _C.TensorBase.type(self, dtype, non_blocking, **options)
        name = _C.TensorBase.type(self)
        place = "" if self.fake_device.type == "cpu" else f"{self.fake_device.type}."
        return name.replace("torch.meta.", f"torch.{place}", 1)

    def get_device(self):
        return -1 if self.fake_device.type == "cpu" else self.fake_device.index

    def item(self):
        if self.constant is not None and self.fake_mode.before_values is None:
            return self.constant.item()
        if self.fake_mode.items is not None:
            return self.fake_mode.items(self)
        if self.fake_mode.shape_env is not None and self.fake_mode.before_values is None:
            if _C.TensorBase.numel(self) != 1:
                raise RuntimeError(f"a Tensor with {_C.TensorBase.numel(self)} elements cannot be converted to Scalar")
            number = of_data.number(self, self.fake_mode.shape_env)
            if number is not None:
                for recorder in self.fake_mode.shape_env.recorders[-1:]:
                    recorder.note_number(self, number)
                return self.fake_mode.shape_env.known_number(number)
        return self._asked("item")

    def _asked(self, name, *args, **kwargs):
        """A value is asked for. Where the mode can make the tensor a real one, it does; otherwise that is an error."""
        if self.fake_mode.before_values is None:
            if self.constant is not None:
                return getattr(self.constant, name)(*args, **kwargs)
            raise DataDependentOutputException(mica.ops.aten._local_scalar_dense.default)
        self.fake_mode.before_values(name, self)
        if type(self) is FakeTensor:
            raise DataDependentOutputException(mica.ops.aten._local_scalar_dense.default)
        return getattr(self, name)(*args, **kwargs)

    def tolist(self):
        is_listed = self.fake_mode.shape_env is not None and self.dim() < 2 and "_sizes" not in self.__dict__
        if is_listed and self.fake_mode.before_values is None:
            return [each.item() for each in self.unbind()] if self.dim() else self.item()
        return self._asked("tolist")

    def __bool__(self):
        return self._asked("__bool__")

    def __float__(self):
        return self._asked("__float__")

    def __int__(self):
        return self._asked("__int__")

    def __index__(self):
        return self._asked("__index__")

    def __complex__(self):
        return self._asked("__complex__")

    def numpy(self, *, force=False):
        if self.fake_mode.arrays is not None and (array := self.fake_mode.arrays(self, force)) is not None:
            return array
        if self.fake_mode.before_values is not None:
            return self._asked("numpy", force=force)
        raise RuntimeError(".numpy() is not supported for tensor subclasses: a FakeTensor has no data")

    def __repr__(self, *, tensor_contents=None):
        if self.fake_mode.before_values is not None:
            self.fake_mode.before_values("__repr__", self)
            if type(self) is not FakeTensor:
                return repr(self)
        sizes = ", ".join(map(str, self.shape)) + ("," if self.dim() == 1 else "")
        parts = ["...", f"size=({sizes})"]
        if self.fake_device.type != "cpu":
            parts.insert(1, f"device='{self.fake_device}'")
        if self.dtype not in (mica.get_default_dtype(), mica.int64, mica.bool):
            parts.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"FakeTensor({', '.join(parts)})"

    def __deepcopy__(self, memo):
        if self.fake_mode.before_values is not None:
            return self._asked("__deepcopy__", memo)
        made = _as_fake(_plain(self).clone(), self.fake_mode, self.fake_device)
        made.requires_grad_(self.requires_grad and self.is_leaf)
        if getattr(self, "_is_param", False):
            made._is_param = True
        memo[id(self)] = made
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, own_name(func)
        fakes = [t for t in tree_leaves((args, kwargs)) if isinstance(t, FakeTensor)]
        mode = fakes[0].fake_mode
        if mode.shape_env is not None:
            if (
                name in open_pieces.NAMES
                and (made := open_pieces.pieces(name, args, kwargs, mode.shape_env)) is not None
            ):
                return made
            if (
                name in open_statistics.NAMES
                and (made := open_statistics.statistic(name, args, kwargs, mode.shape_env)) is not None
            ):
                return made
            args, kwargs = open_sizes.engine_values((args, kwargs), name in open_sizes.NEEDS_NUMBERS)
        if name == "item":
            return fakes[0].item()
        if name in ("__getitem__", "__setitem__") and mode.shape_env is None:
            args = (args[0], _with_numbers(args[1]), *args[2:])
        if name == "detach" and "_sizes" in fakes[0].__dict__:
            return _detached(fakes[0])
        if name in _NUMBERS:
            packet = getattr(mica.ops.aten, _NUMBERS[name])
            raise DataDependentOutputException(getattr(packet, packet.overloads()[0]))
        if name in of_data.NAMES and mode.shape_env is None:
            packet = getattr(mica.ops.aten, "_unique2" if name == "unique" else name)
            raise DynamicOutputShapeException(getattr(packet, packet.overloads()[0]))
        with _C.DisableTorchFunctionSubclass():
            if name in _PLACES and isinstance(args[0], FakeTensor):
                return _moved(mode, name, args, kwargs)
            if mode.shape_env is not None:
                open_views.rely_on_fit(mode, name, args, kwargs)
                if name == "interpolate":
                    open_views.note_rescaled(mode.shape_env, *args, **kwargs)
            try:
                with mode, _casts_like(fakes[0].fake_device.type):
                    made = mode._called(func, args, kwargs)
            except (RuntimeError, ValueError, IndexError, OverflowError) as error:
                if mode.shape_env is not None:
                    open_needs.raise_needs(func, args, kwargs, mode.shape_env, error)
                raise
            return mode._all_fake(made, fakes)


def _with_numbers(index):
    """An index with the numbers of fake tensors that are places: what has no number is refused as item() refuses it."""
    if isinstance(index, tuple):
        return tuple(map(_with_numbers, index))
    is_place = isinstance(index, FakeTensor) and not index.dim() and index.dtype in _WHOLE
    return index.item() if is_place and index.fake_mode.before_values is None else index


_WHOLE = (mica.int64, mica.int32, mica.int16, mica.int8)
_NO_CASTS = contextlib.nullcontext()


def _casts_like(kind):
    """A block in which tensors on meta, that fake ones lie on, are cast as autocast casts those of a device."""
    return _casts(kind) if mica.is_autocast_enabled(kind) and not mica.is_autocast_enabled("meta") else _NO_CASTS


@contextlib.contextmanager
def _casts(kind):
    mica.set_autocast_dtype("meta", mica.get_autocast_dtype(kind))
    mica.set_autocast_enabled("meta", True)
    try:
        yield
    finally:
        mica.set_autocast_enabled("meta", False)


def _as_fake(tensor, mode, device):
    """Turn a tensor on the meta device, which nobody else uses, into a fake tensor."""
    tensor.__class__ = FakeTensor
    tensor.fake_mode, tensor.fake_device = mode, _normal(device)
    return tensor


def _plain(fake):
    with _C.DisableTorchFunctionSubclass():
        return _C.Tensor.detach(fake)


def _detached(fake):
    """Another fake tensor in the same memory, of the same sizes."""
    made = _as_fake(_plain(fake), fake.fake_mode, fake.fake_device)
    return open_sizes.attach(made, fake._sizes, fake._others) if "_sizes" in fake.__dict__ else made


def _moved(mode, name, args, kwargs):
    from mica._subclasses.dispatching import _converted

    fake, rest = args[0], args[1:]
    if name in ("cuda", "xpu"):
        rest = (_normal(name if not rest or rest[0] is None else mica.device(name, rest[0])),)
    elif name == "cpu":
        rest = (mica.device("cpu"),)
    wanted = _converted(fake, rest, kwargs)
    if wanted is None:
        return fake
    place, order = wanted.pop("device", fake.fake_device), wanted.get("memory_format", mica.preserve_format)
    with mode:
        made = _C.Tensor.to(fake, wanted.get("dtype", fake.dtype), copy=True, memory_format=order)
    return _as_fake(made, mode, place)


def _not_a_leaf(fake):
    """A fake tensor that was computed from this one: it may be changed in place, as its real counterpart may."""
    with _C.DisableTorchFunctionSubclass(), mica.utils._python_dispatch._disable_current_modes(), mica.enable_grad():
        made = _C.Tensor.clone(fake)
    if _C.TensorBase.stride(made) != _C.TensorBase.stride(fake):
        return fake
    made = _as_fake(made, fake.fake_mode, fake.fake_device)
    return open_sizes.attach(made, fake._sizes, fake._others) if "_sizes" in fake.__dict__ else made
