"""Questions about compilation that programs ask here."""

from mica.compiler import is_compiling  # noqa: F401


def innermost_fn(fn, unaltered_fn_attr="_torchdynamo_orig_callable"):
    """The function that was compiled."""
    while hasattr(fn, unaltered_fn_attr):
        fn = getattr(fn, unaltered_fn_attr)
    return fn
