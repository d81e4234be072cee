"""Automatic differentiation: gradients of outputs with respect to inputs, and functions with their own backward."""

from collections.abc import Iterator

from mica import _C
from mica.autograd import anomaly_mode, function, grad_mode, graph
from mica.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from mica.autograd.function import Function
from mica.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,  # noqa: F401 - torch has it here, not in __all__
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from mica.autograd.gradcheck import gradcheck, gradgradcheck
from mica.autograd.variable import Variable

__all__ = [
    "Function",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


SavedTensor = _C._SavedTensor


class _unsafe_preserve_version_counter:
    """A `with` block in which changes of some tensors are not counted. Gradients that need their saved values may be wrong."""

    def __init__(self, tensors):
        self.tensors = (tensors,) if isinstance(tensors, _C.Tensor) else tuple(tensors)
        self.prev_versions = tuple(tensor._version for tensor in self.tensors)

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        for tensor, version in zip(self.tensors, self.prev_versions, strict=True):
            _C._set_version(tensor, version)


def _is_checkpoint_valid():
    """Whether a reentrant checkpoint may run: not within a backward pass that is asked for some gradients alone."""
    return not _C._current_graph_task_is_selective()


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Add the gradients of `tensors`, weighted by `grad_tensors`, to the `grad` of the leaves (or of `inputs` alone)."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    tensors, inputs = _kept(tensors), _kept(inputs)
    if type(tensors) is not _C.Tensor and (asked := _overriding(tensors, inputs)):
        import mica  # the module of its overrides imports this file

        options = {"retain_graph": retain_graph, "create_graph": create_graph, "inputs": inputs}
        return mica.overrides.handle_torch_function(
            backward, asked, _listed(tensors), grad_tensors=grad_tensors, **options
        )
    _compute_recorded(create_graph)
    if _are_spread(tensors):
        from mica.distributed.tensor._gradients import run

        return run(_C._autograd_backward, tensors, grad_tensors, retain_graph, create_graph, inputs)
    grad_tensors = _seeds_of_classes(tensors, grad_tensors)
    _C._autograd_backward(tensors, grad_tensors, retain_graph, create_graph, inputs)


def _overriding(*groups):
    """The tensors whose classes, of a program's own, are asked about a pass by their __torch_function__."""
    found = [each for group in groups if group is not None for each in _listed(group)]
    return [each for each in found if _has_own_answer(each)]


def _has_own_answer(tensor):
    if type(tensor) is _C.Tensor:
        return False
    if not isinstance(tensor, _C.Tensor):
        return hasattr(type(tensor), "__torch_function__")
    for kind in type(tensor).__mro__:
        if kind.__module__.partition(".")[0] in ("mica", "torch"):
            return False  # its answer would be the same as the engine's
        if "__torch_function__" in vars(kind):
            import mica

            return _is_programs_own(kind) and mica.overrides.has_torch_function((tensor,))
    return False


def _is_programs_own(kind):
    """Whether a class's __torch_function__ is a function of a program: not the one that Mica gives to some classes."""
    answer = getattr(vars(kind)["__torch_function__"], "__func__", None)
    return getattr(answer, "__module__", "mica").partition(".")[0] not in ("mica", "torch")


def _are_spread(tensors):
    """Whether a pass begins with tensors that are spread over processes."""
    if type(tensors) is _C.Tensor:
        return False
    return any(getattr(type(each), "_is_spread", False) for each in _listed(tensors))


def _seeds_of_classes(tensors, gradients):
    """The gradients that a pass begins with. A class with a __torch_dispatch__ makes those of its own tensors."""
    if type(tensors) is _C.Tensor or all(type(each) is _C.Tensor for each in _listed(tensors)):
        return gradients
    from mica._subclasses.recorded import seeds

    return seeds(_listed(tensors), gradients)


# Set by mica.func once vmap is used: autograd for tensors that stand for one example of a batch.
_gradients_of_examples = None
# Set by a capture of graphs (_dynamo/capture.py): what it has put off runs before a backward pass.
_before_gradients = None


def _compute_recorded(create_graph=False):
    """Compute what a capture of graphs has put off: a backward pass needs the values of the tensors."""
    if _before_gradients is not None:
        _before_gradients(create_graph)


def _gradients(outputs, inputs, grad_outputs, *options):
    _compute_recorded(options[1])
    if grad_outputs is None and _C._len_torch_dispatch_stack():
        outputs = _listed(outputs)
        grad_outputs = _seeds(outputs)
    if _gradients_of_examples is not None:
        outputs, inputs = _listed(outputs), _listed(inputs)
        grad_outputs = None if grad_outputs is None else _listed(grad_outputs)
        return _gradients_of_examples(outputs, inputs, grad_outputs, *options)
    if _are_spread(outputs):
        from mica.distributed.tensor._gradients import run

        return run(_C._autograd_grad, outputs, grad_outputs, inputs, *options, swapped=True)
    return _C._autograd_grad(outputs, inputs, _seeds_of_classes(outputs, grad_outputs), *options)


def _seeds(outputs):
    """The gradients that a pass begins with, made so that modes see it. None where the caller has to give one."""
    if any(not isinstance(each, _C.Tensor) or each.dim() != 0 for each in outputs):
        return None
    from mica import ones_like  # imports this module

    return tuple(ones_like(each) for each in outputs)


def _listed(given):
    """One tensor or edge, or several, as a tuple."""
    is_one = isinstance(given, (_C.Tensor, graph.GradientEdge)) or hasattr(type(given), "__torch_function__")
    return (given,) if is_one else tuple(given)


def _kept(given):
    """What is given, which is read more than once: of an iterator, such as module.parameters(), a tuple."""
    return tuple(given) if isinstance(given, Iterator) else given


def _calculate_shape(output, grad, is_grads_batched):
    """The shapes of an output and of its gradient, which have to be equal; of nested tensors the sizes of all parts."""
    if isinstance(output, graph.GradientEdge):
        if is_grads_batched:
            raise RuntimeError("Batched grads are not supported with GradientEdge")
        return output.node._input_metadata[output.output_nr].shape, grad.shape
    if output.is_nested and output.layout is _C.strided:
        if is_grads_batched:
            raise RuntimeError("Batched grads are not supported with Nested Tensor.")
        return output._nested_tensor_size(), grad._nested_tensor_size()
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


def _one_by_one(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused):
    """The gradients for each of a batch of grad_outputs, stacked."""
    batches = _listed(grad_outputs)
    for i, (batch, output) in enumerate(zip(batches, _listed(outputs), strict=True)):
        if batch is not None and isinstance(output, _C.Tensor) and batch.shape[1:] != output.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{i}] has a shape of {batch.shape} and output[{i}] "
                f"has a shape of {output.shape}."
            )
    size = next(batch.shape[0] for batch in batches if batch is not None)
    rows = []
    for i in range(size):
        weights = tuple(None if batch is None else batch[i] for batch in batches)
        keep = True if i + 1 < size else retain_graph
        rows.append(_C._autograd_grad(outputs, inputs, weights, keep, create_graph, allow_unused))
    return tuple(None if column[0] is None else _C.stack(column) for column in zip(*rows, strict=True))


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """The gradients of `outputs`, weighted by `grad_outputs`, with respect to `inputs`, as a tuple.

    An input that no output depends on is an error, unless allow_unused (its gradient is None then) or
    materialize_grads (zeros). With is_grads_batched, grad_outputs have one dimension more, in front, and so has the
    result. `inputs` and `outputs` may be gradient edges.
    """
    outputs, inputs = _kept(outputs), _kept(inputs)
    if isinstance(inputs, (list, tuple)) and not inputs:
        raise ValueError("grad requires non-empty inputs.")
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    if type(outputs) is not _C.Tensor and (asked := _overriding(outputs, inputs)):
        import mica  # the module of its overrides imports this file

        return mica.overrides.handle_torch_function(
            grad,
            asked,
            _listed(outputs),
            _listed(inputs),
            grad_outputs=grad_outputs,
            retain_graph=retain_graph,
            create_graph=create_graph,
            only_inputs=only_inputs,
            allow_unused=allow_unused,
            is_grads_batched=is_grads_batched,
            materialize_grads=materialize_grads,
        )
    if is_grads_batched:
        result = _one_by_one(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    else:
        result = _gradients(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    if materialize_grads:
        sources = _listed(inputs)
        if any(each is None and not isinstance(x, _C.Tensor) for each, x in zip(result, sources, strict=True)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        result = tuple(
            _C.zeros_like(source, requires_grad=create_graph) if each is None else each
            for each, source in zip(result, sources, strict=True)
        )
    sources = _listed(inputs)
    if any(hasattr(source, "_rewrapped") for source in sources):  # the gradient of a nested tensor is nested
        result = tuple(
            source._rewrapped(each) if hasattr(source, "_rewrapped") and type(each) is _C.Tensor else each
            for each, source in zip(result, sources, strict=True)
        )
    return result


def __getattr__(name):
    if name in ("forward_ad", "functional", "profiler", "profiler_util"):
        import importlib

        return importlib.import_module(f"mica.autograd.{name}")
    if name in ("forward_ad", "profiler_legacy", "variable"):
        import importlib

        return importlib.import_module(f"mica.autograd.{name}")
    if name == "DeviceType":
        from mica.autograd._profile_times import DeviceType

        return DeviceType
    if name == "_profiler_enabled":
        return _C._profiler_recording
    if name == "_disable_profiler":
        return lambda: None
    if name in ("kineto_available", "_kineto_step", "_supported_activities"):
        return lambda *args: name == "kineto_available"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
