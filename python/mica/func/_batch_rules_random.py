"""Rules for functions that draw random numbers, and the mode that sees those without a batched argument."""

import functools

import mica
from mica import _C
from mica.func._batch_dims import padded
from mica.func._batched import Plain, active_levels, is_batched, rule, wrap

Tensor = _C.Tensor
_ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)


def _check_random(call):
    if call.level.randomness == "error":
        raise RuntimeError(_ERROR)


@rule("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def _dropout(call):
    by_default = call.kwargs.get("train", call.name not in ("alpha_dropout", "feature_alpha_dropout"))
    training = call.argument(2, "training", by_default)
    p = call.argument(1, "p", 0.5)
    if not training or p == 0:
        return call.value(call.args[0])
    _check_random(call)
    value = call.value(call.args[0])
    if call.level.randomness == "same":
        if call.name == "dropout":
            return value * call.func(mica.ones_like(value[0]), p, True)
        return _same_for_all(call)
    return call.func(value, *call.rest(), **call.kwargs) if call.name == "dropout" else NotImplemented


@rule("rrelu")
def _rrelu(call):
    """rrelu, which draws the slopes of numbers below zero while a network is trained."""
    if call.argument(3, "training", False):
        _check_random(call)
        if call.level.randomness == "same":
            return _same_for_all(call)
    return call.func(call.value(call.args[0]), *call.rest(), **call.kwargs)


def _same_for_all(call):
    """Call the function for each example with the same random numbers, drawn on the device of the example."""
    devices = [x.device for x in call.args if isinstance(x, Tensor)]
    device = mica.device(call.kwargs.get("device") or devices[0])
    if device.type == "cuda":
        state, go_back = mica.cuda.get_rng_state(device), lambda: mica.cuda.set_rng_state(state, device)
    else:
        state, go_back = mica.get_rng_state(), lambda: mica.set_rng_state(state)
    results = []
    for i in range(call.size):
        go_back()
        args = [x._batch_value[i] if call.is_batched(x) else x for x in call.args]
        results.append(call.func(*args, **call.kwargs))
    return mica.stack(results)


@rule("rand_like", "randn_like", "randint_like", "bernoulli", "poisson", "binomial", "normal", "multinomial",
      "_standard_gamma", "_sample_dirichlet", "gumbel_softmax", "rrelu_with_noise")  # fmt: skip
def _random(call):
    _check_random(call)
    if call.level.randomness == "same":
        return _same_for_all(call)
    if call.name in ("gumbel_softmax", "rrelu_with_noise") or any(isinstance(x, Tensor) for x in call.kwargs.values()):
        return NotImplemented
    # One draw for all examples, as in torch: a seed gives the numbers of the batch.
    if call.name == "multinomial":
        weights = call.value(call.args[0])
        drawn = call.func(weights.reshape(-1, weights.shape[-1]), *call.rest(), **call.kwargs)
        return drawn.reshape(*weights.shape[:-1], drawn.shape[-1])
    if call.name in ("binomial", "normal"):  # they broadcast their arguments
        rank = max(x.dim() for x in call.args if isinstance(x, Tensor))
        return call.func(*[padded(call, x, rank) for x in call.args], **call.kwargs)
    return call.func(*[call.full(x) for x in call.args], **call.kwargs)


@rule("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_", "bernoulli_", "random_")
def _random_in_place(call):
    _check_random(call)
    if call.level.randomness == "same" and any(call.is_batched(x) for x in call.rest()):
        raise RuntimeError(
            "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
        )
    if not call.is_batched(call.args[0]):
        return NotImplemented
    call.level.changed = True
    value = call.value(call.args[0])
    if call.level.randomness == "different":
        call.func(value, *[call.full(x) for x in call.rest()], **call.kwargs)
    else:
        value.copy_(call.func(value[0].clone(), *call.rest(), **call.kwargs))
    return Plain(call.args[0])


_MAKE = frozenset(("rand", "randn", "randint", "normal"))
_FOR_TENSORS = frozenset(
    ("alpha_dropout", "bernoulli", "binomial", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
     "feature_dropout", "multinomial", "normal", "poisson", "rand_like", "randint_like", "randn_like", "rrelu",
     "rrelu_with_noise", "_standard_gamma", "_sample_dirichlet")
)  # fmt: skip
_IN_PLACE = ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_", "bernoulli_", "random_")


@functools.cache
def _draws():
    """The functions that draw, and their names."""
    places = (_C, mica.nn.functional)
    found = {getattr(place, name, None): name for name in (*_MAKE, *_FOR_TENSORS, "randperm") for place in places}
    found |= {getattr(Tensor, name): name for name in (*_IN_PLACE, "bernoulli", "multinomial")}
    found.pop(None, None)
    return found


def _is_idle(name, args, kwargs):
    """Whether a layer draws nothing, because it is not in training or its probability is zero."""
    if name == "rrelu":
        return not (args[3] if len(args) > 3 else kwargs.get("training", False))
    if "dropout" not in name:
        return False
    training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", "alpha" not in name))
    return not training or (args[1] if len(args) > 1 else kwargs.get("p", 0.5)) == 0


class DrawForEach(mica.overrides.TorchFunctionMode):
    """The mode that is active while vmap runs. As `randomness` says, it refuses functions that draw random numbers, or lets
    them draw for every example."""

    _sees_operators = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = _draws().get(func)
        level = active_levels()[-1] if name and active_levels() else None
        if level is None or level.randomness == "same" or _is_idle(name, args, kwargs):
            return func(*args, **kwargs)
        if level.randomness == "error":
            raise RuntimeError(_ERROR)
        if name in _IN_PLACE:
            if not any(is_batched(x, level) for x in args):
                raise RuntimeError(
                    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like "
                    "same randomness. Draw new numbers instead, which differ from example to example"
                )
            return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise RuntimeError(
                "vmap: We do not support calling out variants of random operations inside of vmap. Please use non-out "
                "variants as a workaround"
            )
        if name in _MAKE and not any(isinstance(x, Tensor) for x in args):
            return self._drawn(func, name, args, kwargs, level)
        if name in _FOR_TENSORS and args and not any(is_batched(x, level) for x in args):
            # Tensors that all examples share get different random numbers in each.
            args = [wrap(x.expand(level.size, *x.shape), level) if isinstance(x, Tensor) else x for x in args]
        elif name == "randperm":
            return wrap(mica.stack([func(*args, **kwargs) for _ in range(level.size)]), level)
        return func(*args, **kwargs)

    def _drawn(self, func, name, args, kwargs, level):
        kwargs, args = dict(kwargs), list(args)
        if "size" in kwargs:
            kwargs["size"] = (level.size, *kwargs["size"])
        elif name in ("rand", "randn"):
            sizes = args if all(isinstance(s, int) for s in args) else list(args[0])
            args = [(level.size, *sizes)]
        else:
            args[-1] = (level.size, *args[-1])
        return wrap(func(*args, **kwargs), level)
