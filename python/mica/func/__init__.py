"""Functions of functions: batches of examples, gradients, modules called with other parameters."""

from mica.func._jacobians import hessian, jacfwd, jacrev
from mica.func._levels import transforming
from mica.func._rearrange import rearrange
from mica.func._transforms import grad, grad_and_value, jvp, linearize, vjp
from mica.func._vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


def functionalize(func, *, remove="mutations"):
    """The function, with changes of tensors in place that only its caller sees.

    Called under make_fx, the graph has no operators that change tensors in place, apart from a last copy_ into inputs that
    the function changes; with `remove="mutations_and_views"` it has no views either. Called otherwise, the function does
    what it did, since its results and what it changes in its inputs are the same with and without.
    """
    import functools

    from mica._functorch.functional_graphs import into_functional_graph

    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with "
            "their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced "
            "with their non-aliasing counterparts, {view}_copy.\n"
        )

    inner = into_functional_graph(func, remove)

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        with transforming():
            return inner(*args, **kwargs)

    return wrapped


def debug_unwrap(tensor, *, recurse=True):
    """The batch that an example under vmap stands for, to look at; of an argument, the tensor that vmap was given."""
    from mica.func._batched import BatchedTensor, given

    while type(tensor) is BatchedTensor:
        tensor, _ = given(tensor)
        if not recurse:
            break
    return tensor


def replace_all_batch_norm_modules_(root):
    """Let the batch norms of a module forget their running statistics, which examples cannot share."""
    from mica.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Call a module with other parameters and buffers in the place of its own.

    Args:
        module: the module, which stays as it is
        parameter_and_buffer_dicts: tensors by the names of state_dict(), in one dict or several
        args, kwargs: the arguments of the call
        tie_weights: whether a tensor that has several names in the module is replaced under all of them
        strict: whether all parameters and buffers, and no others, have to be given

    Example::

        weights = {name: p + 0.1 for name, p in model.named_parameters()}
        y = torch.func.functional_call(model, weights, (x,))
    """
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

    if any(m.training != models[0].training for m in models):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")

    def stacked(name_values):
        columns = [dict(named) for named in name_values]
        for name, value in columns[0].items():
            if any(c[name].requires_grad != value.requires_grad for c in columns):
                raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        return {
            name: mica.stack([c[name] for c in columns]).detach().requires_grad_(value.requires_grad)
            for name, value in columns[0].items()
        }

    return stacked([m.named_parameters() for m in models]), stacked([m.named_buffers() for m in models])
