"""How far the numbers of an exported model are from those of the module."""

import dataclasses
import math

import mica
from mica.utils._pytree import tree_leaves

__all__ = ["VerificationInfo", "verify_onnx_program"]

_EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10, 1000000)


@dataclasses.dataclass
class VerificationInfo:
    """The differences of one result: the largest ones, and how many there are of which size."""

    name: str
    max_abs_diff: float
    max_rel_diff: float
    abs_diff_hist: tuple
    rel_diff_hist: tuple
    expected_dtype: mica.dtype
    actual_dtype: mica.dtype

    @classmethod
    def from_tensors(cls, name, expected, actual):
        """The differences of two tensors or numbers."""
        expected, actual = (
            x.detach().cpu() if isinstance(x, mica.Tensor) else mica.tensor(x) for x in (expected, actual)
        )
        dtypes = expected.dtype, actual.dtype
        if expected.numel() == 0 or actual.numel() == 0:
            absolute = relative = mica.tensor(math.inf)
        else:
            if expected.dtype == mica.bool:
                expected, actual = expected.float(), actual.float()
            if expected.is_complex():
                expected = mica.view_as_real(expected)
            absolute = (expected - actual).abs()
            relative = absolute / (expected.abs() + 1e-7)
        histograms = (mica.histogram(each.float(), bins=mica.tensor(_EDGES)) for each in (absolute, relative))
        return cls(name, absolute.max().item(), relative.max().item(), *histograms, *dtypes)

    def asdict(self):
        """The differences as plain lists, numbers and texts."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("abs_diff_hist", "rel_diff_hist"):
            plain[name] = [part.tolist() for part in plain[name]]
        return plain | {name: str(plain[name]) for name in ("expected_dtype", "actual_dtype")}


def verify_onnx_program(onnx_program, args=None, kwargs=None, compare_intermediates=False):
    """Run the model and the module that it was exported from, on the example of the export if no arguments are given."""
    if compare_intermediates:
        raise NotImplementedError("verify_onnx_program: values between the operations have no names to compare them by")
    expected, found = both_results(onnx_program, args, kwargs)
    names = [each.name for each in onnx_program.model_proto.graph.output]
    return [VerificationInfo.from_tensors(*row) for row in zip(names, expected, found, strict=True)]


def both_results(program, args, kwargs, backend="onnxruntime"):
    """The results of the module and of the model."""
    if program._source is None:
        raise ValueError("The ONNX program does not know the module that it was exported from.")
    model, example = program._source
    if args is None and kwargs is None:
        args, kwargs = example
    args, kwargs = args or (), kwargs or {}
    was_training = getattr(model, "training", False)
    try:
        if was_training:
            model.eval()
        with mica.no_grad():
            expected = [leaf for leaf in tree_leaves(model(*args, **kwargs)) if isinstance(leaf, mica.Tensor)]
    finally:
        if was_training:
            model.train()
    run = program if backend == "onnxruntime" else program.call_reference
    return expected, run(*(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, mica.Tensor)))
