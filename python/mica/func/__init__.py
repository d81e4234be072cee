"""Functions of functions: batches of examples, gradients, modules called with other parameters."""

from mica.func._transforms import grad, grad_and_value, hessian, jacrev, vjp
from mica.func._vmap import vmap

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacrev", "stack_module_state", "vjp", "vmap"]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Call a module with other parameters and buffers in the place of its own."""
    from mica.nn.utils.stateless import _functional_call as call

    if isinstance(parameter_and_buffer_dicts, (list, tuple)):
        if not all(isinstance(part, dict) for part in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        merged = {}
        for part in parameter_and_buffer_dicts:
            repeated = merged.keys() & part.keys()
            if repeated:
                raise ValueError(
                    f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous"
                )
            merged |= part
        parameter_and_buffer_dicts = merged
    elif not isinstance(parameter_and_buffer_dicts, dict):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    return call(module, parameter_and_buffer_dicts, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models):
    """The parameters and the buffers of alike modules, each stacked along a new first dimension."""
    import mica

    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(name_values):
        columns = [dict(named) for named in name_values]
        return {
            name: mica.stack([c[name] for c in columns]).detach().requires_grad_(value.requires_grad)
            for name, value in columns[0].items()
        }

    return stacked([m.named_parameters() for m in models]), stacked([m.named_buffers() for m in models])
