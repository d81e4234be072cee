"""Tensors without data that look like tensors on a device: Mica's are tensors on the meta device that remember one.

The class is in _fake_class.py; here is the mode that computes with its tensors.
"""

import mica
from mica import _C
from mica._library.sizes_of_data import SizeOfData, fake_result
from mica._subclasses import (
    constants,
    of_data,
    open_counts,
    open_differences,
    open_needs,
    open_pieces,
    open_sizes,
    open_views,
)
from mica._subclasses._fake_class import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorDeviceMismatchError,
    MetadataMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    _as_fake,
    _detached,
    _not_a_leaf,
    _plain,
)
from mica.overrides import TorchFunctionMode
from mica.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten
from mica.utils.weak import WeakIdKeyDictionary

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "MetadataMismatchError",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "_plain",
    "get_plain_tensors",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]

_PUTS = frozenset(["index_put", "index_put_", "_index_put_impl_"])


def _active_modes():
    return [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]


# What functions say that read lengths or places in tensors on the CPU: ctc_loss, tensor_split.
_READS = ("read or written memory of meta", "to be on cpu, but it's on meta")


def _on_meta(t):
    """A tensor without data that lies where a real one does. as_strided may reach all of the memory that a view is in."""
    with _C.DisableTorchFunction():
        made = _C.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        place = t.storage_offset()
        if type(t) is _C.Tensor and (place or t._is_view()) and min(t.stride(), default=0) >= 0:
            memory = _C.empty(t.untyped_storage().nbytes() // t.element_size(), dtype=t.dtype, device="meta")
            made = _C.empty(0, dtype=t.dtype, device="meta").set_(memory.untyped_storage(), place, t.shape, t.stride())
        return made


class FakeTensorConverter:
    """Makes fake tensors of real ones, one for each."""

    def __init__(self, *, copy_data=False, export=False):
        self._made = WeakIdKeyDictionary()

    def from_real_tensor(self, fake_mode, t, make_constant=False, shape_env=None, symbolic_context=None, source=None):
        if isinstance(t, FakeTensor):
            return t
        if t.layout is not mica.strided:
            raise UnsupportedFakeTensorException(f"tensors of the layout {t.layout} have no fake counterpart in Mica")
        known = self._made.get(t)
        if known is None:
            with mica.no_grad(), mica.utils._python_dispatch._disable_current_modes():
                opened = None if shape_env is None else open_sizes.open_input(t, shape_env, symbolic_context, source)
                meta = _on_meta(t) if opened is None else opened[0]
            known = _as_fake(meta, fake_mode, t.device)
            if opened is not None:
                open_sizes.attach(known, *opened[1:])
            known.requires_grad_(t.requires_grad)
            if t.requires_grad and not t.is_leaf:
                known = _not_a_leaf(known)
            if isinstance(t, mica.nn.Parameter):
                known._is_param = True
            self._made[t] = known
        return known


class _OpenNumbers(TorchFunctionMode):
    """Lets functions without tensors among their arguments take open sizes: torch.zeros(x.shape[0])."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        needs_numbers = getattr(func, "__name__", "").split(".")[0] in open_sizes.NEEDS_NUMBERS
        args, kwargs = open_sizes.engine_values((tuple(args), dict(kwargs or {})), needs_numbers)
        return func(*args, **kwargs)


class FakeTensorMode(TorchDispatchMode):
    """A with block in which tensors have sizes, dtypes and devices, and no data."""

    def __init__(self, *, allow_fallback_kernels=True, allow_non_fake_inputs=False, shape_env=None, static_shapes=None,
                 export=False, **options):  # fmt: skip
        super().__init__()
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.shape_env = shape_env
        self.fake_tensor_converter = FakeTensorConverter()
        self._entered, self._numbers = [], _OpenNumbers()
        self.last_device = None  # the device of the last fake tensor that was an argument
        self.constants = {}  # memory -> fake tensors in it whose number is known (constants.py)
        self.arrays = None  # makes arrays of fake tensors; None where nothing does
        self.items = None  # answers item() of fake tensors; None where nothing does
        self.before_values = None  # makes fake tensors real when a value is asked for; None where nothing does

    @classmethod
    def is_infra_mode(cls):
        return True

    def from_tensor(self, tensor, *, static_shapes=None, source=None, symbolic_context=None, trace=True):
        """The fake counterpart of a tensor: the same one each time."""
        is_static = self.static_shapes if static_shapes is None else static_shapes
        env = (
            None
            if is_static or (isinstance(tensor, mica.nn.Parameter) and symbolic_context is None)
            else self.shape_env
        )
        return self.fake_tensor_converter.from_real_tensor(self, tensor, False, env, symbolic_context, source)

    def is_our_fake(self, t):
        return isinstance(t, FakeTensor) and t.fake_mode is self

    def __enter__(self):
        # A mode that is entered within itself changes nothing.
        self._entered.append(not any(active is self for active in _active_modes()))
        if self._entered[-1]:
            super().__enter__()
            if self.shape_env is not None:
                self._numbers.__enter__()
        return self

    def __exit__(self, *exception):
        if self._entered.pop():
            if self.shape_env is not None:
                self._numbers.__exit__(*exception)
            super().__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name in ("lift_fresh", "lift"):
            return args[0] if isinstance(args[0], FakeTensor) else self.fresh(args[0])
        args, kwargs = tree_map_only(_C.TensorBase, lambda t: self._checked(t, func), (args, kwargs))
        if (made := of_data.result(self, func, name, args, kwargs)) is not None:
            return made
        if name in ("slice", "select") and self.shape_env is not None and self.shape_env.has_data():
            made = (open_pieces.sliced if name == "slice" else open_pieces.selected)(self, *args, **kwargs)
            if made is not None:
                return made
        if name == "slice" and self.shape_env is not None:
            open_pieces.rely_on_places(self.shape_env, *args, **kwargs)
        if name in _PUTS and any(index is not None and index.dtype is mica.bool for index in args[1]):
            return (
                args[0]
                if name != "index_put"
                else self.__torch_dispatch__(mica.ops.aten.clone.default, types, args[:1])
            )
        fakes = [t for t in tree_leaves((args, kwargs)) if isinstance(t, FakeTensor)]
        self.last_device = fakes[0].fake_device if fakes else self.last_device
        if name == "detach" and fakes and not self.constants:
            return _detached(fakes[0])
        place = kwargs.get("device")
        if place is not None:
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
            if name == "_to_copy" and str(place) == "meta":  # the engine names the place where the tensor is
                place = None
        is_open = self.shape_env is not None and open_sizes.is_open((args, kwargs), self.shape_env)
        own = getattr(func, "_op", None)
        asks_fake, is_plain = getattr(own, "fake_is_asked", False), getattr(own, "fake_is_plain", False)
        if (asks_fake or is_plain) and self.constants:
            constants.forget_written(self, func, args, kwargs)
        if is_plain:
            return own.plain_fake_result(args, kwargs)
        if asks_fake:
            return self._own_result(func, args, kwargs if place is None else {**kwargs, "device": place}, fakes)
        with _C.DisableTorchFunctionSubclass():
            asks = False  # for a size that only data decide
            try:
                if is_open:
                    if name.startswith("upsample_"):
                        open_views.note_scaled(self.shape_env, func, args, kwargs)
                    if name in open_counts.NAMES:
                        made = open_counts.counted(self, func, name, *args, **kwargs)
                        if made is not None:
                            return made
                    open_counts.refuse_offsets(name, args, kwargs, self.shape_env)
                    return self._open_result(func, args, kwargs, fakes, place)
                made = func(*args, **kwargs)
            except SizeOfData:
                if self.shape_env is None:
                    raise DynamicOutputShapeException(func) from None
                asks = True
            except NotImplementedError as error:
                if is_open and name == "slice":
                    made = open_pieces.sliced(self, *args, **kwargs, by_guards=True)
                    if made is not None:
                        return made
                if is_open:
                    open_needs.raise_needs(func, args, kwargs, self.shape_env, error)
                raise UnsupportedOperatorException(func) from error
            except (RuntimeError, ValueError, IndexError, OverflowError) as error:
                found = open_differences.as_sizes(self.shape_env, name, args, kwargs) if is_open else None
                if found is not None:
                    return self.__torch_dispatch__(
                        func, types, found[0], found[1] | ({"device": place} if place else {})
                    )
                made = self._as_it_fits(func, name, args, kwargs, error) if is_open else None
                if made is not None:
                    return made
                raise
        if asks:
            return fake_result(self, func._op, args, kwargs)
        made = self._all_fake(made, fakes, place)
        if self.constants:
            constants.follow(self, func, args, kwargs if place is None else {**kwargs, "device": place}, made, fakes)
        return made

    def _as_it_fits(self, func, name, args, kwargs, error):
        """The result of a view that the worlds do not take. If sizes have to be known for it, a NeedsStatic; None of others."""
        view = open_views.View(self, name, *args, **kwargs) if name in open_views.VIEWS else None
        if view and not view.is_of_data:
            if not view.depends_on_several():
                open_needs.raise_relations(func, args, kwargs, self.shape_env, error)
            made = view.result()
            if made is not None:
                return made
        open_needs.raise_needs(func, args, kwargs, self.shape_env, error)
        return view.result() if view and view.is_of_data else None

    def _own_result(self, func, args, kwargs, fakes):
        """The result of an operator of the program's own. Its fake function runs within the mode, so that what it makes of
        sizes and devices alone is fake too. It gets open numbers as a program does."""
        if self.shape_env is not None:
            args, kwargs = tree_map_only(int, self.shape_env.shown_number, (args, kwargs))
        try:
            return self._all_fake(fake_result(self, func._op, args, kwargs), fakes, kwargs.get("device"))
        except SizeOfData:
            raise DynamicOutputShapeException(func) from None
        except NotImplementedError as error:
            raise UnsupportedOperatorException(func) from error

    def _open_result(self, func, args, kwargs, fakes, place):
        """The result of an operator some of whose arguments have open sizes."""
        env = self.shape_env
        near = open_sizes.near_sizes((args, kwargs), env)
        if getattr(func, "_overloadpacket", func).__name__ == "im2col" and not kwargs:
            near.append(open_sizes.near_windows(args[0].__dict__.get("_sizes", args[0].shape)[-2:], *args[1:]))
        made, others = open_sizes.run(self, func, args, kwargs)
        leaves, spec = tree_flatten(made)
        columns = [tree_leaves(other) for other in others]
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, _C.TensorBase) and not isinstance(leaf, FakeTensor):
                leaf = _as_fake(leaf, self, place or self._common_device(fakes))
                leaf = open_sizes.result(leaf, [column[i] for column in columns], near, env, func)
                leaves[i] = open_differences.joined(self, leaf)
        return tree_unflatten(leaves, spec)

    def fresh(self, tensor):
        """A fake tensor for one that the program has just made of numbers."""
        with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
            meta = _C.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            fake = _as_fake(meta, self, tensor.device)
            constants.note(self, fake, tensor.detach().clone() if tensor.numel() == 1 else tensor)
        return fake

    def _called(self, func, args, kwargs):
        """Call a function; one whose parts no mode sees takes tensors of one device, and is handed fake ones alone."""
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if any(words in str(error) for words in _READS):
                raise DataDependentOutputException(func) from error
            if not self.allow_non_fake_inputs or "same device" not in str(error):
                raise
        args, kwargs = tree_map_only(_C.TensorBase, self._as_fake_input, (args, kwargs))
        return func(*args, **kwargs)

    def _as_fake_input(self, tensor):
        is_real = not isinstance(tensor, FakeTensor) and tensor.device.type != "meta" and tensor.layout is mica.strided
        return self.from_tensor(tensor, static_shapes=True) if is_real else tensor

    def _checked(self, tensor, func):
        # A tensor on the meta device was made of fake ones by an operation of the engine's own.
        if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            return self.with_open_sizes(tensor)
        if (number := _C._number_on_meta(tensor)) is not None:
            return number
        if self.allow_non_fake_inputs:
            return self.from_tensor(tensor, static_shapes=True)
        raise AssertionError(
            "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. "
            f"Found in {func}: a tensor of {tuple(tensor.shape)} on {tensor.device}"
        )

    def with_open_sizes(self, tensor):
        """Give a tensor its open sizes again, if the engine returns it without its Python object, as a node does that
        has saved it."""
        has_open = self.shape_env is not None and len(self.shape_env.worlds.values[0])
        if not has_open or "_sizes" in tensor.__dict__ or _C.TensorBase.device.__get__(tensor).type != "meta":
            return tensor
        with _C.DisableTorchFunctionSubclass(), _disable_current_modes(), mica.no_grad():
            place = getattr(tensor, "fake_device", None) or self.last_device or mica.get_default_device()
            made = _as_fake(_C.Tensor.detach(tensor), self, place)
            open_sizes.known_result(made, self.shape_env)
        return made if "_sizes" in made.__dict__ else tensor

    def _all_fake(self, made, fakes, place=None):
        """The results as fake tensors on the device of the arguments, or on `place`."""

        def fake(tensor):
            if type(tensor) is _C.Tensor and tensor.device.type == "meta":
                tensor = _as_fake(tensor, self, place or self._common_device(fakes))
                if self.shape_env is not None and len(self.shape_env.worlds.values[0]):
                    open_sizes.known_result(tensor, self.shape_env)
            return tensor

        if isinstance(made, _C.TensorBase):
            return fake(made)
        if isinstance(made, (list, tuple)) and any(isinstance(each, _C.TensorBase) for each in made):
            return tree_map_only(_C.TensorBase, fake, made)
        return made

    @staticmethod
    def _common_device(fakes):
        device, is_number = None, False
        for fake in fakes:
            if device is None or (is_number and fake.dim() > 0):
                device, is_number = fake.fake_device, fake.dim() == 0 and fake.fake_device.type == "cpu"
            elif fake.fake_device != device and not (fake.dim() == 0 and fake.fake_device.type == "cpu"):
                raise FakeTensorDeviceMismatchError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{device} and {fake.fake_device}!"
                )
        return device or mica.get_default_device()


def is_fake(x):
    """Whether a tensor is a fake one."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t):
    """The mode of a fake tensor; None of any other value."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


def get_plain_tensors(subclass, *, out=None):
    """The tensors that a tensor of a class is made of; itself if it is made of none."""
    found = [] if out is None else out
    if not hasattr(subclass, "__tensor_flatten__"):
        found.append(subclass)
        return found
    for name in subclass.__tensor_flatten__()[0]:
        get_plain_tensors(getattr(subclass, name), out=found)
    return found


def unset_fake_temporarily():
    """In this block no fake mode is active."""
    return _disable_current_modes()
