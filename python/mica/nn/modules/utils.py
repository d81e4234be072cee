"""Arguments that are one number or one for each dimension."""

from collections.abc import Iterable

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(count, name="parse"):
    """A function that repeats a number `count` times, and makes a tuple of anything else."""

    def parse(value):
        return tuple(value) if isinstance(value, Iterable) else (value,) * count

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(values, count):
    """Each of the values `count` times, the last first: paddings as F.pad wants them."""
    return tuple(value for value in reversed(values) for _ in range(count))


def _list_with_default(out_size, defaults):
    """The sizes, with a default in the place of each None."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    tail = defaults[-len(out_size) :]
    return [default if size is None else size for size, default in zip(out_size, tail, strict=False)]


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Take a prefix off the keys of a state dict, in place: "module." of models that were trained in parallel."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in [key for key in metadata if key and (key == prefix.replace(".", "") or key.startswith(prefix))]:
        metadata[key[len(prefix) :]] = metadata.pop(key)
