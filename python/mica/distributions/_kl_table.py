"""The table from pairs of types of distributions to the functions of their divergence."""

import warnings

_KL_REGISTRY = {}  # what was registered
_KL_MEMOIZE = {}  # what was looked up, by the types of the arguments


def register_kl(type_p, type_q):
    """A decorator that enters a function of (p, q) for a pair of types of distributions, and for their subclasses."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        # Any class is allowed, as in torch: pyro registers a class that its distributions share.
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(fun):
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()  # a better match may have come
        return fun

    return decorator


def _nearest(matches, first, second):
    """The most special pair, by the types at `first`, then by those at `second`."""
    best = matches[0]
    for match in matches[1:]:
        if match[first] is not best[first]:
            nearer = issubclass(match[first], best[first])
        else:
            nearer = issubclass(match[second], best[second])
        if nearer:
            best = match
    return best


def _dispatch_kl(type_p, type_q):
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return NotImplemented
    left, right = _nearest(matches, 0, 1), _nearest(matches, 1, 0)
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p, q):
    """KL(p || q): the mean under p of log p(x) - log q(x), one number per distribution of the batch."""
    types = type(p), type(q)
    fun = _KL_MEMOIZE.get(types)
    if fun is None:
        fun = _KL_MEMOIZE[types] = _dispatch_kl(*types)
    if fun is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}"
        )
    return fun(p, q)
