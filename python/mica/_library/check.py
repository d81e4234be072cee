"""Checks of operators on examples: torch.library.opcheck."""

import mica
from mica._library.operator import named


def _leaves(value):
    from mica.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, mica.Tensor)]


def _schema_holds(op, args, kwargs):
    """Check that the operator changes no argument that its schema does not declare as changed."""
    before = [t.detach().clone() for t in _leaves((args, kwargs))]
    op(*args, **kwargs)
    changed = [
        i for i, (t, b) in enumerate(zip(_leaves((args, kwargs)), before, strict=True)) if not mica.equal(t.detach(), b)
    ]
    if changed and not op.schema.is_mutable:
        raise RuntimeError(f"{op.qualified_name}: argument {changed[0]} was changed, and the schema does not say so")


def _fake_agrees(op, args, kwargs):
    """Results on the meta device have the shapes and dtypes of real ones."""
    from mica.utils._pytree import tree_map_only

    real = _leaves(op(*args, **kwargs))
    fake_args, fake_kwargs = tree_map_only(mica.Tensor, lambda t: t.detach().to("meta"), (args, kwargs))
    fake = _leaves(op(*fake_args, **fake_kwargs))
    for a, b in zip(real, fake, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise RuntimeError(
                f"{op.qualified_name}: the fake result is {b.dtype} {tuple(b.shape)}, the real one {a.dtype} {tuple(a.shape)}"
            )


def _autograd_registered(op, args, kwargs):
    if (
        any(t.requires_grad for t in _leaves((args, kwargs)))
        and op.backward is None
        and not any("Autograd" in key for key in op.kernels)
    ):
        raise RuntimeError(f"{op.qualified_name}: an input requires gradients, and no autograd formula is registered")


_CHECKS = {
    "test_schema": _schema_holds,
    "test_autograd_registration": _autograd_registered,
    "test_faketensor": _fake_agrees,
}
# Checks of torch that need torch.compile.
_OF_COMPILER = ("test_aot_dispatch_static", "test_aot_dispatch_dynamic")


def _chosen(test_utils):
    if test_utils is None:
        return _CHECKS
    names = (test_utils,) if isinstance(test_utils, str) else test_utils
    known = (*_CHECKS, *_OF_COMPILER)
    if not isinstance(names, (tuple, list)) or not set(names) <= set(known):
        raise ValueError(
            f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {known} but it was not"
        )
    if asked := set(names) & set(_OF_COMPILER):
        raise NotImplementedError(f"opcheck: {', '.join(sorted(asked))} needs a compiler, which Mica has not yet")
    return {name: _CHECKS[name] for name in names}


def opcheck(op, args, kwargs, test_utils, raise_exception):
    """The result of every check by its name: "SUCCESS", or the exception, raised unless told otherwise."""
    target, results = named(op), {}
    for name, check in _chosen(test_utils).items():
        try:
            check(target, args, kwargs)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise
            results[name] = error
    return results
