"""ONNX files: a module is run once on example inputs, and what it computes is written down.

Every call of an operation is seen (TorchFunctionMode) and becomes nodes of ONNX's opset. Branches and loops of Python are
those of the run; torch.cond is an If. Sizes are those of the example, apart from axes that are declared dynamic: shapes,
slices and ranges follow these, and a graph with another number that depends on one is refused.
"""

import inspect
import os

import mica
from mica._functions.families import own_name
from mica.onnx import branches, operations_of_layers, operations_of_pools, operations_of_shapes  # noqa: F401 - what they write
from mica.onnx._state import OnnxExporterError, TrainingMode, exporting, producer_name, producer_version, writers
from mica.onnx.custom import custom_domains, symbolic_of, write_symbolic
from mica.onnx.decompositions import DECOMPOSED
from mica.onnx.graph import Writer, _onnx, data_type
from mica.onnx.inputs import dynamic_axes_of, inputs_of, with_telling_sizes
from mica.onnx.operations import write
from mica.onnx.own_operators import decomposition, own_operator, write_own
from mica.onnx.programs import as_functional, program_inputs
from mica.overrides import TorchFunctionMode
from mica.utils._pytree import tree_leaves

_OPSET = 18
_CHECKED_BYTES = 2**31 - 2**24  # the checker takes models whose message is below 2 GiB


class _Recorder(TorchFunctionMode):
    _sees_operators = False

    def __init__(self, writer):
        super().__init__()
        self.writer = writer

    def __torch_function__(self, func, types, args=(), kwargs=None):
        func, args, kwargs = as_functional(func, args, kwargs or {})
        name = own_name(func)
        symbolic = symbolic_of(func, self.writer.opset)
        if symbolic is not None:
            out = func(*args, **kwargs)
            write_symbolic(self.writer, symbolic, func, args, kwargs, out)
            return out
        own = own_operator(func)
        if own is not None:
            body = decomposition(own, self.writer.opset)
            if body is not None:
                with self:
                    return body(*args, **kwargs)
            out = func(*args, **kwargs)
            write_own(self.writer, own, args, kwargs, out)
            return out
        if name in DECOMPOSED:
            with self:
                made = DECOMPOSED[name](*args, **kwargs)
            return self._in_place(made, *args, **kwargs) if _is_in_place(DECOMPOSED[name], args, kwargs) else made
        out = func(*args, **kwargs)
        write(self.writer, func, args, kwargs, out)
        return out

    def _in_place(self, made, input, *args, **kwargs):
        """The result of a function that was told to change its input."""
        input.copy_(made)
        if self.writer.known(made):
            self.writer.forget_sharers(input)
            self.writer.bind(input, self.writer.value(made))
        return input


def _is_in_place(function, args, kwargs):
    return "inplace" in inspect.signature(function).parameters and bool(
        inspect.signature(function).bind(*args, **kwargs).arguments.get("inplace")
    )


def _save(model, destination, beside):
    """Write a model. With `beside`, larger weights go to a file of their own, as torch does for files with a path."""
    if not beside or not isinstance(destination, (str, os.PathLike)):
        _onnx().save(model, destination)
        return
    path = os.path.abspath(os.fspath(destination))
    written = _onnx().ModelProto()
    written.CopyFrom(model)  # the weights that are written beside it are taken out of the model
    if os.path.exists(f"{path}.data"):
        os.remove(f"{path}.data")  # onnx would append to it
    location = f"{os.path.basename(path)}.data"
    _onnx().save_model(written, path, save_as_external_data=True, location=location, size_threshold=256)


class ONNXProgram:
    """A module as ONNX: `model_proto`, and `save`."""

    def __init__(self, model_proto, source=None, exported_program=None):
        self.model_proto = model_proto
        self._source = source  # the module, and the arguments of the export
        self.exported_program = exported_program  # None: the module itself was written, not a program of torch.export

    @property
    def model(self):
        return self.model_proto

    def save(self, destination, *, include_initializers=True, keep_initializers_as_inputs=False, external_data=None):
        """Write the file; with external_data the weights go to a file of their own beside it."""
        if not include_initializers or keep_initializers_as_inputs:
            raise NotImplementedError(
                "ONNXProgram.save: only files with their weights, which are no inputs, are written"
            )
        _save(self.model_proto, destination, external_data)

    def _named(self, names, args, kwargs):
        """The inputs of a call by their names, as arrays."""
        if unknown := sorted(set(kwargs) - set(names)):
            raise TypeError(f"the program has no input {unknown[0]!r}: its inputs are {names}")
        given = dict(zip([name for name in names if name not in kwargs], args, strict=False)) | kwargs
        if len(given) != len(args) + len(kwargs) or len(given) != len(names):
            raise TypeError(f"the program has {len(names)} inputs, but {len(args) + len(kwargs)} were given")
        return {name: value.detach().numpy() for name, value in given.items()}

    def call_reference(self, *args, **kwargs):
        """The results by the evaluator of the package onnx, slow and exact."""
        from onnx.reference import ReferenceEvaluator

        given = self._named([each.name for each in self.model_proto.graph.input], args, kwargs)
        return [mica.as_tensor(out) for out in ReferenceEvaluator(self.model_proto).run(None, given)]

    def __call__(self, *args, **kwargs):
        import onnxruntime

        session = onnxruntime.InferenceSession(self.model_proto.SerializeToString())
        given = self._named([each.name for each in session.get_inputs()], args, kwargs)
        return [mica.from_numpy(out) for out in session.run(None, given)]


def _run(model, bound, writer, tensors, names):
    """Run a module and write down what it computes; returns its result."""
    for name, (_, tensor) in zip(names, tensors, strict=True):
        writer.name_tensor(tensor, name)
    exporting[0], before, writers[:] = True, writers[:], [writer]
    try:
        with mica.no_grad(), _Recorder(writer):
            return model(*bound.args, **bound.kwargs)
    finally:
        exporting[0], writers[:] = False, before


def _written(model, bound, tensors, names, axes, make_writer):
    """(the graph, the inputs that it was written for, the result). Where axes are dynamic, the graph is written for several
    sizes: it serves all sizes if nothing in it differs."""
    kept, tries, told = dict(bound.arguments), [], []
    for attempt in range(3):
        writer = make_writer()
        bound.arguments.update(kept)
        sized = with_telling_sizes(writer, bound, tensors, names, axes, attempt)
        result = _run(model, bound, writer, sized, names)
        for leaf in tree_leaves(result):
            if isinstance(leaf, mica.Tensor):
                writer.value(leaf)
        tries.append((writer, sized, result))
        if not writer.dynamic or (attempt and writer.is_like(tries[-2][0])):
            return tries[-1]
        told = told or list(writer.dynamic.values())
    axis = ", ".join(f"{at} of {name}" for name, at in told)
    raise OnnxExporterError(
        f"a number in the graph depends on a size that is declared dynamic (axis {axis}), and would be that of the example: "
        f"{tries[-1][0].difference_from(tries[-2][0])}. Compute it with tensors, or leave the axis fixed"
    )


def export(
    model, args=(), f=None, *, kwargs=None, verbose=None, input_names=None, output_names=None, opset_version=None,
    dynamo=None, external_data=True, dynamic_shapes=None, dynamic_axes=None, training=TrainingMode.EVAL,
    do_constant_folding=True, export_params=True, keep_initializers_as_inputs=False, custom_opsets=None,
    operator_export_type=None, fallback=False, optimize=True, verify=False, report=False, profile=False,
    dump_exported_program=False, artifacts_dir=".", custom_translation_table=None, export_modules_as_functions=False,
    autograd_inlining=True,
):  # fmt: skip
    """Write a module as an ONNX file of opset 17 or later; returns an ONNXProgram.

    Weights of 256 bytes or more go to a file beside it (`f` with ".data" after it), unless `external_data` or `dynamo` is
    False.
    There is one exporter, which leaves constants as the program computes them and nodes as they are written:
    `fallback`, `do_constant_folding`, `optimize`, `operator_export_type` and `autograd_inlining` change nothing, nor do
    `verbose` and `artifacts_dir`, since nothing is reported.
    """
    refused = {
        "export_params=False": not export_params, "verify": verify, "report": report, "profile": profile,
        "dump_exported_program": dump_exported_program, "custom_translation_table": custom_translation_table,
        "export_modules_as_functions": export_modules_as_functions,
    }  # fmt: skip
    if asked := [name for name, value in refused.items() if value]:
        raise NotImplementedError(f"torch.onnx.export: {', '.join(asked)} is not in Mica yet")
    onnx = _onnx()
    opset = _OPSET if opset_version is None else opset_version
    if opset < 17:
        raise OnnxExporterError(f"opset {opset} is not written here: 17 and later are")
    source = None
    if isinstance(model, mica.export.ExportedProgram):
        source, model, args, kwargs, dynamic_shapes = program_inputs(model, args, kwargs, dynamic_shapes)
        training = TrainingMode.PRESERVE
    bound, tensors = inputs_of(model, args, kwargs)
    is_module = isinstance(model, mica.nn.Module)
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())} if is_module else {}
    names = list(input_names or [])
    names += [name for name, _ in tensors][len(names) :]
    axes = dynamic_axes_of(dynamic_axes, names, dynamic_shapes, bound)
    was_training = is_module and model.training
    if is_module and training != TrainingMode.PRESERVE:
        model.train(training == TrainingMode.TRAINING)
    try:
        writer, tensors, result = _written(model, bound, tensors, names, axes, lambda: Writer(dict(weights), opset))
    finally:
        if is_module:
            model.train(was_training)
    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, mica.Tensor)]
    graph_outputs = []
    for i, tensor in enumerate(results):
        name = output_names[i] if output_names and i < len(output_names) else f"output_{i}"
        writer.add_named("Identity", [writer.value(tensor)], [name])
        labels = axes.get(name, {})
        shape = [labels.get(axis) or _label(writer, axes, size) for axis, size in enumerate(tensor.shape)]
        graph_outputs.append(onnx.helper.make_tensor_value_info(name, data_type(tensor.dtype), shape))
    graph_inputs = [
        onnx.helper.make_tensor_value_info(
            name,
            data_type(tensor.dtype),
            [axes.get(name, {}).get(axis, size) for axis, size in enumerate(tensor.shape)],
        )
        for name, (_, tensor) in zip(names, tensors, strict=True)
    ]
    if keep_initializers_as_inputs:
        graph_inputs += [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in writer.initializers.items()
        ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in writer.initializers.items()]
    graph = onnx.helper.make_graph(writer.nodes, "main_graph", graph_inputs, graph_outputs, weights)
    versions = {"": opset, **custom_domains(writer), **(custom_opsets or {})}
    made = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()],
        producer_name=producer_name,
        producer_version=producer_version,
    )
    made.ir_version = min(made.ir_version, 10)
    if sum(array.nbytes for array in writer.initializers.values()) < _CHECKED_BYTES:
        onnx.checker.check_model(made)
    if f is not None:
        _save(made, f, external_data and dynamo is not False)
    return ONNXProgram(made, (model, (bound.args, bound.kwargs)), source)


def _label(writer, axes, size):
    """A size of a result, by the label of the dynamic axis that it comes from."""
    if size in writer.dynamic:
        name, axis = writer.dynamic[size]
        return axes[name][axis]
    return size
