"""Functions that are written for one attention score, evaluated for all scores."""

import sys

import mica

__all__ = ["evaluate"]


def _index_tensors(shape, device):
    """The batch, head, query and key of every score, each as a tensor that broadcasts over the others."""
    return [
        mica.arange(count, device=device).reshape([-1 if i == axis else 1 for i in range(4)])
        for axis, count in enumerate(shape)
    ]


def evaluate(function, shape, device, scores=None):
    """A score_mod (given scores) or mask_mod for every score of a shape.

    The function is written for one score: tensors without dimensions. Made of operations on elements, as such
    functions are, it means the same for all scores at once. Whether it does is tried at three places; where it does not,
    vmap calls it for one score of all, and where that fails it is called once for every score. While a graph is recorded
    nothing can be tried.
    """
    scores_given = () if scores is None else (scores,)
    shape = tuple(shape)
    if 0 in shape:
        return scores if scores is not None else mica.zeros(shape, dtype=mica.bool, device=device)
    try:
        together = function(*scores_given, *_index_tensors(shape, device))
        together = mica.as_tensor(together, device=device).expand(shape)
    except (RuntimeError, IndexError, TypeError, ValueError):
        together = None
    if together is not None and _is_recorded(together):
        return together
    places = {tuple(extent // 3 for extent in shape), tuple(extent - 1 for extent in shape), (0, 0, 0, 0)}

    def is_right(made):
        return made is not None and all(_agrees(function, made, place, scores, device) for place in places)

    if is_right(together):
        return together
    if is_right(mapped := _mapped(function, shape, device, scores_given)):
        return mapped
    flat = [
        mica.as_tensor(_at(function, place, scores, device), device=device)
        for place in mica.cartesian_prod(*(mica.arange(extent) for extent in shape)).tolist()
    ]
    return mica.stack(flat).reshape(shape)


def _mapped(function, shape, device, scores):
    """A function of one score for all of them, by vmap; None where vmap cannot do it."""
    for axis in reversed(range(4)):
        in_dims = (*(0 for _ in scores), *(0 if i == axis else None for i in range(4)))
        function = mica.vmap(function, in_dims)
    try:
        return function(*scores, *(mica.arange(count, device=device) for count in shape)).expand(shape)
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
        return None


def _is_recorded(tensor):
    """Whether a tensor is one of a graph that is being recorded, which has no values to ask for."""
    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    is_traced = tracing is not None and tracing.get_proxy_mode() is not None
    return is_traced or mica.compiler.is_exporting() or hasattr(tensor, "fake_mode")


def _at(function, place, scores, device):
    given = () if scores is None else (scores[tuple(place)],)
    return function(*given, *(mica.tensor(index, device=device) for index in place))


def _agrees(function, together, place, scores, device):
    with mica.no_grad():
        alone = mica.as_tensor(_at(function, place, scores, device), device=device)
        return alone.dim() == 0 and bool(mica.isclose(alone.double(), together[place].double(), equal_nan=True))
