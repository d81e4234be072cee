"""A step of the optimizers that a parameter has for itself."""


def step_in_backward(parameter):
    """Let them step with the parameter's gradient, if there is one, and drop it."""
    if parameter.grad is None:
        return
    for optimizer in parameter._in_backward_optimizers:
        optimizer.step()
    parameter.grad = None
