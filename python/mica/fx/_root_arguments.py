"""What stands for the arguments of the function that is traced."""

import builtins
import inspect
import types
import warnings

import mica
from mica import _C
from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from mica.fx.node import base_types
from mica.utils import _pytree as pytree

_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class PHBase:
    """In `concrete_args`: a value that is not fixed."""

    def __repr__(self):
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A placeholder value with a name, which the node gets as `ph_key`."""

    def __init__(self, ph_key=None):
        self.ph_key = ph_key


def _assert_is_none(value, message):
    """What a graph calls to see that an argument is the None that it was traced for."""
    if value is not None:
        raise AssertionError(message)


def with_plain_parameters(function, count):
    """The function with *args, **kwargs and keyword-only parameters as ordinary ones."""
    code = function.__code__
    plain = code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~_STARS)
    return types.FunctionType(
        plain, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def as_python(function):
    """A function of nn.functional, which is Python's in torch, as one of Python's."""
    if not isinstance(function, _C._Function):
        return function
    signature = inspect.signature(function)
    names = list(signature.parameters)
    given = [f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in signature.parameters.values()]
    made = builtins.eval(f"lambda {', '.join(names)}: _function({', '.join(given)})", {"_function": function})
    made.__signature__, made.__name__, made.__annotations__ = signature, function.__name__, {}
    return made


def _hand_on_attributes(placeholder, node):
    """What a placeholder of the user's says of a value; what the node has stays."""
    for name, value in vars(placeholder).items():
        if not hasattr(node, name):
            setattr(node, name, value)


class RootArguments:
    """The part of a tracer that makes placeholders."""

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """(the function to call, what to call it with): proxies for its parameters."""
        analysed = inspect.unwrap(root_fn)
        code, signature = analysed.__code__, inspect.signature(analysed)
        count = code.co_argcount + code.co_kwonlyargcount
        names, args = list(code.co_varnames), []
        if is_module:
            if count == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        own = names[int(is_module) : count]
        if isinstance(concrete_args, tuple) and concrete_args:
            if code.co_flags & _STARS and count == 1:
                return root_fn, [*args, *self._numbered(concrete_args)]
            if len(own) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(own)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(own, concrete_args, strict=True))
        concrete = concrete_args or {}
        for name in own:
            known = name in concrete
            args.append(
                self._fixed(name, concrete[name], signature) if known else self._free(name, signature, analysed)
            )
        if code.co_kwonlyargcount or code.co_flags & _STARS:
            for flag, star in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
                if code.co_flags & flag:
                    args.append(self.create_proxy("placeholder", star + names[count], (), {}))
                    count += 1
            root_fn = with_plain_parameters(root_fn, len(args))
        return self._flattened(root_fn, args, names[: code.co_argcount + code.co_kwonlyargcount])

    def _numbered(self, concrete_args):
        """Placeholders input_0, input_1 ... of a function that takes whatever comes."""
        for i, given in enumerate(concrete_args):
            made = self.create_proxy("placeholder", f"input_{i}", (), {})
            if isinstance(given, PHBase) and given is not PH:
                _hand_on_attributes(given, made.node)
            yield made

    def _free(self, name, signature, function):
        default = signature.parameters[name].default
        kind = getattr(function, "__annotations__", {}).get(name)
        given = () if default is inspect.Parameter.empty else (default,)
        return self.create_proxy("placeholder", name, given, {}, type_expr=kind)

    def _fixed(self, name, value, signature):
        """A value that was given, with placeholders where it is open. The graph asserts what it relies on."""
        default, count = signature.parameters[name].default, 0

        def leaf(x):
            nonlocal count
            count += 1
            given = () if default is inspect.Parameter.empty else (default,)
            made = self.create_proxy("placeholder", f"{name}_{count}", given, {})
            if isinstance(x, PHBase):
                if x is not PH:
                    _hand_on_attributes(x, made.node)
                return made
            if type(x) is bool or (type(x) in base_types and type(x) is not mica.Tensor):
                mica._assert(made == x, f"{name} has been specialized to have value {x} but got another value")
            elif x is None:
                text = f"{name} has been specialized to have value None but got another value"
                self.create_proxy("call_function", _assert_is_none, (made, text), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up "
                    "to the user to make sure that your inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return x

        return pytree.tree_map(leaf, value)

    def _flattened(self, root_fn, args, names):
        """The same call with nests taken apart; the graph's code then takes them apart too."""
        flat, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children()):
            return root_fn, args
        codegen = self.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(names, spec, None))

        def on_leaves(*leaves):
            results, out_spec = pytree.tree_flatten(root_fn(*pytree.tree_unflatten(list(leaves), spec)))
            codegen.pytree_info = _PyTreeInfo(names, spec, out_spec)
            return results

        return on_leaves, flat
