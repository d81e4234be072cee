"""Functions of tensors, by the name under which torch's recurrent layers call them."""

import mica


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(mica.ops.aten if name == "unique_dim" else mica, name)  # torch's root does not have unique_dim
