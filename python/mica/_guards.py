"""torch's questions about the program that is being compiled, which Mica answers with None, and the active mode of fake tensors."""

import sys


def active_fake_mode():
    """The innermost FakeTensorMode that is active, or None."""
    fake = sys.modules.get("mica._subclasses.fake_tensor")  # while it is not loaded, there is no such mode
    active = [] if fake is None else [mode for mode in fake._active_modes() if isinstance(mode, fake.FakeTensorMode)]
    return active[-1] if active else None


def detect_fake_mode(inputs=None):
    """The mode of the fake tensors among the inputs, or the active one; None if there is neither."""
    from mica.utils._pytree import tree_leaves

    fake = sys.modules.get("mica._subclasses.fake_tensor")
    if fake is None:
        return None
    modes = [leaf.fake_mode for leaf in tree_leaves(inputs) if isinstance(leaf, fake.FakeTensor)]
    modes += [mode] if (mode := active_fake_mode()) is not None else []
    for other in modes[1:]:
        if other is not modes[0]:
            raise AssertionError(f"fake mode ({modes[0]}) doesn't match mode ({other})")
    return modes[0] if modes else None


class TracingContext:
    """torch's facts about a running compilation. Mica's compiler has no such phase, so that there never is one."""

    @staticmethod
    def try_get():
        return None

    @staticmethod
    def get():
        raise RuntimeError("TracingContext.get() must be called within an ongoing trace.")


class CompileContext:
    """torch's facts about a running compilation. Mica's compiler has no such phase, so that there never is one."""

    @classmethod
    def try_get(cls):
        return None

    @classmethod
    def current_compile_id(cls):
        return None
