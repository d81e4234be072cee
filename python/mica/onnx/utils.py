"""What programs call by the name of torch.onnx.utils: the exporter's functions, and a module's mode while it is written."""

import contextlib
import inspect

from mica.onnx import export, register_custom_op_symbolic, unregister_custom_op_symbolic
from mica.onnx._state import TrainingMode

__all__ = ["export", "model_signature", "register_custom_op_symbolic", "select_model_mode_for_export",
           "unregister_custom_op_symbolic"]  # fmt: skip


@contextlib.contextmanager
def select_model_mode_for_export(model, mode):
    """Put a module into a mode of torch.onnx.TrainingMode, and back when the block ends."""
    if not isinstance(mode, TrainingMode):
        raise TypeError(f"'mode' should be a torch.onnx.TrainingMode enum, but got '{type(mode)}'.")
    changed = hasattr(model, "training") and mode != TrainingMode.PRESERVE
    before = model.training if changed else None
    if changed:
        model.train(mode == TrainingMode.TRAINING)
    try:
        yield
    finally:
        if changed:
            model.train(before)


def model_signature(model):
    """The signature of the function that a call of `model` runs."""
    from mica.nn import Module

    return inspect.signature(model.forward if isinstance(model, Module) else model)
