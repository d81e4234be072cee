"""Sizes that may differ from call to call."""

from mica.utils._pytree import tree_flatten

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims",
           "refine_dynamic_shapes_from_suggested_fixes"]  # fmt: skip


class _Hint:
    """Dim.AUTO and its like: a statement about a size that gives it no name."""

    def __init__(self, name, min=None, max=None):
        self._name, self.min, self.max = name, min, max

    def __call__(self, min=None, max=None):
        """The hint with bounds: for a size from `min` to `max`."""
        return _Hint(self._name, min, max)

    def __eq__(self, other):
        return isinstance(other, _Hint) and vars(self) == vars(other)

    def __hash__(self):
        return hash((self._name, self.min, self.max))

    def __repr__(self):
        ends = [f"{key}={value}" for key, value in (("min", self.min), ("max", self.max)) if value is not None]
        return f"Dim.{self._name}" + (f"({', '.join(ends)})" if ends else "")


def is_hint(label, name):
    """Whether a label is Dim.AUTO, or whichever is named, with a range or without."""
    return isinstance(label, _Hint) and label._name == name


class Dim:
    """A size with a name, which may be anything from `min` to `max`; equal names are equal sizes."""

    AUTO, DYNAMIC, STATIC = _Hint("AUTO"), _Hint("DYNAMIC"), _Hint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min, self.max = 0 if min is None else min, max
        if max is not None and max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={self.min}, max={max}")

    def __repr__(self):
        return f"Dim('{self.__name__}', min={self.min}" + (")" if self.max is None else f", max={self.max})")

    def __mul__(self, factor):
        return DerivedDim(self, factor, 0)

    def __add__(self, number):
        return DerivedDim(self, 1, number)

    def __sub__(self, number):
        return DerivedDim(self, 1, -number)

    __rmul__, __radd__ = __mul__, __add__


class DerivedDim:
    """A size that another one decides: 2 * batch + 1."""

    def __init__(self, root, factor, number):
        if not isinstance(factor, int) or not isinstance(number, int):
            raise NotImplementedError(f"Attempted to compute with {root.__name__}, where only integers are supported")
        self.root, self.factor, self.number = root, factor, number
        product = root.__name__ if factor == 1 else f"{factor}*{root.__name__}"
        self.__name__ = product + (f" + {number}" if number > 0 else f" - {-number}" if number else "")

    def __mul__(self, factor):
        return DerivedDim(self.root, self.factor * factor, self.number * factor)

    def __add__(self, number):
        return DerivedDim(self.root, self.factor, self.number + number)

    def __sub__(self, number):
        return self + -number

    __rmul__, __radd__ = __mul__, __add__

    def __repr__(self):
        return self.__name__


class Constraint:
    """A constraint on a size, by torch's name: a Dim says it here."""


def refine_dynamic_shapes_from_suggested_fixes(msg, dynamic_shapes):
    """dynamic_shapes as the suggested fixes in the text of an error want them."""
    from mica.export._violations import refined

    return refined(msg, dynamic_shapes, Dim, DerivedDim)


def dims(*names, min=None, max=None):
    """Several sizes of the same range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """The sizes of tensors, said of the tensors themselves; `export` takes it as dynamic_shapes."""

    def __init__(self):
        self._shapes = {}  # id of the tensor -> (the tensor, which stays alive, its sizes)

    def __setitem__(self, t, shape):
        if id(t) in self._shapes and self._shapes[id(t)][1] != shape:
            raise AssertionError(
                f"Shapes assigned to input is a mismatch: expected {self._shapes[id(t)][1]} but got {shape}"
            )
        self._shapes[id(t)] = (t, shape)

    def __getitem__(self, t):
        if id(t) not in self._shapes:
            self[t] = {}
        return self._shapes[id(t)][1]

    def __len__(self):
        return len(self._shapes)

    def dynamic_shapes(self, m, args, kwargs=None):
        """The sizes in the form of the arguments."""
        from mica.utils._pytree import tree_map

        used = set()

        def of(leaf):
            if id(leaf) not in self._shapes:
                return None
            used.add(id(leaf))
            return self._shapes[id(leaf)][1]

        found = tree_map(of, _by_name(m, args, kwargs))
        unused = [shape for key, (_, shape) in self._shapes.items() if key not in used]
        if unused:
            raise ValueError(f"Some tensors of the collection were not found in the inputs; their sizes are {unused}")
        return found


def marked_sizes(m, args, kwargs):
    """The sizes that torch._dynamo.mark_dynamic and maybe_mark_dynamic have marked, in the form of the arguments; None if
    there are none."""
    from mica.utils._pytree import tree_leaves

    found = ShapesCollection()
    for leaf in tree_leaves((args, kwargs)):
        own = getattr(leaf, "__dict__", {})
        bounds = own.get("_dynamo_dynamic_range", {})
        weak = own.get("_dynamo_weak_dynamic_indices", set()) - own.get("_dynamo_unbacked_indices", set())
        marks = dict.fromkeys(weak, Dim.AUTO)
        for axis in own.get("_dynamo_dynamic_indices", ()):
            low, high = bounds.get(axis, (None, None))
            marks[axis] = Dim.DYNAMIC if low is None and high is None else Dim.DYNAMIC(min=low, max=high)
        marks = {axis: mark for axis, mark in marks.items() if axis in range(leaf.dim())}
        if marks:
            found[leaf] = marks
    return found.dynamic_shapes(m, args, kwargs) if len(found) else None


class AdditionalInputs:
    """Further examples of a module's inputs: what differs between them is dynamic; `export` takes it as dynamic_shapes."""

    def __init__(self):
        self._examples = []

    def add(self, args, kwargs=None):
        """One more example."""
        if not isinstance(args, tuple):
            raise AssertionError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs))

    def dynamic_shapes(self, m, args, kwargs=None):
        """Dim.DYNAMIC for each size that differs, None for the others, in the form of the arguments."""
        from mica import _C
        from mica.utils._pytree import tree_unflatten

        leaves, form = tree_flatten(_by_name(m, args, kwargs))
        others = [tree_flatten(_by_name(m, *example)) for example in self._examples]
        if any(other_form != form for _, other_form in others):
            raise ValueError("The examples of AdditionalInputs do not have the structure of the arguments of export")
        found = []
        for values in zip(leaves, *(other for other, _ in others), strict=True):
            if not isinstance(values[0], _C.TensorBase):
                if all(type(value) is int for value in values) and len(set(values)) > 1:
                    found.append(Dim.DYNAMIC)
                    continue
                if any(value != values[0] for value in values):
                    raise ValueError(f"An input that is no tensor differs between the examples: {values[0]!r}")
                found.append(None)
                continue
            if len({value.dim() for value in values}) > 1:
                raise ValueError("The tensors of the examples do not have the same number of dimensions")
            sizes = zip(*(value.shape for value in values), strict=True)
            found.append(tuple(Dim.DYNAMIC if len(set(each)) > 1 else None for each in sizes))
        return tree_unflatten(found, form)

    def verify(self, ep):
        """Run an exported program on every example."""
        for args, kwargs in self._examples:
            ep.module()(*args, **(kwargs or {}))


def _by_name(m, args, kwargs):
    """The arguments of a call, by the names of forward's parameters."""
    import inspect

    bound = inspect.signature(getattr(m, "forward", m)).bind(*args, **(kwargs or {}))
    return dict(bound.arguments)


def _positional(function):
    """(names of the arguments by their places, that of *args)."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names, next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")


def positional_names(function, count):
    """The names of so many arguments; those of *args are args_0, args_1."""
    names, rest = _positional(function)
    return names[:count] + [f"{rest}_{i}" for i in range(count - len(names))]


def named_arguments(function, args, kwargs):
    """The arguments of a call by their names, in the order of their leaves; those of *args are one tuple."""
    names, rest = _positional(function)
    found = dict(zip(names, args, strict=False))
    if len(args) > len(names):
        found[rest] = tuple(args[len(names) :])
    return {**found, **kwargs}


def named_sizes(shapes, values, function):
    """{(index of the leaf, axis): Dim or label} from what `export` was given as dynamic_shapes for named values.

    The axis of a number is None. Sizes without names are in the order of the function's arguments.
    """
    import inspect

    from mica.export._shape_structure import check_structure

    if shapes is None:
        return {}
    known = [name for name in inspect.signature(function).parameters if name in values]
    order = [*known, *(name for name in values if name not in known)]
    check_structure(shapes, {name: values[name] for name in order}, (Dim, DerivedDim, _Hint))
    if not isinstance(shapes, dict):
        shapes = dict(zip(order, shapes, strict=True))
    found, start = {}, 0
    for name, value in values.items():
        count = len(tree_flatten(value)[0])
        _collect(shapes.get(name), value, start, found)
        start += count
    return found


def _collect(shape, value, start, found):
    from mica import _C

    if shape is None:
        return
    if isinstance(value, _C.TensorBase):
        pairs = shape.items() if isinstance(shape, dict) else enumerate(shape)
        for axis, size in pairs:
            if isinstance(size, int) and size != value.shape[axis]:
                from mica.fx.experimental.symbolic_shapes import ConstraintViolationError

                raise ConstraintViolationError(
                    f"Static shape constraint of {size} does not match input size of {value.shape[axis]}, for dimension {axis}"
                )
            if size is None or _is_plain_static(size) or isinstance(size, int):
                continue
            found[start, axis % value.dim()] = size
        return
    if isinstance(value, int) and not isinstance(value, bool) and isinstance(shape, (Dim, DerivedDim, _Hint)):
        if not _is_plain_static(shape):
            found[start, None] = shape
        return
    keys, items = _items(value)
    for i, (key, item) in enumerate(zip(keys, items, strict=True)):
        _collect(_of_item(shape, key, i), item, start, found)
        start += len(tree_flatten(item)[0])


def _is_plain_static(label):
    """Whether a label is Dim.STATIC without a range, of which there is nothing to compare."""
    return is_hint(label, "STATIC") and label.min is None and label.max is None


def sources(values):
    """What torch calls the leaves of named arguments: L['x'], L['ys'][0], L['z']['k']."""
    return [f"L['{name}']{key}" for name, value in values.items() for key in _keys_of_leaves(value)]


def _keys_of_leaves(value):
    keys, items = _items(value)
    if not items and tree_flatten(value)[0]:
        return [""]
    return [f"[{key!r}]{inner}" for key, item in zip(keys, items, strict=True) for inner in _keys_of_leaves(item)]


def _items(value):
    """(keys, items) of a nest, one level deep; of an object that is taken apart, numbers."""
    if isinstance(value, dict):
        return list(value), list(value.values())
    items, _ = tree_flatten(value, is_leaf=lambda each: each is not value)
    if len(items) == 1 and items[0] is value:
        return [], []  # a leaf of which nothing is open
    return list(range(len(items))), items


def _of_item(shape, key, i):
    """What is said of one item of a nest."""
    if isinstance(shape, dict):
        return shape.get(key)
    if isinstance(shape, (list, tuple)):
        return shape[i] if i < len(shape) else None
    items = _items(shape)[1]
    return items[i] if i < len(items) else None
