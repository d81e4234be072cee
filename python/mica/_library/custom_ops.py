"""Operators made of Python functions: torch.library.custom_op."""

import contextlib

import mica
from mica._library.infer_schema import infer_schema
from mica._library.operator import _DEVICE_KEYS, define, forget, operator
from mica._library.schema import parse_schema

OPDEFS = {}


def _devices(device_types):
    if device_types is None:
        return (None,)
    return (device_types,) if isinstance(device_types, str) else tuple(device_types)


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make a Python function an operator, opaque to what records graphs. Gradients come with register_autograd."""

    def made(function):
        namespace, _, opname = name.partition("::")
        if not opname:
            raise ValueError(f"Expected `name` to be of the form 'namespace::name', but got {name!r}")
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        return CustomOpDef(namespace, opname, text, function, device_types=device_types, tags=tags)

    return made if fn is None else made(fn)


class CustomOpDef:
    """An operator made of a Python function: called like it, and open to registrations."""

    def __init__(self, namespace, name, schema, fn, tags=None, device_types=None):
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self.__name__, self.__doc__ = name, fn.__doc__
        self.__wrapped__ = fn
        if self._qualname in OPDEFS:
            forget(self._qualname)  # a cell of a notebook that runs again
        parsed = parse_schema(f"{self._qualname}{schema}")
        _check_results(parsed)
        self._operator = define(self._qualname, parsed)
        self._operator.raises_without_backward = True
        self._operator.tags = list(tags) if isinstance(tags, (list, tuple)) else [] if tags is None else [tags]
        self._disabled = {}
        OPDEFS[self._qualname] = self
        mica.ops._forget(namespace, name)
        self.register_kernel(device_types, fn)

    @property
    def _qualname(self):
        return f"{self._namespace}::{self._name}"

    @property
    def _opoverload(self):
        return getattr(getattr(mica.ops, self._namespace), self._name).default

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, /, *args, **kwargs):
        return self._operator(*args, **kwargs)

    def register_kernel(self, device_types, fn=None, /):
        """The function for tensors on some types of device; without types, on all."""

        def register(function):
            for device in _devices(device_types):
                key = "CompositeExplicitAutograd" if device is None else _DEVICE_KEYS.get(device, device.upper())
                self._operator.kernels[key] = _checked(self, function)
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn, /):
        """The function that makes results of the right shapes for tensors on the meta device."""
        self._operator.fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """Register the function that computes gradients, and the one that says what to keep of the forward pass."""
        if self._operator.schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema {self._schema}. Please create a functional operator and register an autograd formula for that."
            )
        self._operator.backward, self._operator.setup_context = backward, setup_context

    def register_vmap(self, func=None):
        """Say which function vmap calls for this operator."""

        def register(function):
            self._operator.vmap = function
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type, cast_inputs):
        """The dtype that autocast casts inputs to."""
        self._operator.autocast[device_type] = cast_inputs

    def register_effect(self, effect):
        """Accepted and not used: calls are never reordered here, so that an effect needs no token."""

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        """The rule for this operator under a TorchDispatchMode, or for a class of tensors."""
        return self._operator.add_dispatch_rule(torch_dispatch_class, fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type, enabled=True):
        """A context in which the function for a type of device is off or on; where it is off, the first one is used."""
        key = _DEVICE_KEYS.get(device_type, device_type.upper())
        kernels, before = self._operator.kernels, dict(self._operator.kernels)
        if enabled and key in self._disabled:
            kernels[key] = self._disabled[key]
        elif not enabled and key in kernels:
            self._disabled[key] = kernels.pop(key)
            kernels.setdefault("CompositeExplicitAutograd", _checked(self, self._init_fn))
        try:
            yield
        finally:
            kernels.clear()
            kernels.update(before)


def _check_results(schema):
    if any(each.alias_info is not None for each in schema.returns):
        raise ValueError(f"custom_op: results must not alias arguments, got schema {schema}")


def _checked(definition, function):
    """The function, with torch's rule that no result is an argument, unless a tag says that the operator writes into it."""

    def kernel(*args, **kwargs):
        result = function(*args, **kwargs)
        if mica.Tag.inplace in definition._operator.tags or mica.Tag.out in definition._operator.tags:
            return result
        given = {id(value) for value in (*args, *kwargs.values()) if isinstance(value, mica.Tensor)}
        results = result if isinstance(result, (tuple, list)) else (result,)
        if any(isinstance(each, mica.Tensor) and id(each) in given for each in results):
            raise RuntimeError(
                f"{definition._qualname} (with implementation in {function.__module__}): The output of this custom "
                "operator (1) must not also be an input to this custom operator and (2) may not alias any inputs to "
                "this custom operator or other returns. The most common way to trigger this error is if we have "
                "y = custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending "
                "output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not return y."
            )
        return result

    return kernel


def _maybe_get_opdef(op):
    if isinstance(op, CustomOpDef):
        return op
    return OPDEFS.get(op if isinstance(op, str) else getattr(op, "_qualified_op_name", None))


__all__ = ["CustomOpDef", "custom_op", "operator"]
