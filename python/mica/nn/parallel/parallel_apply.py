"""Several modules, each with arguments of its own."""

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj):
    """The first tensor in an object, or None."""
    from mica import _C
    from mica.utils._pytree import tree_leaves

    return next((leaf for leaf in tree_leaves(obj) if isinstance(leaf, _C.TensorBase)), None)


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """The results of modules on their arguments. One call comes after the other; each of them uses all cores."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named = kwargs_tup if kwargs_tup is not None else ({},) * len(modules)
    return [
        module(*(args if isinstance(args, (list, tuple)) else (args,)), **kwargs)
        for module, args, kwargs in zip(modules, inputs, named, strict=True)
    ]
