"""Operators of one's own: definitions, and functions registered for them by device."""

import contextlib
import functools
import re

from mica._library.infer_schema import infer_schema
from mica._library.operator import _DEVICE_KEYS, forget, named, operator
from mica._library.operator import define as _define
from mica._library.schema import parse_schema
from mica._library.sizes_of_data import SizeOfData, current_env

__all__ = [  # noqa: F822 - one arrives when it is used
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl",
    "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip

_RESERVED = ("prim",)


def fallthrough_kernel():
    """Registered for a key, lets calls pass to the next."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """A set of registrations for one namespace: "DEF" defines it, "FRAGMENT" adds to it, "IMPL" implements it."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError("Unsupported kind: ", kind)
        if ns in _RESERVED and kind != "IMPL":
            raise ValueError(ns, " is a reserved namespace. Please try creating a library with another name.")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined, self._implemented = [], []

    def __repr__(self):
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema, alias_analysis="", *, tags=()):
        """Define an operator by its schema, "name(Tensor x) -> Tensor"; returns its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        from mica import ops

        name = re.match(r"[\w.:]+", schema.strip())[0].removeprefix(f"{self.ns}::")
        text = schema.strip()
        parsed = parse_schema(text if "::" in text.partition("(")[0] else f"{self.ns}::{text}")
        op = _define(f"{self.ns}::{name}", parsed)
        op.tags = list(tags) if isinstance(tags, (list, tuple)) else [tags]
        self._defined.append(op.qualified_name)
        ops._forget(self.ns, name.partition(".")[0])
        return name

    def _operator(self, op_name):
        name = op_name if isinstance(op_name, str) else op_name.name()
        if "::" in name:
            namespace, _, name = name.partition("::")
            if namespace != self.ns:
                raise ValueError(f"Library of namespace '{self.ns}' cannot register for operator '{namespace}::{name}'")
        return operator(f"{self.ns}::{name}")

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=True):
        """Register a function for an operator and a key. The operator may be defined later, or never."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        op = self._operator(op_name)
        if fn is fallthrough_kernel:
            op.kernels.pop(key, None)
            return
        if key in op.kernels and not allow_override:
            raise RuntimeError(
                f"This is not allowed since there's already a kernel registered from python overriding {op.qualified_name}'s behavior for {key} dispatch key and {self.ns} namespace."
            )
        op.kernels[key] = functools.partial(fn, None) if with_keyset else fn
        self._implemented.append((op, key))

    def _register_fake(self, op_name, fn, _stacklevel=1, *, allow_override=True):
        _check_override(self._operator(op_name), allow_override)
        self._operator(op_name).fake = fn

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        raise NotImplementedError("Library.fallback: Mica has no dispatcher that all operators pass through")

    def _destroy(self):
        for op, key in self._implemented:
            op.kernels.pop(key, None)
        for name in self._defined:
            forget(name)
            from mica import ops

            ops._forget(self.ns, name.partition("::")[2].partition(".")[0])
        self._defined, self._implemented = [], []


@contextlib.contextmanager
def _scoped_library(*args, **kwargs):
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


_keep_alive = []


def define(qualname, schema=None, *, lib=None, tags=(), alias_analysis=""):
    """Define an operator: define("ns::name", "(Tensor x) -> Tensor"). With a Library first, a decorator that defines and
    implements."""
    if isinstance(qualname, Library):
        library, text = qualname, schema

        def wrap(function):
            library.impl(library.define(text, alias_analysis), function)
            return function

        return wrap
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, _, name = qualname.partition("::")
    if not name:
        raise ValueError(f"Expected qualname to be of the form 'namespace::name', got {qualname!r}")
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        _keep_alive.append(lib)
    if not re.fullmatch(r"\(.*\)\s*->\s*.*", schema.strip(), re.DOTALL):
        raise ValueError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    lib.define(name + schema, tags=tags)


def _check_override(op, is_allowed):
    if is_allowed:
        return
    if op.fake is not None:
        raise RuntimeError(f"register_fake(...): the operator {op.qualified_name} already has a fake impl registered")
    if "Meta" in op.kernels:
        raise RuntimeError(
            f"register_fake(...): the operator {op.qualified_name} already has a DispatchKey::Meta implementation"
        )


def _keys(types):
    known = {"default": "CompositeExplicitAutograd", **_DEVICE_KEYS}
    names = (types,) if isinstance(types, str) else tuple(types)
    return [known.get(name, name if name[:1].isupper() else name.upper()) for name in names]


def impl(qualname, types, func=None, *, lib=None):
    """Register a function for an operator and types of device. A decorator without the function."""
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def wrap(function):
            library.impl(name, function, key)
            return function

        return wrap

    def register(function):
        for key in _keys(types):
            operator(qualname).kernels[key] = function

    if func is None:
        return lambda function: (register(function), function)[1]
    return register(func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Register a function for an operator and types of device."""

    def register(function):
        keys = ["CompositeExplicitAutograd"] if device_types is None else _keys(device_types)
        for key in keys:
            named(op).kernels[key] = function
        return function

    return register if func is None else register(func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=True):
    """Register the function that makes results of the right shapes. The operator may be defined later, or never."""

    def register(function):
        _check_override(named(op), allow_override)
        named(op).fake = function
        return function

    return register if func is None else register(func)


def impl_abstract(qualname, func=None, *, lib=None, _stacklevel=1):
    """The older name of register_fake."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Register how gradients of an operator are computed."""
    target = named(op)
    if target.defined and target.schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {op} with schema {target.schema}. Please create a functional operator and register an autograd formula for that."
        )
    target.backward, target.setup_context = backward, setup_context


def register_vmap(op, func=None, /, *, lib=None):
    """Register how vmap runs an operator."""

    def register(function):
        named(op).vmap = function
        return function

    return register if func is None else register(func)


def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
    """Register the dtype that autocast casts an operator's inputs to."""
    named(op).autocast[device_type] = cast_inputs


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, *, lib=None):
    """Register the rule for an operator under a TorchDispatchMode, or for a class of tensors."""
    return named(op).add_dispatch_rule(torch_dispatch_class, func)


class _FakeContext:
    """The context that register_fake's functions get for sizes that depend on data. The meta device has no data."""

    def __init__(self, env):
        self._env = env

    def new_dynamic_size(self, *, min=0, max=None):
        """A size from `min` to `max` that only data decide."""
        if self._env is None:
            raise SizeOfData("the size of a result on the meta device must not depend on data")
        return self._env.create_unbacked_symint(least=min, greatest=max)

    create_unbacked_symint = new_dynamic_size


def get_ctx():
    """The context in which a function of register_fake makes sizes that depend on data."""
    return _FakeContext(current_env())


def get_kernel(op, dispatch_key):
    """The function registered for an operator and a key."""
    key = dispatch_key if isinstance(dispatch_key, str) else dispatch_key.name
    try:
        return named(op).kernels[key]
    except KeyError:
        raise RuntimeError(f"no kernel of {op} for {key}") from None


def opcheck(op, args, kwargs=None, *, test_utils=None, raise_exception=True, atol=None, rtol=None):
    """Check an operator on examples: its results against its schema, its fake against its results, its gradients.

    `atol` and `rtol` are for torch's checks with its compiler, which are refused by name.
    """
    from mica._library.check import opcheck

    return opcheck(op, args, kwargs or {}, test_utils, raise_exception)


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """An operator around Triton kernels: as custom_op. What launches one needs Triton."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel, /):
    """A Triton kernel as it is: nothing traces it."""
    return triton_kernel


def __getattr__(name):
    if name == "CustomOpDef":
        from mica._library.custom_ops import CustomOpDef

        return CustomOpDef
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make a Python function an operator."""
    from mica._library.custom_ops import custom_op

    return custom_op(name, fn, mutates_args=mutates_args, device_types=device_types, schema=schema, tags=tags)
