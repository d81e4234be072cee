"""What an operation needs of open sizes that does not hold in the worlds: that two are equal, that one follows from others, that one is
a multiple of a number, or, where nothing else helps, that one is the example's number.
"""

import itertools
import math

import mica
from mica import _C
from mica._functions.families import own_name
from mica._subclasses.open_sizes import NeedsStatic, NoExpression, ask_for_smaller, own_sizes
from mica.fx.experimental import _facts_of_data
from mica.fx.experimental._expressions import Call, Expression, floordiv, make, symbol
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["raise_needs", "raise_relations"]


def raise_relations(func, args, kwargs, env, error):
    """Raise NeedsStatic if an error is one of open sizes that fit if some of them follow from others."""
    ask_for_smaller(func, env, error)
    found = _Search(func, args, kwargs, env).relations()
    if found:
        raise NeedsStatic(found, func, error) from error


def raise_needs(func, args, kwargs, env, error):
    """Raise NeedsStatic if an error is one of open sizes, which do not fit where the example's do."""
    ask_for_smaller(func, env, error)
    search = _Search(func, args, kwargs, env)
    found = search.kernel(error) or search.relations() or search.numbers()
    if not found and env.facts is not None and not isinstance(error, NoExpression):
        found = _needed_of_data(func, args, kwargs, env)
    if found:
        raise NeedsStatic(found, func, error) from error


_MANY = 16  # candidates, above which only single ones are tried
_TRIALS = 3  # worlds in which they are tried

# Operations that are given as many elements, or rows, as there are.
_REARRANGING = frozenset(["view", "reshape", "_unsafe_view", "unflatten", "split_with_sizes", "split"])


def _works(func, leaves, spec, env, values):
    """Whether an operation works in a world."""

    def number(value):
        known = env.worlds.known(value)
        return known if isinstance(known, int) else known.value(values)

    def in_it(leaf):
        sizes = getattr(leaf, "__dict__", {}).get("_sizes")
        if sizes is not None:
            numbers = [size if isinstance(size, int) else size.value(values) for size in sizes]
            strides = [number(each) for each in _C.TensorBase.stride(leaf)]
            return _C.empty_strided(numbers, strides, dtype=leaf.dtype, device="meta")
        if isinstance(leaf, _C.TensorBase):
            return _C.empty_strided(leaf.shape, _C.TensorBase.stride(leaf), dtype=leaf.dtype, device="meta")
        return number(leaf) if type(leaf) is int else leaf

    try:
        inner_args, inner_kwargs = tree_unflatten([in_it(leaf) for leaf in leaves], spec)
        func(*inner_args, **inner_kwargs)
    except Exception:
        return False
    return True


class _Arguments:
    """The sizes and numbers among the arguments of an operation."""

    def __init__(self, func, args, kwargs, env):
        leaves, _ = tree_flatten((args, kwargs))
        name = own_name(getattr(func, "overloadpacket", func))
        self.sizes, self.totals, self.numbers, self.wholes = [], [], [], []
        self.fixed = set()  # how many elements there are along the sizes of tensors that are not open
        for leaf in leaves:
            if isinstance(leaf, _C.TensorBase) and (own := own_sizes(leaf)):
                self.sizes += own
                self.fixed.add(math.prod(size for size in own if isinstance(size, int)) or 1)
                self.wholes.append(math.prod(own[1:], start=own[0]))
        for value in (*args, *kwargs.values()):
            if type(value) is int and 1 < value <= 4096:
                self.numbers += [value, value * value] if name == "pixel_shuffle" else [value]
            if not isinstance(value, (list, tuple)) or not value or not all(type(each) is int for each in value):
                continue
            given = [env.worlds.known(each) for each in value]
            fixed = [each for each in given if isinstance(each, int)]
            self.numbers += [
                each for each in (math.prod(each for each in fixed if each > 0), *fixed) if 1 < each <= 4096
            ]
            if -1 not in fixed and name in _REARRANGING:
                self.totals += [(math.prod(given[1:], start=given[0]), whole) for whole in self.wholes]
                self.totals += [(sum(given[1:], start=given[0]), size) for size in self.sizes] if len(given) > 1 else []


def _needed_of_data(func, args, kwargs, env):
    """{symbol: fact} about sizes that only data decide, with which an operation works."""
    leaves, spec = tree_flatten((args, kwargs))
    found = _Arguments(func, args, kwargs, env)
    with _C.DisableTorchFunction(), mica.utils._python_dispatch._disable_current_modes(), mica.no_grad():
        for facts in _facts_of_data.candidates(env, found.sizes, found.totals, found.numbers, found.wholes):
            worlds = (_facts_of_data.trial_values(facts, values) for values in env.worlds.values[:_TRIALS])
            if all(_works(func, leaves, spec, env, values) for values in worlds):
                return facts
    return None


class _Search:
    """Looks for what sizes of inputs have to be for an operation to work.

    A size that is known to be a multiple has a symbol for the part: `env.scales` says how many times it is the size.
    """

    def __init__(self, func, args, kwargs, env):
        self._call, self._env = (func, args, kwargs), env
        self._leaves, self._spec = tree_flatten((args, kwargs))
        names = set()
        for leaf in self._leaves:
            for size in getattr(leaf, "__dict__", {}).get("_sizes", ()):
                names |= set() if isinstance(size, int) else size.free_symbols
            if type(leaf) is int and not isinstance(known := env.worlds.known(leaf), int):
                names |= known.free_symbols
        self._names = [name for name in env.var_to_val if name in names]  # in the order in which they were made
        self._hints = env.var_to_val

    def _works(self, changed):
        """Whether the operation works where symbols have other values, each a function of those of a world. One world alone may
        fit by chance."""
        for values in self._env.worlds.values[:_TRIALS]:
            made = {name: number(values) for name, number in changed.items()}
            if not _works(self._call[0], self._leaves, self._spec, self._env, {**values, **made}):
                return False
        return True

    def _as_in_example(self, names):
        return self._works({name: _always(self._hints[name]) for name in names})

    def relations(self):
        """{key of a size: what it follows from} with which the operation works; None if there is nothing of that kind."""
        with _C.DisableTorchFunction(), mica.utils._python_dispatch._disable_current_modes(), mica.no_grad():
            if not self._names or not self._as_in_example(self._names):
                return None  # an error of the program itself
            found = self._chosen(self._equal(), 3) or self._side_by_side()
            if not self._env.takes_relations:
                return found or (self._multiples_and_numbers() if self._env.takes_multiples else None)
            found = found or self._chosen([*self._equal(), *self._solved()], 3)
            return found or self._chosen(self._multiples(), 2)

    def _multiples_and_numbers(self):
        """Presets of multiples alone, or of one beside a size that is the example's number. One number alone is for numbers()."""
        env, multiples = self._env, self._multiples()
        if found := self._chosen(multiples, 2):
            return found
        if any(self._as_in_example([name]) for name in self._names):
            return None
        several = [[each] for each in multiples[:_MANY]] + list(map(list, itertools.combinations(multiples[:_MANY], 2)))
        for chosen, name in itertools.product(several, self._names):
            changed = {part: number for changes, _ in chosen for part, number in changes.items()}
            if len(changed) < len(chosen) or name in changed:
                continue
            if self._works(changed | {name: _always(self._hints[name])}):
                known = {key: value for _, presets in chosen for key, value in presets.items()}
                return known | {env.preset_key(name): self._in_example(name)}
        return None

    def kernel(self, error):
        """{key of a size of a convolution's kernel: its number in the example} if no expression is found for the results' sizes,
        which with a stride are quotients of differences."""
        func, args, _ = self._call
        if not isinstance(error, NoExpression) or own_name(getattr(func, "overloadpacket", func)) != "convolution":
            return None
        names = {name for size in own_sizes(args[1])[2:] for name in getattr(size, "free_symbols", ())}
        return {self._env.preset_key(name): self._in_example(name) for name in names if name in self._hints}

    def _in_example(self, name):
        return self._hints[name] * self._env.scales.get(name, 1)

    def numbers(self):
        """{key of a size: its number in the example} with which the operation works."""
        env = self._env
        with _C.DisableTorchFunction(), mica.utils._python_dispatch._disable_current_modes(), mica.no_grad():
            if not self._names or not self._as_in_example(self._names):
                return None
            for count in range(1, len(self._names) + 1):
                for chosen in itertools.combinations(self._names, count):
                    if self._as_in_example(chosen):
                        return {env.preset_key(name): self._in_example(name) for name in chosen}
        return None

    def _chosen(self, candidates, most):
        """The presets of the fewest candidates, each ({symbol: function of the values of a world}, presets), that are enough."""
        known = {}
        for changes, presets in candidates:
            known.setdefault(tuple(presets.items()), changes)
        for count in range(1, most + 1 if len(known) <= _MANY else 2):
            for chosen in itertools.combinations(known.items(), count):
                changed = {name: number for _, changes in chosen for name, number in changes.items()}
                if len(changed) == sum(len(changes) for _, changes in chosen) and self._works(changed):
                    return {key: value for presets, _ in chosen for key, value in presets}
        return None

    def _pairs(self):
        return itertools.combinations(self._names, 2)

    def _equal(self):
        return ((changes, presets) for _, changes, presets in self._equal_pairs())

    def _equal_pairs(self):
        """Two sizes of the example that are equal. Where they are known to be multiples, both become multiples of the same."""
        env = self._env
        for a, b in self._pairs():
            times_a, times_b = env.scales.get(a, 1), env.scales.get(b, 1)
            if self._hints[a] * times_a != self._hints[b] * times_b:
                continue
            both = math.lcm(times_a, times_b)
            changes, presets = {b: _part_of(a, times_a, both, times_b)}, {env.preset_key(b): env.preset_key(a)}
            if both != times_a:
                changes[a] = _part_of(a, times_a, both, times_a)
                presets[env.preset_key(a)] = _facts_of_data.Multiple(both)
            yield (a, b), changes, presets

    def _side_by_side(self):
        """Presets where more than a few sizes are equal: those at the same places of tensors, and up to two pairs elsewhere. What
        the operation works without is left out again."""
        env, hints, sides = self._env, self._hints, {}
        for leaf in self._leaves:
            own = getattr(leaf, "__dict__", {}).get("_sizes", ())
            for i, size in enumerate(own):
                name = next((each for each in self._names if env.replace(make(size)) == symbol(each)), None)
                if name is not None and name not in env.scales:
                    sides.setdefault((i, hints[name]), []).append(name)
                    sides.setdefault((i - len(own), hints[name]), []).append(name)
        aligned = sorted({pair for names in sides.values() for pair in itertools.pairwise(names) if pair[0] != pair[1]})
        known = {*aligned, *((b, a) for a, b in aligned)}
        others = [
            (changes, presets, None if {a, b} & env.scales.keys() else (a, b))
            for (a, b), changes, presets in self._equal_pairs()
            if (a, b) not in known
        ]
        for count in range(3 if len(others) <= _MANY else 1):
            for more in itertools.combinations(others, count):
                pairs = [*aligned, *(pair for *_, pair in more if pair is not None)]
                scaled = {name: number for changes, _, pair in more if pair is None for name, number in changes.items()}
                if not pairs or not self._works({**self._merged(pairs), **scaled}):
                    continue
                for pair in list(pairs):
                    rest = [each for each in pairs if each is not pair]
                    pairs = rest if self._works({**self._merged(rest), **scaled}) else pairs
                presets = {env.preset_key(b): env.preset_key(a) for b, a in self._first_of(pairs).items()}
                return presets | {key: value for _, given, pair in more if pair is None for key, value in given.items()}
        return None

    def _first_of(self, pairs):
        """{symbol: the first of those that pairs make equal to it}, without the first ones themselves."""
        first = {}

        def root(name):
            return root(first[name]) if name in first else name

        for a, b in pairs:
            a, b = sorted((root(a), root(b)), key=self._names.index)
            if a != b:
                first[b] = a
        return {name: root(name) for name in first}

    def _merged(self, pairs):
        return {b: lambda values, a=a: values[a] for b, a in self._first_of(pairs).items()}

    def _solved(self):
        """A size that follows from others: one of the arguments is as large as another, or holds as many elements, or a guard
        says so, which the numbers of the worlds do not know."""
        env = self._env
        place = {name: i for i, name in enumerate(env.var_to_val)}
        given = _Arguments(*self._call, env)
        sizes = list(dict.fromkeys(env.replace(make(size)) for size in given.sizes))
        pairs = (*itertools.combinations(sizes, 2), *given.totals)
        differences = [env.replace(make(a)) - env.replace(make(b)) for a, b in pairs]
        differences += [symbol(name) - env.replacements[name] for name in self._names if name in env.replacements]
        for difference in differences:
            names = difference.free_symbols
            if not names or not names <= place.keys():
                continue
            last = max(names, key=place.get)
            made = None if last in env.scales else _facts_of_data.solved(last, difference)
            if made is None or made.value(self._hints) != self._hints[last]:
                continue
            if made.is_number:
                yield {last: _always(made.number)}, {env.preset_key(last): made.number}
                continue
            keys = {name: _by_key(env, name) for name in made.free_symbols}
            yield {last: made.value}, {env.preset_key(last): made.substituted(keys)}

    def _multiples(self):
        """A size that is a multiple of a number which the arguments mention, or by which their sizes are divided."""
        env, given = self._env, _Arguments(*self._call, self._env)
        numbers, terms = set(given.numbers), []
        for size in (*given.sizes, *(env.worlds.known(leaf) for leaf in self._leaves if type(leaf) is int)):
            if isinstance(size, Expression):
                terms += size.terms.items()
                numbers |= set(_divisors(size))
        found = []
        for name, number in itertools.product(self._names, sorted(numbers)):
            factors = {factor for atoms, factor in terms if name in atoms and isinstance(factor, int)} | {1}
            for of in {number // math.gcd(factor, number) for factor in (*factors, *given.fixed)}:
                if of > 1 and self._hints[name] % of == 0 and self._hints[name] > of:
                    presets = {env.preset_key(name): _facts_of_data.Multiple(of * env.scales.get(name, 1))}
                    found.append((of, {name: _part_of(name, 1, of, 1)}, presets))
        return [each for _, *each in sorted(found, key=lambda each: each[0])]


def _always(number):
    return lambda values: number


def _part_of(name, times, both, by):
    """The symbol of a part of a size in a world where the size, `times` another symbol, is a multiple of `both`."""
    return lambda values: values[name] * times // both * both // by


def _by_key(env, name):
    """What a symbol is in another trace, where the size is known by its key."""
    return floordiv(symbol(env.preset_key(name)), make(env.scales.get(name, 1)))


def _divisors(expr):
    """The numbers by which parts of an expression are divided."""
    for atoms in expr.terms:
        for atom in atoms:
            if isinstance(atom, Call):
                if atom.name in ("FloorDiv", "Mod") and atom.args[1].is_number and 1 < atom.args[1].number <= 4096:
                    yield atom.args[1].number
                for each in atom.args:
                    yield from _divisors(each)
