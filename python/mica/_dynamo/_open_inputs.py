"""Which sizes of a captured graph's inputs are left open, and what becomes of one that turns out not to be.

A size is open where the program says so (mark_dynamic, dynamic=True) or where it was another one in an earlier call. Fake
tensors compute with it (_subclasses/open_sizes.py), and the graph has an input for it, before the tensor that it belongs to.
An operation may ask for more than it was said: a product needs two sizes to be equal, a weight has a fixed one. The size is
then fixed to the example's, and the calls so far are computed once more: those of the graph, never those of Python.
"""

import contextlib
import itertools
import sys
import warnings

import mica
from mica import _C
from mica._dynamo._capture_names import name_of
from mica._dynamo._open_numbers import OpenNumber
from mica._subclasses import open_sizes
from mica._subclasses.fake_tensor import FakeTensor, FakeTensorConverter
from mica._subclasses.fake_tensor import _as_fake as as_fake
from mica._subclasses.fake_tensor import _plain as plain
from mica.amp.autocast_mode import _enter_autocast, _exit_autocast
from mica.fx.experimental._expressions import make, symbol
from mica.fx.experimental._proxy_arguments import SizeNodes
from mica.fx.experimental._worlds import FEW_OPEN, MOST_OPEN
from mica.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from mica.fx.node import map_arg
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

__all__ = ["OpenInputs", "SizeInput", "concrete"]


_NOTHING = contextlib.nullcontext()


class SizeInput:
    """An input of a graph that is a size: the number that it is in this call."""

    def __init__(self, value):
        self.value = value


def _leave_casts(made):
    """Leave the blocks of autocast that nodes have entered."""
    left = [node.args[0] for node in made if node.target is _exit_autocast]
    for node in reversed([node for node in made if node.target is _enter_autocast and node not in left]):
        _exit_autocast(made[node])


def concrete(values):
    """The values, with the numbers of this call in the place of open sizes."""

    def number(value):
        return mica.Size(map(int, value)) if isinstance(value, open_sizes.OpenSize) else int(value)

    kinds = (OpenNumber, open_sizes.OpenSize)
    return tree_map_only(kinds, number, values, is_leaf=lambda value: isinstance(value, open_sizes.OpenSize))


def are_open(values):
    """Whether sizes of tensors are open already: another trace calls the function."""
    return any("_sizes" in getattr(leaf, "__dict__", ()) for leaf in tree_leaves(values))


_STATIC = (mica.nn.Parameter, mica.nn.Buffer)  # their sizes stay


def _marked(tensor):
    """The dimensions that the program has marked as open, whether or not they may be fixed."""
    own = getattr(tensor, "__dict__", {})
    return own.get("_dynamo_dynamic_indices", set()) | own.get("_dynamo_weak_dynamic_indices", set())


class OpenInputs:
    """The open sizes of one call of a captured function."""

    def __init__(self, owner, fakes, names):
        self._owner, self._fakes, self._names = owner, fakes, names
        self.shows_numbers = True  # True: Python sees the numbers of this call; False: SymInts, which it may ask
        self.presets = {}  # sizes that an earlier trace of the same call has found to be fixed
        self.sources, self._promised = {}, {}  # symbol -> the input whose size it is; symbols of mark_dynamic
        self._places = {}  # the open sizes of this call: (name of the input, axis) -> the number
        self._symbols = {}  # their symbols
        plain = (_C.Tensor, mica.nn.Parameter, mica.nn.Buffer)
        self._sizes = tuple((name, t.shape) for t, name in names.given() if type(t) in plain and not t.is_nested)
        self._is_known = self._sizes in owner.fixed  # a graph without open sizes is known for these arguments

    @property
    def env(self):
        return self._fakes.shape_env

    def axes(self, tensor, name):
        """The dimensions of an input whose sizes are open."""
        if self._owner.dynamic is False or isinstance(tensor, _STATIC):
            return ()
        from mica._dynamo import config

        marked, fixed = _marked(tensor), getattr(tensor, "__dict__", {}).get("_dynamo_static_indices", set())
        seen = self._owner.seen.setdefault(name, {})
        for axis, size in enumerate(tensor.shape):
            if seen.setdefault((tensor.dim(), axis), size) != size and config.automatic_dynamic_shapes:
                seen[tensor.dim(), axis] = None  # its size is open from now on, whatever it is
        # For tensors that are not arguments nobody knows whose they are. Most are buffers, whose sizes stay.
        if self._is_known and not marked:
            return ()
        every = (self._owner.dynamic or not config.assume_static_by_default) and self._names.is_argument(name)
        return tuple(
            axis
            for axis, size in enumerate(tensor.shape)
            if size > 1 and axis not in fixed and (every or axis in marked or seen[tensor.dim(), axis] is None)
        )

    def fake(self, tensor, name):
        """The fake tensor that stands for an input."""
        known = self._fakes.fake_tensor_converter._made.get(tensor)
        if known is not None:
            return known
        axes = self.axes(tensor, name)
        if len(axes) > MOST_OPEN:  # those beyond are fixed, and of these rather the ones that nobody has marked
            axes = sorted(axes, key=lambda axis: axis not in _marked(tensor))[:MOST_OPEN]
        # A loop that breaks the graph brings new inputs with every turn. Those beyond what there is room for are fixed.
        if not axes or (self.env is not None and self.env.worlds.room(self.env.avoid) < len(axes)):
            return self._fakes.from_tensor(tensor, static_shapes=True)
        own = getattr(tensor, "__dict__", {})
        self._make_env(len(axes))
        apart = own.get("_dynamo_dynamic_indices", ()) if self._owner.sizes_apart else ()
        kinds = [
            DimDynamic.STATIC
            if axis not in axes
            else DimDynamic.DYNAMIC
            if axis in apart
            else self._kind(name, axis, tensor.shape[axis])
            for axis in range(tensor.dim())
        ]
        context = StatelessSymbolicContext(dynamic_sizes=kinds)
        fake = self._fakes.from_tensor(tensor, static_shapes=False, symbolic_context=context, source=name)
        for axis, size in enumerate(fake.__dict__.get("_sizes", ())):
            if not isinstance(size, int):
                ((atom,),) = size.terms
                self._symbols[name, axis] = atom
                self.sources.setdefault(atom, SizeInput(self.env.var_to_val[atom]))
                if axis in tensor.__dict__.get("_dynamo_dynamic_indices", ()):
                    self._promised[atom] = (name, axis)
        return fake

    def _most_open(self):
        """How many sizes of an argument may be open."""
        from mica._dynamo import config

        is_every = self._owner.dynamic or not config.assume_static_by_default
        count = open_sizes.most_open if is_every else lambda tensor: len(_marked(tensor))
        tensors = (tensor for tensor, _ in self._names.given() if not isinstance(tensor, _STATIC))
        return max(map(count, tensors), default=0)

    def _make_env(self, dims=0):
        from mica._dynamo import config

        if self.env is None:
            self._fakes.shape_env = ShapeEnv()
            if max(dims, self._most_open()) > FEW_OPEN:
                self.env.worlds.begin_small()
            self.env.presets = dict(self.presets)
            self.env.shown = self._shown if self.shows_numbers else None
            # Python sees numbers, and of a size that only data decide there is none before the graph has run.
            self.env.refuses_data = self.shows_numbers and not (
                self._owner.fullgraph or config.capture_dynamic_output_shape_ops
            )

    def numbers(self, args, kwargs):
        """The arguments, with open numbers in the place of whole numbers where the program asks for open ones.

        Numbers that only changed from call to call stay what they are: a program may ask for `type(n) is int`.
        """
        if not self._owner.dynamic or not any(type(value) is int for value in (*args, *kwargs.values())):
            return args, kwargs
        args = tuple(self._number(value, f"args_{i}") for i, value in enumerate(args))
        return args, {key: self._number(value, key) for key, value in kwargs.items()}

    def _number(self, value, name):
        if type(value) is not int:
            return value
        self._make_env()
        if not self.env.worlds.room(self.env.avoid):
            return value
        made = self.env.create_symbol(
            value, f"L_{name}_", DimDynamic.DYNAMIC, do_not_specialize_zero_one=True, least=-sys.maxsize
        )
        if made.is_number:
            return value
        ((atom,),) = made.terms
        self.sources[atom] = SizeInput(value)
        return OpenNumber(value, self.number(atom))

    def _kind(self, name, axis, size):
        """Whether an open size shares the symbol of another one that is the same number in this call. Two sizes do not where a
        graph in which they are two numbers is known: it serves this call too."""
        groups = {}
        for place, other in self._places.items():
            if other == size:
                groups.setdefault(self._symbols.get(place, place), []).append(place)
        self._places[name, axis] = size
        for known, places in groups.items():
            if all(frozenset((place, (name, axis))) not in self._owner.apart for place in places):
                if isinstance(known, str):
                    self.env.val_to_var[size] = known
                return DimDynamic.DUCK
        return DimDynamic.DYNAMIC if groups else DimDynamic.DUCK

    def note_call(self):
        """Remember which open sizes were different numbers in this call, or that none was open."""
        if self.env is None:
            self._owner.fixed.add(self._sizes)
        for (one, size), (two, other) in itertools.combinations(self._places.items(), 2):
            if size != other:
                self._owner.apart.add(frozenset((one, two)))

    def _shown(self, sym):
        return OpenNumber(self.env.size_hint(sym.node.expr), sym)

    @contextlib.contextmanager
    def as_symbols(self):
        """A block in which sizes are SymInts: the program does not see it."""
        env = self.env
        if env is None:
            yield
            return
        before, env.shown = env.shown, None
        try:
            yield
        finally:
            env.shown = before

    def end(self):
        """Called when the program's part is over. From then on only graphs run, whose sizes are symbols."""
        if self.env is not None:
            self.env.shown = None

    def nodes(self, graph):
        return SizeNodes(graph, self.env)

    @staticmethod
    def symbols(value):
        """The symbols in the sizes of a fake tensor, or in an open number."""
        if isinstance(value, mica.SymInt):
            return sorted(value.node._expr.free_symbols)
        sizes = getattr(value, "__dict__", {}).get("_sizes", ())
        return list(
            dict.fromkeys(name for size in sizes if not isinstance(size, int) for name in sorted(size.free_symbols))
        )

    def number(self, name):
        """A symbol as an open number."""
        from mica._functions.symbolic import SymNode

        return mica.SymInt(SymNode(symbol(name), self.env, int))

    def check(self):
        """Raise if a size is fixed that the program has said to be open."""
        for name, (where, axis) in self._promised.items():
            known = self.env.replace(symbol(name))
            if known.is_number:
                raise ConstraintViolationError(
                    f"Constraints violated ({where}.size()[{axis}])! You marked it as dynamic (mark_dynamic), but the code "
                    f"needs it to be {known}. torch._dynamo.maybe_mark_dynamic lets it be fixed where it has to be"
                )

    def kind(self, fake, tensor, tell):
        """What a graph relies on about an input, as a key in which open sizes are named."""
        sizes = getattr(fake, "__dict__", {}).get("_sizes")
        if sizes is None:
            return tell(tensor)
        shape = tuple(str(size if isinstance(size, int) else self.env.replace(size)) for size in sizes)
        strides = tuple(map(str, fake.stride()))
        return (type(tensor), tensor.dtype, shape, strides, str(tensor.device), tensor.requires_grad)

    # ---- sizes that turn out to be fixed

    def fix(self, error, values):
        """Fix the open sizes that an operation needs as numbers. Returns False if there are none."""
        if self.env is None:
            return False
        env, wanted = self.env, {}
        if isinstance(error, open_sizes.NeedsStatic):
            wanted = {env.symbol_of(key): value for key, value in error.presets.items()}
        if all(env.worlds.is_fixed(name) for name in wanted):
            for leaf in tree_leaves(values):
                sizes = (
                    [leaf.node._expr]
                    if isinstance(leaf, mica.SymInt)
                    else getattr(leaf, "__dict__", {}).get("_sizes", ())
                )
                for size in sizes:
                    if not isinstance(size, int):
                        wanted |= {name: env.var_to_val[name] for name in size.free_symbols if name in env.var_to_val}
        wanted = {name: value for name, value in wanted.items() if not env.worlds.is_fixed(name)}
        for name, value in wanted.items():
            if name in self._promised and type(value) is int:
                env.replacements[name] = make(value)
                self.check()
            env.fix(name, value if type(value) is int else env.symbol_of(value))
        return bool(wanted)

    def call(self, function, args, kwargs):
        """Call a function with fake tensors."""
        with self.as_symbols(), _NOTHING if self.env is None else warnings.catch_warnings():
            if self.env is not None:
                warnings.simplefilter("ignore")  # the graph gives them, with sizes that there are
            try:
                with self._fakes:
                    return function(*args, **kwargs)
            except (RuntimeError, ValueError, NotImplementedError, open_sizes.NeedsStatic):
                made = None if self.env is None else self._in_worlds(function, args, kwargs)
                if made is None:
                    raise
                return made

    def _in_worlds(self, function, args, kwargs):
        """The result of a function called in all worlds at once, for functions whose parts compute sizes that no expression fits.
        None if that fails too."""
        env, fakes = self.env, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if not any("_sizes" in fake.__dict__ for fake in fakes) or name_of(function).endswith("_"):
            return None

        def of_world(world):
            def number(leaf):
                if isinstance(leaf, FakeTensor):
                    return plain(leaf) if world == 0 or "_others" not in leaf.__dict__ else leaf._others[world - 1]
                return env.worlds.number(env.replace(leaf.node._expr), world)

            inner_args, inner_kwargs = tree_map_only((FakeTensor, mica.SymInt), number, (tuple(args), dict(kwargs)))
            return tree_flatten(function(*inner_args, **inner_kwargs))

        try:
            with (
                _C.DisableTorchFunction(),
                mica.utils._python_dispatch._disable_current_modes(),
                mica.no_grad(),
            ):
                (leaves, spec), *others = [of_world(world) for world in range(len(env.worlds))]
                near = open_sizes.near_sizes((args, kwargs), env)
                for i, leaf in enumerate(leaves):
                    if isinstance(leaf, _C.TensorBase):
                        made = as_fake(leaf.detach(), self._fakes, fakes[0].fake_device)
                        leaves[i] = open_sizes.result(made, [other[0][i] for other in others], near, env, function)
        except Exception:
            return None
        if mica.is_grad_enabled() and any(fake.requires_grad for fake in fakes):
            for leaf in leaves:
                if isinstance(leaf, _C.TensorBase) and leaf.dtype.is_floating_point:
                    leaf.requires_grad_()
        return tree_unflatten(leaves, spec)

    def again(self, graph, inputs, promises, likeness):
        """Compute the calls of a graph once more, so that its fake tensors have the sizes that are known now.

        Returns what each node is.
        """
        while (made := self._made_again(graph, inputs, likeness)) is None:
            pass  # an earlier call needs another size as a number, now that this one is known
        for promise, node in promises:
            own = {name: value for name, value in vars(promise).items() if name not in ("_sizes", "_others")}
            _C._swap_tensor_impl(promise, made[node])  # attributes too
            vars(promise).update(own)
        return made

    def _made_again(self, graph, inputs, likeness):
        """What each node is; None if a call has fixed a further size."""
        self._fakes.fake_tensor_converter = FakeTensorConverter()
        made = {}
        for node in graph.nodes:
            if node in inputs:
                made[node] = self.fake(*inputs[node])
            elif node.op in ("call_function", "call_method") and "is_size" not in node.meta:
                args, kwargs = map_arg((node.args, node.kwargs), lambda each: self._value(each, made))
                function = getattr(_C.Tensor, node.target) if node.op == "call_method" else node.target
                try:
                    made[node] = self.call(function, args, kwargs)
                except Exception as error:
                    _leave_casts(made)
                    if self.fix(error, (args, kwargs)):
                        return None
                    raise
            if isinstance(made.get(node), _C.TensorBase):
                node.meta["example_value"] = node.meta["val"] = likeness(made[node])
        return made

    def _value(self, node, made):
        return made[node] if node in made else self.env.create_symintnode(node.meta["val"].node._expr)
