"""The inputs of an export with open sizes, and whether what the program relies on fits what was said of the sizes."""

import contextlib
import hashlib

import mica
from mica import _C
from mica._dynamo.exc import UserError, UserErrorType
from mica._subclasses import open_sizes
from mica._subclasses.fake_tensor import FakeTensorMode, _as_fake
from mica.export._violations import Violations
from mica.export.dynamic_shapes import DerivedDim, is_hint
from mica.fx.experimental import _facts_of_data
from mica.fx.experimental._expressions import Expression, is_fractional, make
from mica.fx.experimental._truths import Joined, Relation, ValueRange
from mica.fx.experimental.symbolic_shapes import ConstraintViolationError, DimDynamic, ShapeEnv

__all__ = ["OpenInputs"]


class OpenInputs:
    """Fake tensors for the inputs, with a symbol for each size that was named."""

    def __init__(self, leaves, named, sources, state, presets=()):
        self.env = ShapeEnv(duck_shape=False)
        self.env.takes_relations = True
        self.env.facts = _facts_of_data.among(presets)
        self.presets, self._by_where = dict(presets), {}
        self.env.avoid = {
            size for value in (*state, *leaves) if isinstance(value, _C.TensorBase) for size in value.shape
        }
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env, export=True)
        self.mode.static_shapes = True  # apart from the sizes that are named
        self.labels, self.where, self.strict = {}, {}, {}
        self._by_name, self._definitions, self.numbers = {}, {}, set()
        self._divided = {}  # symbol of a part of a size -> (name of the size, what was said of it)
        self.found = Violations()  # what an earlier run has found that is not as it was said
        self._hinted = []  # (size as an expression, hint, number in the example, where)
        if open_sizes.SMALLER in self.presets:
            self.env.worlds.begin_small()
        self.leaves = [
            self._opened(i, leaf, named, sources[i])
            if isinstance(leaf, _C.TensorBase)
            else self._number(leaf, named.get((i, None)), sources[i])
            for i, leaf in enumerate(leaves)
        ]

    def _number(self, value, label, source):
        """A number among the inputs, which may be open too."""
        return (
            value if label is None else self.env.create_symintnode(self._symbol(label, value, source, is_number=True))
        )

    def _symbol(self, label, hint, where, is_number=False):
        """The expression of a size that something is said of."""
        if getattr(label, "__name__", None) is not None or isinstance(label, str):
            return self._named_symbol(label, hint, where, is_number)
        made = make(hint) if is_hint(label, "STATIC") else self._named_symbol(label, hint, where, is_number)
        self._hinted.append((made, label, hint, where))
        return made

    def _named_symbol(self, label, hint, where, is_number=False):
        if isinstance(label, DerivedDim):
            if (hint - label.number) % label.factor:
                place = f"shape[{where.rpartition('[')[2]}" if where.endswith("]") else where
                raise UserError(
                    UserErrorType.INVALID_INPUT,
                    f"Expected {place} = {hint} of input Tensor to be of the form {label}, where {label.root.__name__} is an "
                    f"integer ({where})",
                )
            number = (hint - label.number) // label.factor
            if number in (0, 1) and not is_number:
                self.found.fixed(label.__name__, where, hint)
                return make(hint)
            root = self._symbol(label.root, number, where)
            return root * label.factor + label.number
        key = getattr(label, "__name__", label if isinstance(label, str) else None)
        if key is not None and key in self._by_name:
            self._check_definition(label, self._definitions[key])
            return self._by_name[key]
        # The range of a hint is compared with that of the trace when it is known.
        low, high = (0, None) if key is None else (getattr(label, "min", None) or 0, getattr(label, "max", None))
        preset = self.presets.get(where)
        if isinstance(preset, int):
            if not is_hint(label, "AUTO"):
                self.found.fixed(key, where, preset)
            return self._fixed(hint, key, where)
        if isinstance(preset, (tuple, str, Expression)) and not isinstance(preset, _facts_of_data.Multiple):
            return self._following(preset, label, key, (low, high), where)
        if hint < low or (high is not None and hint > high):
            raise ConstraintViolationError(
                f"{hint} not in range [{low}, {'int_oo' if high is None else high}] ({where})"
            )
        if hint in (0, 1) and not is_number:
            if key is not None:
                self.found.fixed(key, where, hint)
            return self._fixed(hint, key, where)
        times = preset.of if isinstance(preset, _facts_of_data.Multiple) else 1  # the symbol is a part of the size
        least, greatest = -(-low // times), None if high is None else high // times
        expr = self.env.create_symbol(
            hint // times, where, DimDynamic.DYNAMIC, do_not_specialize_zero_one=is_number,
            least=least if is_number else max(least, 2), greatest=greatest, name=self._name(where),
        )  # fmt: skip
        ((name,),) = expr.terms
        self.labels[name] = (key, least, greatest)
        if is_number:
            self.numbers.add(name)
        self.where[name], self.strict[name] = where, not is_hint(label, "AUTO")
        if times > 1:
            self.env.scales[name], self._divided[name] = times, (key, (low, high))
            expr = expr * times
        self._by_where[where] = (expr, key)
        if key is not None:
            self._by_name[key], self._definitions[key] = expr, label
        return expr

    def _fixed(self, number, key, where):
        self._by_where[where] = (make(number), key)
        return make(number)

    def _name(self, where):
        """The name that torch has for the symbol of a size."""
        number = int(hashlib.sha256(where.encode()).hexdigest(), 16) % 100
        while f"s{number}" in self.env.var_to_val:
            number += 1
        return f"s{number}"

    def _following(self, preset, label, key, ends, where):
        """A size that the program has found to follow from others: it is equal to one, or another expression of them."""
        if isinstance(preset, str):
            other, other_key = self._by_where[preset]
            if key is not None and other_key is not None and key != other_key:
                self.found.equal(key, where, other_key, preset)
            self._merge(other, label, key, ends, preset)
            made = other
        elif isinstance(preset, tuple):
            other, other_key = self._by_where[preset[0]]
            if key is not None:
                self.found.related(key, where, other_key, *preset)
            made = other + preset[1]
        else:
            made = preset.substituted({name: self._by_where[name][0] for name in preset.free_symbols})
            if key is not None and len(preset.free_symbols) == 1:
                (name,) = preset.free_symbols
                self.found.follows(key, where, self._by_where[name][1], name, str(preset))
        self._by_where[where] = (made, key)
        if key is not None:
            self._by_name.setdefault(key, made)
            self._definitions.setdefault(key, label)
        return made

    def _merge(self, expr, label, key, ends, preset):
        """Let what is said of a size hold for another one, which it is equal to. A name is that of both."""
        if not expr.is_symbol:
            return
        ((name,),) = expr.terms
        known, low, high = self.labels[name]
        greatest = [each for each in (high, ends[1]) if each is not None]
        self.env._narrow(name, ends[0] or None, ends[1])
        self.labels[name] = (known or key, max(low, ends[0]), min(greatest) if greatest else None)
        self.strict[name] = self.strict[name] or not is_hint(label, "AUTO")
        if key is not None:
            self._by_where[preset] = (expr, key)
            self._by_name[key], self._definitions[key] = expr, label

    @staticmethod
    def _check_definition(label, first):
        ends = [(getattr(each, "min", None), getattr(each, "max", None)) for each in (label, first)]
        if ends[0] != ends[1]:
            text = f"Found different definitions {first} and {label} for the same symbolic dimension {label}!"
            raise UserError(UserErrorType.INVALID_INPUT, text)

    def _opened(self, i, leaf, named, source):
        sizes = []
        for axis, size in enumerate(leaf.shape):
            label = named.get((i, axis))
            expr = make(size) if label is None else self._symbol(label, size, f"{source}.size()[{axis}]")
            if expr.value(self.env.var_to_val) != size:
                root = getattr(label, "root", label)
                root = getattr(root, "__name__", root)
                known = self._by_name.get(root, expr).value(self.env.var_to_val)
                raise UserError(
                    UserErrorType.INVALID_INPUT,
                    f"Expected input {source}.size()[{axis}] to be equal to {label!r}, where {root} = {known}, but got "
                    f"{size}",
                )
            sizes.append(expr.number if expr.is_number else expr)
        if all(isinstance(size, int) for size in sizes):
            return self.mode.from_tensor(leaf, static_shapes=True)
        order = open_sizes._dense_order(leaf)
        if order is None:
            raise NotImplementedError(
                f"the input {source} has gaps between its elements: its sizes cannot be left open"
            )
        made = open_sizes.with_strides(sizes, order, self.env, leaf.dtype)
        fake = open_sizes.attach(_as_fake(made[0], self.mode, leaf.device), tuple(sizes), made[1:])
        fake.requires_grad_(leaf.requires_grad)
        return fake

    def ranges(self):
        """What is known of the symbols, and of sizes of the inputs that follow from them: {symbol or expression: range}."""
        known = self.env.var_to_range
        found = {name: known[name] for name in self.labels if name not in self.env.replacements}
        for name, (key, low, _) in self.labels.items():
            if name in found and key is not None and name not in self.numbers:
                found[name] = found[name]._replace(lower=low)
        sizes = [size for leaf in self.leaves for size in getattr(leaf, "__dict__", {}).get("_sizes", ())]
        for size in sizes:
            size = size if isinstance(size, int) else self.env.replace(size)
            if not isinstance(size, int) and not size.is_simple() and size.free_symbols <= found.keys():
                found[size] = ValueRange(*size.bounds(found))
        return found | {name: ends for name, ends in known.items() if name.startswith(("u", "z"))}

    @contextlib.contextmanager
    def first_of_errors(self):
        """A block whose errors give way to what is already known to be wrong with what was said of the sizes."""
        try:
            yield
        except open_sizes.NeedsStatic:
            raise
        except Exception as error:
            if self.found:
                raise self.found.error() from error
            raise

    def check(self):
        """Raise if the program relies on more than was said of the sizes."""
        found = self.found
        for name, (key, said) in self._divided.items():
            if key is not None and not self.env.defers_guards:
                found.divided(key, self.where[name], said, self.env.scales[name], self.env.var_to_range[name])
        for guard in self.env.guards:
            names = [
                n for n in self.labels if n in guard.expr.free_symbols and self.strict[n] and n not in self._divided
            ]
            if names and not guard.expr.decided(_Declared(self)):
                self._add(found, guard, names[0])
        if found:
            raise found.error()
        self._compare_hints()

    def _compare_hints(self):
        """Raise if the range of a hint and what the trace has found have nothing in common; else the size is in both."""
        conflicts = []
        for expr, label, hint, where in self._hinted:
            expr, place = self.env.replace(expr), f"inputs{where[1:].replace('.size()', '.shape')}"
            low, high = expr.bounds(self.env._ranges)
            least, greatest = (
                max(low or 0, label.min or 0),
                min((e for e in (high, label.max) if e is not None), default=None),
            )
            said = f"- Received user-specified dim hint Dim.DYNAMIC(min={label.min}, max={label.max}), but"
            if greatest is not None and least > greatest:
                conflicts.append(
                    f"- Received user-specified min/max range of [{label.min}, {label.max}], conflicting with the inferred min/max "
                    f"range of [{low}, {'int_oo' if high is None else high}], for {place}."
                )
            elif is_hint(label, "DYNAMIC") and least == greatest:
                is_small = expr.is_number and hint in (0, 1)
                if expr.is_number and not is_small and label.min is None and label.max is None:
                    continue  # a quotient was made a number: torch, too, says nothing
                why = (
                    f"export 0/1 specialized due to hint of {hint}"
                    if is_small
                    else f"tracing inferred a static shape of {least}"
                )
                conflicts.append(f"{said} {why} for dimension {place}.")
            elif not expr.is_number:
                for sign, end in ((">=", label.min), ("<=", label.max)):
                    if end is not None:
                        self.env._learn(Relation(sign, expr, make(end)))
        if conflicts:
            title = (
                "Found the following conflicts between user-specified ranges and inferred ranges from model tracing:"
            )
            raise ValueError("\n".join([title, *conflicts]))

    def _add(self, found, guard, name):
        key, low, high = self.labels[name]
        where, line = self.where[name], _line(guard)
        new = self.env.replacements.get(name)
        if isinstance(guard.expr, Joined):
            if key is not None:
                found.guarded(key, where, (low, high), str(guard.expr).replace(name, where), line)
            return
        if key is None and guard.expr.sign == "==" and is_fractional(guard.expr.difference):
            return  # a quotient was made a number: torch, too, fixes the size without a word
        if new is not None and new.is_number:
            found.fixed(key, where, new.number, line)
        elif key is None:  # Dim.DYNAMIC: what the program relies on narrows it
            return
        elif new is not None and new.is_symbol:
            (other,) = new.free_symbols
            other_key = self.labels[other][0] if other in self.labels else None
            found.equal(key, where, other_key, self.where.get(other, other), line)
        elif guard.expr.sign in _ORDER and _is_linear(guard.expr.difference):
            ends = self.env.var_to_range[name]
            found.narrowed(key, where, (low, high), (ends.lower, ends.upper), line)
        else:
            if (divisor := _divisor(guard.expr)) is not None:
                top = None if high is None else high // divisor
                found.divided(key, where, (low, high), divisor, ValueRange(None, top))
            else:
                found.guarded(key, where, (low, high), str(guard.expr).replace(name, where), line)


_ORDER = ("<", "<=", ">", ">=")


def _is_linear(difference):
    """Whether an expression is the sum of a symbol and a number."""
    names = [atoms for atoms in difference.terms if atoms]
    return len(names) == 1 and len(names[0]) == 1 and isinstance(names[0][0], str)


def _divisor(relation):
    """d, where a relation says that a symbol is a multiple of d."""
    from mica.fx.experimental._expressions import Call

    terms = list(relation.difference.terms.items())
    if relation.sign != "==" or len(terms) != 1 or len(terms[0][0]) != 1:
        return None
    (atom,) = terms[0][0]
    is_modulo = isinstance(atom, Call) and atom.name == "Mod" and atom.args[0].is_symbol and atom.args[1].is_number
    return atom.args[1].number if is_modulo else None


class _Declared:
    """What the caller has declared about the sizes, before the program runs."""

    def __init__(self, inputs):
        self._ranges = {
            name: (low if name in inputs.numbers else max(low, 2), high)
            for name, (_, low, high) in inputs.labels.items()
        }

    @staticmethod
    def replace(expr):
        return expr


def _line(guard):
    import os

    own = os.path.dirname(mica.__file__)
    frames = [f for f in guard.stack or () if not f.filename.startswith(own)]
    return f"by {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
