"""torch.ops: operators by namespace and name, torch's own (`aten`) and those that programs define."""

import types

import mica
from mica import _C
from mica._functions.wrapping import asked_among
from mica._library import operator as _operators
from mica._library.schema import parse_schema
from mica._operators import aten_table

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "ops"]


class OperatorBase:
    """The base class of the operators and overloads that torch.ops hands out."""


def _asked(args, kwargs):
    """The arguments, and items of lists among them, whose __torch_function__ gets the operator itself: proxies."""
    values = (*args, *kwargs.values()) if kwargs else args
    found = asked_among(values)
    for value in values:
        if type(value) in (list, tuple):
            found += asked_among(value)
    return found


def _handled(operator, asked, args, kwargs):
    from mica.overrides import handle_torch_function

    return handle_torch_function(operator, asked, *args, **kwargs)


def _is_seen():
    """Whether a mode is asked next that sees operators themselves: one of the program's, or a capture."""
    depth = _C._len_torch_function_stack()
    return depth > 0 and _C._get_function_stack_at(depth - 1)._sees_operators and _C._has_torch_function(())


def _seen(operator, args, kwargs):
    """The answer of a mode that sees a call of the operator."""
    relevant = [*args, *kwargs.values()]
    relevant += [item for value in relevant if isinstance(value, (list, tuple)) for item in value]
    return _handled(operator, relevant, args, kwargs)


def _places_of_lists(schema):
    """Where a list of tensors, or of None, is asked for: a tensor there is the list of its parts."""
    return {(i, a.name) for i, a in enumerate(schema.arguments) if a.type == "Tensor?[]"}


def _with_parts(places, args, kwargs):
    args = list(args)
    for place, name in places:
        if place < len(args) and isinstance(args[place], mica.Tensor):
            args[place] = list(args[place].unbind(0))
        elif isinstance(kwargs.get(name), mica.Tensor):
            kwargs = kwargs | {name: list(kwargs[name].unbind(0))}
    return args, kwargs


class OpOverload(OperatorBase):
    """One overload of an operator: torch.ops.aten.add.Tensor."""

    def __init__(self, overloadpacket, name, schema, op, tags=()):
        self._overloadpacket, self._overloadname, self._schema, self._op = overloadpacket, name, schema, op
        self.tags = list(tags)
        self._qualified_op_name = overloadpacket._qualified_op_name + ("" if name == "default" else f".{name}")
        self.__name__ = f"{overloadpacket.__name__}.{name}"
        self.__module__ = overloadpacket.__module__
        self.__qualname__ = self._qualified_op_name
        self.__doc__ = str(schema)
        self.is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)
        self._lists = _places_of_lists(schema)

    @property
    def overloadpacket(self):
        return self._overloadpacket

    @property
    def op(self):
        return self._op

    @property
    def namespace(self):
        return self._qualified_op_name.partition("::")[0]

    def name(self):
        return self._qualified_op_name

    _name = property(name)

    def __call__(self, /, *args, **kwargs):
        if self._lists:
            args, kwargs = _with_parts(self._lists, args, kwargs)
        if asked := _asked(args, kwargs):
            return _handled(self, asked, args, kwargs)
        if _is_seen():
            return _seen(self, args, kwargs)
        return self._op(*args, **kwargs)

    redispatch = property(lambda self: lambda keyset, *args, **kwargs: self(*args, **kwargs))

    def has_kernel_for_dispatch_key(self, k):
        inner = getattr(self._op, "kernels", None)
        return True if inner is None else getattr(k, "name", str(k)) in inner

    def decompose(self, *args, **kwargs):
        return NotImplemented

    def __repr__(self):
        namespace, _, name = self._overloadpacket._qualified_op_name.partition("::")
        return f"<OpOverload(op='{namespace}.{name}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self._overloadpacket._qualified_op_name.replace('::', '.')}.{self._overloadname}"

    def __hash__(self):
        return hash(self._qualified_op_name)

    def __eq__(self, other):
        return isinstance(other, OpOverload) and self._qualified_op_name == other._qualified_op_name

    def __deepcopy__(self, memo=None):
        return self

    def __reduce__(self):
        return _find, (*self._overloadpacket._qualified_op_name.split("::"), self._overloadname)


def _find(namespace, name, overload=None):
    packet = getattr(getattr(ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)


class OpOverloadPacket:
    """An operator with all its overloads: torch.ops.aten.add."""

    def __init__(self, qualified_op_name, op_name, overloads, call):
        self._qualified_op_name, self.__name__ = qualified_op_name, op_name
        self.__module__ = f"torch._ops.{qualified_op_name.partition('::')[0]}"
        self.__qualname__ = op_name
        self._overloads = overloads  # name -> (schema, function, tags)
        self._op = call
        self._lists = set().union(*(_places_of_lists(schema) for schema, _, _ in overloads.values()))

    @property
    def op(self):
        return self._op

    @property
    def _schemas(self):
        return {name: schema for name, (schema, _, _) in self._overloads.items()}

    def overloads(self):
        """The names of the overloads."""
        return list(self._overloads)

    def __call__(self, /, *args, **kwargs):
        if self._lists:
            args, kwargs = _with_parts(self._lists, args, kwargs)
        if asked := _asked(args, kwargs):
            return _handled(self, asked, args, kwargs)
        if _is_seen():
            return _seen(self, args, kwargs)
        return self._op(*args, **(aten_table.with_dtypes(kwargs) if kwargs else kwargs))

    def __getattr__(self, name):
        if name.startswith("__") or name not in self._overloads:
            raise AttributeError(
                f"The underlying op of '{self._qualified_op_name.replace('::', '.')}' has no overload name '{name}'"
            )
        made = OpOverload(self, name, *self._overloads[name])
        self.__dict__[name] = made
        return made

    def __iter__(self):
        return iter(self._overloads)

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"

    def __str__(self):
        return self._qualified_op_name.replace("::", ".")

    def __hash__(self):
        return hash(self._qualified_op_name)

    def __eq__(self, other):
        return isinstance(other, OpOverloadPacket) and self._qualified_op_name == other._qualified_op_name

    def __deepcopy__(self, memo=None):
        return self

    def __reduce__(self):
        return _find, tuple(self._qualified_op_name.split("::"))


def _call_first_that_fits(overloads, qualified_name):
    """A function that calls the overload whose schema takes the arguments."""

    def call(*args, **kwargs):
        if len(overloads) == 1:
            return next(iter(overloads.values()))(*args, **kwargs)
        problems = []
        for op in overloads.values():
            try:
                op.bound(args, kwargs)
            except TypeError as error:
                problems.append(str(error))
                continue
            return op(*args, **kwargs)
        raise RuntimeError(f"No overload of {qualified_name} takes the arguments:\n" + "\n".join(problems))

    return call


# Operators of aten whose names look like Python's own.
_OPERATOR_METHODS = {f"__{i}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for i in ("", "i")}


class _OpNamespace(types.ModuleType):
    """The operators of a namespace: torch.ops.aten."""

    def __init__(self, name):
        super().__init__(f"torch.ops.{name}")
        self.name = name

    def _packet(self, op_name):
        qualified = f"{self.name}::{op_name}"
        defined = _operators.find(self.name, op_name)
        if defined:
            overloads = {name: (op.schema, op, op.tags) for name, op in defined.items()}
            return OpOverloadPacket(qualified, op_name, overloads, _call_first_that_fits(defined, qualified))
        return self._torch_packet(op_name)

    def _torch_packet(self, op_name):
        """The packet of an operator that torch brings: one of the table, or one that can only be named."""
        if self.name == "quantized":
            return self._quantized_packet(op_name)
        from mica._operators import aten_names as _aten_names

        is_own = self.name == "aten" and op_name not in _aten_names.OTHERWISE
        overloads, lines = {}, aten_table.table().get(op_name, ()) if is_own else ()
        for line in lines:
            try:
                kernel = aten_table.AtenKernel(*line)
            except AttributeError:  # the table has it, but this build's package does not
                continue
            overloads.setdefault(
                kernel.schema.overload_name or "default", (kernel.schema, kernel, aten_table.tags_of(op_name))
            )
        function = aten_table.function_of(*lines[0][:2]) if overloads else _aten_names.function(op_name, self.name)
        for text in _aten_names.schemas(self.name, op_name):
            schema = parse_schema(text)
            if (name := schema.overload_name or "default") not in overloads:
                own = _aten_names.function_of_overload(f"{op_name}.{name}", self.name) or function
                overloads[name] = (schema, _aten_names.Kernel(schema, own), ())
        if not overloads:
            return None
        call = function or next(iter(overloads.values()))[1]
        return OpOverloadPacket(f"{self.name}::{op_name}", op_name, overloads, call)

    def _quantized_packet(self, op_name):
        from mica._operators import quantized

        found = quantized.overloads(op_name)
        if found is None:
            return None
        function, schemas = found
        overloads = {name: (schema, function, ()) for name, schema in schemas.items()}
        return OpOverloadPacket(f"quantized::{op_name}", op_name, overloads, function)

    def __getattr__(self, op_name):
        if op_name.startswith("__") and op_name not in _OPERATOR_METHODS:
            raise AttributeError(op_name)
        if self.name == "higher_order":
            from mica._higher_order_ops.operators import OPERATORS

            if op_name in OPERATORS:
                return OPERATORS[op_name]
        packet = self._packet(op_name)
        if packet is None:
            raise AttributeError(
                f"'_OpNamespace' '{self.name}' object has no attribute '{op_name}': Mica has no operator of that name, and "
                "a library that is built for libtorch cannot bring it"
            )
        self.__dict__[op_name] = packet
        return packet

    def __iter__(self):
        return iter(self.__dir__())

    def __dir__(self):
        own = _operators.names(self.name)
        if self.name == "quantized":
            from mica._operators import quantized

            return sorted({*own, *quantized.names()})
        if self.name != "aten":
            return own
        from mica._operators import aten_names as _aten_names

        names = {*own, *aten_table.table(), *_aten_names.names()}
        return sorted(n for n in names if not n.startswith("__") or n in _OPERATOR_METHODS)


class HigherOrderOperator(OperatorBase):
    """An operator whose arguments are functions. Calling it runs what is registered for it in Python."""

    def __init__(self, name, *, cacheable=False, **options):
        self._name = self.__name__ = name
        self._functions = {}

    def py_impl(self, k):
        def register(function):
            self._functions[getattr(k, "name", k)] = function
            return function

        return register

    py_autograd_impl = property(lambda self: lambda function: self.py_impl("Autograd")(function))
    py_functionalize_impl = property(lambda self: lambda function: function)

    def fallthrough(self, dispatch_key):
        """Does nothing: Mica has no dispatch keys to pass a call through."""

    def name(self):
        return self._name

    def __call__(self, /, *args, **kwargs):
        device = self._device_of((*args, *kwargs.values()))
        for key in (f"Autograd{device}", "Autograd", "CompositeExplicitAutograd", device, "CPU", "CUDA"):
            if key in self._functions:
                return self._functions[key](*args, **kwargs)
        raise NotImplementedError(f"no function is registered for the operator {self._name}")

    @staticmethod
    def _device_of(arguments):
        """The device of the first tensor, as keys spell it."""
        from mica.utils._pytree import tree_leaves

        found = next((each for each in tree_leaves(arguments) if isinstance(each, mica._C.TensorBase)), None)
        return "CPU" if found is None else found.device.type.upper()

    def __str__(self):
        return self._name


class _Ops(types.ModuleType):
    """The object behind torch.ops: namespaces of operators as attributes."""

    def __init__(self):
        super().__init__("torch.ops")
        self.loaded_libraries = set()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = self.__dict__[name] = _OpNamespace(name)
        return namespace

    def _forget(self, namespace, name):
        """Forget which operators were found before, because one was defined or undefined."""
        space = self.__dict__.get(namespace)
        if space is not None:
            space.__dict__.pop(name, None)

    def import_module(self, module):
        """Import a module that defines operators."""
        import importlib

        importlib.import_module(module)

    def load_library(self, path):
        """Load a library that defines operators: one built against Mica."""
        from mica.utils._extension_library import load_library

        load_library(path)
        self.loaded_libraries.add(path)


ops = _Ops()
