"""Optimizers that step while backward goes on, so that only a few gradients are there at a time."""

from mica.distributed._in_backward import step_in_backward

__all__ = []


def _apply_optimizer_in_backward(optimizer_class, params, optimizer_kwargs, register_hook=True):
    """Give each parameter an optimizer of its own, which steps when its gradient is whole; the gradient is dropped then.

    A parameter may be given several, which step one after the other. Those of a DistributedDataParallel step when the
    gradients are averaged.
    """
    for parameter in params:
        optimizer = optimizer_class([parameter], **optimizer_kwargs)
        if not hasattr(parameter, "_in_backward_optimizers"):
            parameter._in_backward_optimizers, parameter._optimizer_classes, parameter._optimizer_kwargs = [], [], []
            parameter._in_backward_hook = None
        parameter._in_backward_optimizers.append(optimizer)
        parameter._optimizer_classes.append(optimizer_class)
        parameter._optimizer_kwargs.append(optimizer_kwargs)
        if register_hook and parameter._in_backward_hook is None:
            parameter._in_backward_hook = parameter.register_post_accumulate_grad_hook(step_in_backward)


def _get_in_backward_optimizers(module):
    """The optimizers of a module's parameters, for checkpoints."""
    return [each for parameter in module.parameters() for each in getattr(parameter, "_in_backward_optimizers", [])]
