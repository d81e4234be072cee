"""Symbols for the sizes of inputs, with what an earlier trace of the same inputs has found out about them."""

from mica.fx.experimental._expressions import Symbol, make, symbol
from mica.fx.experimental._facts_of_data import Multiple
from mica.fx.experimental._size_contexts import DimDynamic

__all__ = ["size_of_input"]


def _whole(env, name):
    """The size that a symbol is known for: the symbol, or as many times the symbol as it is."""
    return symbol(name) * env.scales.get(name, 1)


def size_of_input(env, value, source, kind, is_small, least, greatest, name):
    """The expression of a size: a number if it is static, a new symbol, or that of another size of the same value.

    Args:
        env: the ShapeEnv
        value, source: the size in the example, and where it is
        kind: a DimDynamic
        is_small: whether it is 0 or 1, which are not open unless the symbol has a name
        least, greatest: the ends of its range
        name: the name of the symbol
    """
    key = value if kind is DimDynamic.DUCK else str(source)
    preset = env.presets.get(key)
    times = preset.of if isinstance(preset, Multiple) else 1
    if preset is not None and times == 1:
        return make(value) if isinstance(preset, int) and preset == value else _whole(env, env._by_key[preset])
    if kind is DimDynamic.STATIC or (is_small and name is None):
        return make(value)
    if kind is DimDynamic.DUCK and value in env.val_to_var:
        return _whole(env, env.val_to_var[value])
    made = Symbol(name or f"s{len(env.var_to_val)}")
    env.var_to_val[made] = value // times
    low = (2 if env.specialize_zero_one and not is_small else 0) if least is None else least
    env._ranges[made] = (low if times == 1 else max(-(-low // times), 2), greatest and greatest // times)
    env.var_to_sources[made] = [source]
    env._by_key[key], env._keys[made] = made, key
    if kind is DimDynamic.DUCK:
        env.val_to_var.setdefault(value, made)
    if times > 1:
        env.scales[made] = times
    env.worlds.add(made, value // times, env.avoid)
    return _whole(env, made)
