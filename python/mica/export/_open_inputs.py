"""The inputs of an export with open sizes, and whether what the program relies on fits what was said of the sizes."""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica._subclasses.fake_tensor import FakeTensorMode, _as_fake
from mica.export.dynamic_shapes import DerivedDim, is_hint
from mica.fx.experimental._expressions import make
from mica.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

__all__ = ["OpenInputs"]


class OpenInputs:
    """Fake tensors for the inputs, with a symbol for each size that was named."""

    def __init__(self, leaves, named, names, state, presets=()):
        self.env = ShapeEnv(duck_shape=False)
        self.presets, self._by_where = dict(presets), {}
        self.env.avoid = {
            size for value in (*state, *leaves) if isinstance(value, _C.TensorBase) for size in value.shape
        }
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env, export=True)
        self.mode.static_shapes = True  # apart from the sizes that are named
        self.labels, self.where, self.strict = {}, {}, {}
        self._by_name = {}
        self.leaves = [
            self._opened(i, leaf, named, names[i])
            if isinstance(leaf, _C.TensorBase)
            else self._number(leaf, named.get((i, None)), names[i])
            for i, leaf in enumerate(leaves)
        ]

    def _number(self, value, label, name):
        """A number among the inputs, which may be open too."""
        if label is None:
            return value
        return self.env.create_symintnode(self._symbol(label, value, f"L['{name}']"))

    def _symbol(self, label, hint, where):
        if isinstance(label, DerivedDim):
            root = self._symbol(label.root, (hint - label.number) // label.factor, where)
            return root * label.factor + label.number
        key = getattr(label, "__name__", label if isinstance(label, str) else None)
        if key is not None and key in self._by_name:
            return self._by_name[key]
        low, high = getattr(label, "min", None) or 0, getattr(label, "max", None)
        preset = self.presets.get(where)
        if isinstance(preset, int):
            if not is_hint(label, "AUTO"):
                raise _violated(
                    f"Constraints violated ({key or where})! The size {where} was inferred to be the constant {preset}: "
                    "the program works for no other"
                )
            return make(hint)
        if preset is not None and preset in self._by_where:
            other, other_key = self._by_where[preset]
            if key is not None and key != other_key:
                raise _violated(f"Constraints violated ({key})! {where} and {preset} must always be equal")
            return other
        if hint < low or (high is not None and hint > high):
            raise _violated(f"{key} = {where} is {hint} in the example, outside of {low} <= {key} <= {high}")
        if hint in (0, 1) and is_hint(label, "AUTO"):
            return make(hint)
        if hint in (0, 1):
            raise _violated(
                f"{where} is {hint} in the example: sizes of 0 and 1 broadcast, and cannot be left open. An example with a larger size can"
            )
        expr = self.env.create_symbol(hint, where, DimDynamic.DYNAMIC, least=max(low, 2), greatest=high)
        ((name,),) = expr.terms
        self.labels[name] = (key, low, high)
        self.where[name], self.strict[name] = where, not is_hint(label, "AUTO")
        self._by_where[where] = (expr, key)
        if key is not None:
            self._by_name[key] = expr
        return expr

    def _opened(self, i, leaf, named, name):
        sizes = []
        for axis, size in enumerate(leaf.shape):
            label = named.get((i, axis))
            expr = make(size) if label is None else self._symbol(label, size, f"L['{name}'].size()[{axis}]")
            if expr.value(self.env.var_to_val) != size:
                raise _violated(
                    f"{name}.size()[{axis}] is {size} in the example, where {label!r} says {expr.value(self.env.var_to_val)}"
                )
            sizes.append(expr.number if expr.is_number else expr)
        if all(isinstance(size, int) for size in sizes):
            return self.mode.from_tensor(leaf, static_shapes=True)
        order = open_sizes._dense_order(leaf)
        if order is None:
            raise NotImplementedError(f"the input {name} has gaps between its elements: its sizes cannot be left open")
        made = open_sizes.with_strides(sizes, order, self.env, leaf.dtype)
        fake = open_sizes.attach(_as_fake(made[0], self.mode, leaf.device), tuple(sizes), made[1:])
        fake.requires_grad_(leaf.requires_grad)
        return fake

    def check(self):
        """Raise if the program relies on more than was said of the sizes."""
        for guard in self.env.guards:
            names = [name for name in guard.expr.free_symbols if self.strict.get(name)]
            if not names or guard.expr.decided(_Declared(self)):
                continue
            name = names[0]
            key, low, high = self.labels[name]
            title = key or self.where[name]
            if name in self.env.replacements and self.env.replacements[name].is_number:
                raise _violated(
                    f"Constraints violated ({title})! The size {title} was inferred to be the constant "
                    f"{self.env.replacements[name]}: the program relies on {guard.expr}, {_line(guard)}"
                )
            if key is None:  # Dim.DYNAMIC: what the program relies on narrows it
                continue
            text = str(guard.expr).replace(name, self.where[name])
            raise _violated(
                f"Constraints violated ({title})! Not all values of {title} = {self.where[name]} in the specified range "
                f"{low} <= {title}{'' if high is None else f' <= {high}'} satisfy the generated guard {text}, {_line(guard)}"
            )


class _Declared:
    """What was said of the sizes, before the program was run."""

    def __init__(self, inputs):
        self._ranges = {name: (max(low, 2), high) for name, (_, low, high) in inputs.labels.items()}

    @staticmethod
    def replace(expr):
        return expr


def _violated(text):
    from mica._dynamo.exc import UserError

    return UserError(text if text.startswith("Constraints") else f"Constraints violated! {text}")


def _line(guard):
    import os

    own = os.path.dirname(mica.__file__)
    frames = [f for f in guard.stack or () if not f.filename.startswith(own)]
    return f"by {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
