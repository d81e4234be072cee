"""Lets the optimizers that belong to one parameter step during the backward pass."""


def step_in_backward(parameter):
    """Let these optimizers step with the parameter's gradient, if there is one, and then drop the gradient."""
    if parameter.grad is None:
        return
    for optimizer in parameter._in_backward_optimizers:
        optimizer.step()
    parameter.grad = None
