"""Functions that the engine computes in one piece, in parts whose gradients a graph can show: recurrent layers, circular padding."""

import mica
from mica import _C
from mica.fx.experimental._parts_of_formulas import PARTS
from mica.fx.experimental._parts_of_layers import PARTS as OF_LAYERS
from mica.fx.experimental._parts_of_losses import PARTS as OF_LOSSES
from mica.utils._pytree import tree_leaves

__all__ = ["in_parts"]


def in_parts(name, args, kwargs):
    """A function that computes the call in parts, if it is a call whose gradient is wanted and that has to be; else None."""
    make = _PARTS.get(name)
    if make is None or not mica.is_grad_enabled():
        return None
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _C.TensorBase)]
    return make(name, *args, **kwargs) if any(tensor.requires_grad for tensor in tensors) else None


def _circular(name, input, pad, mode="constant", value=None):
    if mode != "circular" or len(pad) % 2 or len(pad) // 2 > input.dim():
        return None
    ends = [(input.dim() - 1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    if any(max(before, after) > input.shape[dim] or before + after < -input.shape[dim] for dim, before, after in ends):
        return None  # the engine says what is wrong

    def parts():
        x = input
        for dim, before, after in ends:
            begin, end = max(-before, 0), x.shape[dim] - max(-after, 0)
            core = x.narrow(dim, begin, end - begin)
            last = core.narrow(dim, core.shape[dim] - max(before, 0), max(before, 0))
            x = mica.cat([last, core, core.narrow(dim, 0, max(after, 0))], dim)
        return x

    return parts


def _gates(x, h, w, b):
    return mica.nn.functional.linear(x, w[0], b[0]), mica.nn.functional.linear(h, w[1], b[1])


def _lstm(x, state, w, b):
    (h, c), (given, kept) = state, _gates(x, state[0], w, b)
    i, f, g, o = (given + kept).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if len(w) == 2 else h @ w[2].t()), c


def _gru(x, state, w, b):
    given, kept = (each.chunk(3, 1) for each in _gates(x, state[0], w, b))
    reset, update = (given[0] + kept[0]).sigmoid(), (given[1] + kept[1]).sigmoid()
    new = (given[2] + reset * kept[2]).tanh()
    return (new + update * (state[0] - new),)


def _plain(function):
    return lambda x, state, w, b: (function(sum(_gates(x, state[0], w, b))),)


_CELLS = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _plain(mica.tanh), "rnn_relu": _plain(mica.relu)}


def _recurrent(name, input, states, weights, has_biases, *options):
    if isinstance(weights, _C.TensorBase) or len(options) != 5:  # packed sequences
        return None
    layers, dropout, train, bidirectional, batch_first = options
    if dropout and train and layers > 1:
        return None  # draws of the engine's own
    count = layers * (2 if bidirectional else 1)
    each = len(weights) // count
    starts = states if isinstance(states, (list, tuple)) else (states,)

    def direction(x, i):
        own = weights[i * each : (i + 1) * each]
        w, b = (own[:2], own[2:4]) if has_biases else (own[:2], (None, None))
        w = [*w, own[-1]] if each in (3, 5) else w
        state, outputs = tuple(start[i] for start in starts), []
        backwards = bidirectional and i % 2 == 1
        for step in reversed(x.unbind(0)) if backwards else x.unbind(0):
            state = _CELLS[name](step, state, w, b)
            outputs.append(state[0])
        return mica.stack(outputs[::-1] if backwards else outputs), state

    def parts():
        x, ends = input.transpose(0, 1) if batch_first else input, []
        for layer in range(layers):
            made = [direction(x, i) for i in ((2 * layer, 2 * layer + 1) if bidirectional else (layer,))]
            x = mica.cat([outputs for outputs, _ in made], -1) if bidirectional else made[0][0]
            ends += [state for _, state in made]
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(mica.stack(column) for column in zip(*ends, strict=True)))

    return parts


_PARTS = {"pad": _circular, **dict.fromkeys(_CELLS, _recurrent), **PARTS, **OF_LAYERS, **OF_LOSSES}
