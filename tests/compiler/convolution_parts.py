"""Layers for tests of compiled convolutions, and the comparison of a function with itself compiled."""

import mica

nn = mica.nn


def norm(channels, seed):
    mica.manual_seed(seed)
    made = nn.BatchNorm2d(channels).eval()
    for each in (made.weight.data, made.bias.data, made.running_mean):
        each.normal_()
    made.running_var.uniform_(0.5, 2)
    return made


def conv(i, o, k, seed=5, **options):
    mica.manual_seed(seed)
    return nn.Conv2d(i, o, k, padding=options.pop("padding", k // 2), **options).eval()


def both(function, *args):
    """What a function computes by itself and compiled, twice: from the second call on weights are kept."""
    compiled = mica.compile(function)
    with mica.no_grad():
        wanted = function(*args)
        for _ in range(3):
            found = compiled(*args)
            for a, b in zip(flat(wanted), flat(found), strict=True):
                assert a.shape == b.shape and a.stride() == b.stride()
                assert mica.equal(a, b)
    return found


def flat(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def said(function, *args):
    with mica.no_grad():
        return str(mica.explain(mica.compile(function), *args))


def made_parts():
    """A layer, a norm that follows it, and an input."""
    mica.manual_seed(9)
    return conv(64, 64, 1), norm(64, 4), mica.randn(2, 64, 28, 28)
