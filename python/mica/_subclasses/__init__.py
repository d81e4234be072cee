"""Tensors without data that a compiler would use: Mica's are tensors on the meta device."""


def __getattr__(name):
    from mica._subclasses import fake_tensor

    return getattr(fake_tensor, name)
