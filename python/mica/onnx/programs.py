"""Programs of torch.export as what the exporter takes: a module, with the arguments of the example and the open sizes."""

import inspect

import mica
from mica._functions.families import is_functional, own_name
from mica.export.graph_signature import InputKind
from mica.nn import functional as F
from mica.onnx._state import OnnxExporterError

# ---- operators whose arguments are in another order than those of the function of their name


def _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=False):
    return F.batch_norm, (input, running_mean, running_var, weight, bias, training, momentum, eps), {}


def _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=False):
    return F.instance_norm, (input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps), {}


def _elu(input, alpha=1.0, scale=1, input_scale=1):
    if scale != 1 or input_scale != 1:
        raise OnnxExporterError(
            f"elu with a scale cannot be written as ONNX: scale is {scale} and input_scale {input_scale}. Multiply before "
            "and after elu instead"
        )
    return F.elu, (input, alpha), {}


def _softmax(function):
    return lambda input, dim, dtype=None: (function, (input, dim), {} if dtype is None else {"dtype": dtype})


def _slice(input, dim=0, start=None, end=None, step=1):
    index = (slice(None),) * (dim % input.dim()) + (slice(start, None if end == 2**63 - 1 else end, step),)
    return mica.Tensor.__getitem__, (input, index), {}


_IN_OTHER_ORDER = {"batch_norm": _batch_norm, "instance_norm": _instance_norm, "elu": _elu, "slice": _slice,
                   "softmax": _softmax(F.softmax), "log_softmax": _softmax(F.log_softmax)}  # fmt: skip


def as_functional(func, args, kwargs):
    """A call of an operator (torch.batch_norm) as the call of the function that the exporter knows by its name."""
    if not args and "input" in kwargs:  # operators of exported programs give it by name
        args, kwargs = (kwargs["input"],), {key: value for key, value in kwargs.items() if key != "input"}
    if is_functional(func) and "scale" not in kwargs:
        return func, args, kwargs
    adapt = _IN_OTHER_ORDER.get(own_name(func))
    if adapt is None or func in (mica.Tensor.softmax, mica.Tensor.log_softmax):
        return func, args, kwargs
    return adapt(*args, **kwargs)


class _Program(mica.nn.Module):
    """A program that names its inputs."""

    def __init__(self, program, names):
        super().__init__()
        self.inner = program.module(check_guards=False)
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        self.forward = self._forward
        object.__setattr__(self, "_signature", inspect.Signature(parameters))

    def _forward(self, *args):
        return self.inner(*args)

    def train(self, mode=True):
        return self  # a program stays as it was exported


def program_inputs(program, args, kwargs, dynamic_shapes):
    """(program, module, args, kwargs, dynamic_shapes) for the exporter."""
    if dynamic_shapes is not None:
        raise OnnxExporterError(
            "an exported program has its open sizes already: dynamic_shapes are torch.export's to take"
        )
    if not args and not kwargs:
        if program.example_inputs is None:
            raise OnnxExporterError("the exported program has no example inputs: give some as `args`")
        args, kwargs = program.example_inputs
    if kwargs:
        raise OnnxExporterError("torch.onnx.export writes exported programs whose inputs are positional")
    args = args if isinstance(args, (tuple, list)) else (args,)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = [spec.arg.name for spec in specs]
    if len(names) != len(args):
        raise OnnxExporterError("torch.onnx.export writes exported programs whose inputs are not nested")
    shapes = {}
    for name in names:
        sizes = getattr(nodes[name].meta.get("val"), "shape", ())
        shapes[name] = {i: str(size) for i, size in enumerate(sizes) if isinstance(size, mica.SymInt)}
    return program, _named(program, names), tuple(args), None, shapes


def _named(program, names):
    made = _Program(program, names)

    def forward(*args, **kwargs):
        return made._forward(*args, *(kwargs[name] for name in names[len(args) :]))

    forward.__signature__ = made._signature
    made.forward = forward
    return made
