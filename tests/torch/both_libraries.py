"""One program or expression on torch and on Mica: what it gives, and what it refuses."""

import warnings

import mica
import pytest

torch = pytest.importorskip("torch")


def close(ours, theirs, tolerance):
    theirs = mica.tensor(theirs.detach().to(torch.float64).tolist(), dtype=ours.dtype).reshape(ours.shape)
    mica.testing.assert_close(ours.detach(), theirs, rtol=tolerance, atol=tolerance)


def on_both(run, tolerance):
    """Runs one function with each library and compares the tensors it returns, in order."""
    results = []
    for lib in (mica, torch):
        lib.manual_seed(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(run(lib))
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert tuple(ours.shape) == tuple(theirs.shape)
            close(ours, theirs, tolerance)


def evaluated(library, expression):
    """The value of an expression over torch, nn, F and r, which draws a tensor."""
    scope = {"torch": library, "nn": library.nn, "F": library.nn.functional, "r": library.rand}
    return eval(expression, scope)


def errors_begin_alike(expression, words):
    """Both libraries refuse the expression, with an error of one type that begins with the same words."""
    found = []
    for library in (mica, torch):
        with pytest.raises(Exception) as caught:
            evaluated(library, expression)
        found.append(caught.value)
    ours, theirs = found
    assert type(ours) is type(theirs), (theirs, ours)
    assert str(ours).split()[:words] == str(theirs).split()[:words], (theirs, ours)
