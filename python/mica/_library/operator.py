"""Operators that programs define: the functions that are registered for each, and which of them a call runs."""

import functools
import os
import threading

import mica

# Registrations are kept by qualified name, "ns::name.overload", whether or not the operator is defined yet: packages
# register for operators of libraries that are not installed.
_operators = {}
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_DEVICE_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}
_AUTOGRAD_KEYS = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther")
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "BackendSelect", "CatchAll")


class Operator:
    """One operator: its schema once it is defined, and the functions registered for it."""

    def __init__(self, qualified_name):
        self.qualified_name = qualified_name
        self.schema = None
        self.kernels = {}
        self.fake = None
        self.backward = self.setup_context = None
        self.raises_without_backward = False
        self.vmap = None
        self.autocast = {}
        self.dispatch_rules = {}  # by mode or by class of tensors
        self.tags = []

    @property
    def defined(self):
        return self.schema is not None

    # ---- arguments

    def bound(self, args, kwargs):
        """The arguments by name, in the schema's order, with its defaults; and the positional and keyword parts."""
        declared = self.schema.arguments
        positional = [a for a in declared if not a.kwarg_only]
        if len(args) > len(positional):
            raise TypeError(
                f"{self.qualified_name}() expected at most {len(positional)} argument(s) but received {len(args)} "
                f"argument(s). Declaration: {self.schema}"
            )
        values = dict(zip((a.name for a in positional), args, strict=False))
        for name, value in kwargs.items():
            if name in values or all(a.name != name for a in declared):
                problem = "got multiple values for" if name in values else "Unknown keyword argument"
                raise TypeError(f"{self.qualified_name}() {problem} '{name}'. Declaration: {self.schema}")
            values[name] = value
        for a in declared:
            if a.name not in values:
                if not a.has_default_value():
                    raise TypeError(
                        f"{self.qualified_name}() is missing value for argument '{a.name}'. Declaration: {self.schema}"
                    )
                values[a.name] = _default(a)
        return tuple(values[a.name] for a in positional), {a.name: values[a.name] for a in declared if a.kwarg_only}

    def _without_defaults(self, args, kwargs):
        """The arguments of a call, leaving out those that have their default."""
        declared = [a for a in self.schema.arguments if not a.kwarg_only]
        args, defaults = list(args), {a.name: a for a in self.schema.arguments if a.has_default_value()}

        def is_default(name, value):
            return name in defaults and not isinstance(value, mica.Tensor) and value == _default(defaults[name])

        while args and is_default(declared[len(args) - 1].name, args[-1]):
            args.pop()
        return tuple(args), {name: value for name, value in kwargs.items() if not is_default(name, value)}

    # ---- calls

    def __call__(self, /, *args, **kwargs):
        if not self.defined:
            raise AttributeError(
                f"operator {self.qualified_name} is not defined: the library that brings it cannot be loaded here, "
                "for it is built for libtorch"
            )
        args, kwargs = self.bound(args, kwargs)
        if self.tags and self._wants_dense() and mica.compiler.is_compiling():
            args, kwargs = mica.utils._pytree.tree_map_only(mica.Tensor, mica.Tensor.contiguous, (args, kwargs))
        tensors = _tensors(args) + _tensors(kwargs.values())
        if mica.overrides.has_torch_function(tensors):
            return mica.overrides.handle_torch_function(self._as_asked(), tensors, *args, **kwargs)
        device = _device_of(tensors, args, kwargs)
        if self.autocast and mica.is_autocast_enabled(device) and device in self.autocast:
            from mica.amp.autocast_mode import _cast

            with mica.autocast(device, enabled=False):
                return self(*_cast(args, device, self.autocast[device]), **_cast(kwargs, device, self.autocast[device]))
        if mica.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return self._with_gradient(device, args, kwargs)
        return self.run(device, args, kwargs)

    def _as_asked(self):
        """What __torch_function__ is handed: the operator of torch.ops. Mica's own modes look at this object."""
        mode = mica.overrides._get_current_function_mode()
        return self if mode is not None and not mode._sees_operators else self._public()

    def _wants_dense(self):
        """Whether compiled functions should call the operator with contiguous tensors. That is not possible for one that writes
        to its arguments."""
        return mica.Tag.needs_contiguous_strides in self.tags and not self.schema.is_mutable

    def add_dispatch_rule(self, kind, function=None):
        """The rule under a TorchDispatchMode, or for a class of tensors; a decorator without the function."""
        if function is None:
            return lambda function: self.add_dispatch_rule(kind, function)
        self.dispatch_rules[kind] = function
        return function

    def _dispatch_rule(self, types):
        """The rule for the innermost mode, or for the first class that has one; None without."""
        from mica.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

        mode = _get_current_dispatch_mode()
        if type(mode) not in self.dispatch_rules:
            found = next((kind for kind in types if kind in self.dispatch_rules), None)
            return None if found is None else functools.partial(self.dispatch_rules[found], found)

        def outside_the_mode(*arguments):
            with _pop_mode_temporarily():
                return self.dispatch_rules[type(mode)](mode, *arguments)

        return outside_the_mode

    def _public(self):
        """The operator as torch.ops has it."""
        namespace, _, name = self.qualified_name.partition("::")
        packet, _, overload = name.partition(".")
        return getattr(getattr(getattr(mica.ops, namespace), packet), overload or "default")

    def _with_gradient(self, device, args, kwargs):
        for key in ("Autograd" + _DEVICE_KEYS.get(device, "Other"), *_AUTOGRAD_KEYS):
            if key in self.kernels:
                return self.kernels[key](*args, **kwargs)
        key = self._key(device)
        if key == "CompositeImplicitAutograd":
            return self.kernels[key](*args, **kwargs)
        if self.backward is not None or self.raises_without_backward:
            from mica._library.autograd import with_backward

            return with_backward(self, device, args, kwargs)
        with mica.no_grad():
            return self.run(device, args, kwargs)

    def _key(self, device):
        own = _DEVICE_KEYS.get(device, device.upper())
        for key in (own, *_COMPOSITE, "CompositeImplicitAutograd"):
            if key in self.kernels:
                return key
        return None

    @property
    def fake_is_asked(self):
        """Whether a function that was registered for fake tensors computes what the result on the meta device is like."""
        return self.fake is not None and "Meta" not in self.kernels

    @property
    def fake_is_plain(self):
        """Whether fake tensors need no function to know what a call returns: nothing, or what it writes to."""
        if not self.defined or self.fake is not None or self._key("meta") is not None:
            return False
        writes = mica.Tag.inplace in self.tags or mica.Tag.out in self.tags
        return writes or (self.schema.is_mutable and not self.schema.returns)

    def plain_fake_result(self, args, kwargs):
        """What such a call returns."""
        if mica.Tag.out in self.tags:
            written = [a.name for a in self.schema.arguments if a.kwarg_only and a.alias_info is not None]
            given = tuple(kwargs[name] for name in written if name in kwargs)
            return given[0] if len(given) == 1 else given
        return args[0] if mica.Tag.inplace in self.tags else None

    def run(self, device, args, kwargs):
        """The registered function for the device, without a thought of gradients. A rule for a mode or a class, or a mode, is asked
        first."""
        if self.dispatch_rules:
            tensors = _tensors(args) + _tensors(kwargs.values())
            types = tuple({type(t): None for t in tensors if type(t) is not mica.Tensor})
            if (rule := self._dispatch_rule(types)) is not None:
                return rule(self._public(), types, *self._without_defaults(args, kwargs))
        if mica._C._len_torch_dispatch_stack() and self._key(device) != "CompositeImplicitAutograd":
            from mica.utils._dispatch_calls import ask_innermost, overloaded_types

            given = self._without_defaults(args, kwargs)
            return ask_innermost(self._public(), overloaded_types(*given), *given)
        if device == "meta" and self.fake_is_asked:
            return self.fake(*args, **kwargs)
        key = self._key(device)
        if key is None:
            raise NotImplementedError(
                f"Could not run '{self.qualified_name}' with arguments from the '{_DEVICE_KEYS.get(device, device)}' backend. "
                f"'{self.qualified_name}' is registered for: {sorted(self.kernels)}"
            )
        return self.kernels[key](*args, **kwargs)

    # __torch_function__ is handed the operator itself.
    __name__ = property(lambda self: self.qualified_name.partition("::")[2])


def _default(argument):
    """The value that a function gets for an argument that is left out. Schemas have the names of dtypes and devices."""
    value, kind = argument.default_value, str(argument.type).removesuffix("?")
    if isinstance(value, str) and kind in ("ScalarType", "Layout", "MemoryFormat"):
        return getattr(mica, value)
    return mica.device(value) if isinstance(value, str) and kind == "Device" else value


def _tensors(values):
    found = []
    for value in values:
        if isinstance(value, mica.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, mica.Tensor)]
    return found


_true_device = mica._C.TensorBase.device.__get__


def _device_of(tensors, args, kwargs):
    if tensors:
        kinds = {_true_device(t).type for t in tensors}  # the device of a fake tensor, not meta
        return "meta" if "meta" in kinds else "cuda" if "cuda" in kinds else next(iter(kinds))
    for value in (*args, *kwargs.values()):
        if isinstance(value, mica.device):
            return value.type
    return "cpu"


def operator(qualified_name):
    """The operator object of a name, whether it is defined yet or not. "ns::name" and "ns::name.default" are the same."""
    name = qualified_name.removesuffix(".default")
    with _lock:
        return _operators.setdefault(name, Operator(name))


def find(namespace, name):
    """The defined operators of a name, by their overloads' names."""
    prefix = f"{namespace}::{name}"
    return {
        key.removeprefix(prefix).removeprefix(".") or "default": op
        for key, op in list(_operators.items())
        if op.defined and (key == prefix or key.startswith(prefix + "."))
    }


def names(namespace):
    prefix = namespace + "::"
    return sorted(
        {
            key.removeprefix(prefix).partition(".")[0]
            for key, op in _operators.items()
            if key.startswith(prefix) and op.defined
        }
    )


def define(qualified_name, schema):
    op = operator(qualified_name)
    if op.defined:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each "
            "overload's schema should only be registered with a single call to def()."
        )
    op.schema = schema
    return op


def forget(qualified_name):
    with _lock:
        _operators.pop(qualified_name.removesuffix(".default"), None)


def named(op):
    """The operator that an argument of a registration means: a name, an overload or a CustomOpDef."""
    if isinstance(op, str):
        return operator(op)
    inner = getattr(op, "_operator", None)
    return inner if inner is not None else operator(op._qualified_op_name)
