"""torch's own database of operators (702 of them, with sample inputs and wrong inputs) as a judge of Mica.

`torch.testing._internal` makes inputs as torch tensors. They are carried over with their strides, offsets and
requires_grad, the operator runs on both libraries, and what comes out is compared: structure, dtype, shape, values.

MICA_TEST_DEVICE=cuda lays Mica's tensors on that device; torch computes on the CPU all the same.
"""

import dataclasses
import os
import types

import mica
import torch

DEVICE = os.environ.get("MICA_TEST_DEVICE", "cpu")

TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (3e-3, 3e-3),
    torch.complex128: (1e-9, 1e-9),
    torch.complex64: (2e-5, 2e-5),
}


# Arguments that both libraries want on the CPU, whatever the device of the first.
HOST_ARGUMENTS = ("tensor_split",)

# Functions of their own module that the database's wrappers call.
HELPERS = ("loss_reference_reduction_wrapper",)


class Absent(Exception):
    """Mica has no function of this name."""


def in_mica(value):
    """The Mica counterpart of a torch object, or of a structure of them."""
    if isinstance(value, torch.Tensor):
        return tensor_in_mica(value)
    if isinstance(value, torch.dtype):
        return getattr(mica, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return mica.device(DEVICE if value.type == "cpu" else str(value))
    if isinstance(value, torch.memory_format | torch.layout):
        return getattr(mica, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.PairwiseDistance):
        return mica.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    if type(value).__name__ == "LinearCrossEntropyOptions":  # torch 2.11 has no such class
        fields = (f for f in dataclasses.fields(value) if f.init)
        return mica.nn.LinearCrossEntropyOptions(**{f.name: in_mica(getattr(value, f.name)) for f in fields})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(in_mica, value))
    if isinstance(value, list | tuple):
        return type(value)(map(in_mica, value))
    if isinstance(value, dict):
        return {k: in_mica(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(in_mica(value.start), in_mica(value.stop), in_mica(value.step))
    return value


def tensor_in_mica(tensor):
    """A Mica tensor with its own storage that has the strides and the offset of `tensor`."""
    if tensor.layout != torch.strided:
        return sparse_in_mica(tensor)
    if tensor.device.type == "meta":
        like = {"dtype": in_mica(tensor.dtype), "device": "meta", "requires_grad": tensor.requires_grad}
        return mica.empty_strided(tuple(tensor.shape), tensor.stride(), **like)
    plain = tensor.detach().resolve_conj().resolve_neg()
    dtype = in_mica(tensor.dtype)
    if not plain.numel():
        like = {"dtype": dtype, "device": DEVICE, "requires_grad": tensor.requires_grad}
        return mica.empty_strided(tuple(plain.shape), plain.stride(), **like)
    reach = plain.storage_offset() + sum((n - 1) * s for n, s in zip(plain.shape, plain.stride(), strict=True)) + 1
    bytes_of_it = mica.from_dlpack(torch.as_strided(plain, (reach,), (1,), 0).clone().view(torch.uint8))
    storage = bytes_of_it.clone().to(DEVICE).view(dtype)
    ours = storage.as_strided(tuple(plain.shape), plain.stride(), plain.storage_offset())
    return ours.requires_grad_(tensor.requires_grad)


def sparse_in_mica(tensor):
    """The same indices, values and size; a leaf of its own."""
    plain = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        indices, values = tensor_in_mica(plain._indices()), tensor_in_mica(plain._values())
        ours = mica.sparse_coo_tensor(indices, values, tuple(tensor.shape), is_coalesced=tensor.is_coalesced())
    else:
        by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        outer, inner = ("crow", "col") if by_rows else ("ccol", "row")
        parts = [getattr(plain, f"{part}_indices")() for part in (outer, inner)]
        ours = mica.sparse_compressed_tensor(
            *map(tensor_in_mica, [*parts, plain.values()]), tuple(tensor.shape), layout=in_mica(tensor.layout)
        )
    return ours.requires_grad_(tensor.requires_grad)


def in_torch(value):
    """The torch counterpart of what Mica returned."""
    if isinstance(value, mica.Tensor) and value.layout != mica.strided:
        return in_torch(value.detach().to_dense())
    if isinstance(value, mica.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        dtype = getattr(torch, str(value.dtype).rsplit(".", 1)[-1])
        if not plain.numel():
            return torch.empty(tuple(plain.shape), dtype=dtype)
        return torch.from_dlpack(plain.reshape(-1).view(mica.uint8)).clone().view(dtype).reshape(tuple(plain.shape))
    if isinstance(value, mica.dtype):
        return getattr(torch, str(value).rsplit(".", 1)[-1])
    if isinstance(value, list | tuple):
        return tuple(map(in_torch, value))
    if isinstance(value, dict):
        return {k: in_torch(v) for k, v in value.items()}
    return value


def resolve(root, dotted):
    for name in dotted.split("."):
        try:
            root = getattr(root, name)
        except AttributeError:
            raise Absent(dotted) from None
    return root


def seeded(function, *args, **kwargs):
    """Mica's counterpart of the database's `wrapper_set_seed`."""
    mica.manual_seed(42)
    return function(*args, **kwargs)


WORLDS = {}


def with_mica(function):
    """A Python function of the database that finds Mica where it says torch, as do the functions it calls."""
    theirs = function.__globals__
    world = WORLDS.get(id(theirs))
    if world is None:
        world = WORLDS[id(theirs)] = {**theirs, "torch": mica, "wrapper_set_seed": seeded}
        for name, value in theirs.items():
            if name in HELPERS:
                world[name] = with_mica(value)
    copy = types.FunctionType(function.__code__, world, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def function_in_mica(function, dotted):
    """Mica's function of the same name."""
    if isinstance(function, types.FunctionType) and function.__module__.startswith("torch.testing"):
        return with_mica(function)
    if dotted == "slice":  # torch.ops.aten.slice; torch.slice is no function
        return mica.ops.aten.slice
    if dotted.startswith("torch."):
        return resolve(mica, dotted.removeprefix("torch."))
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType) or dotted.startswith("__"):
        return resolve(mica.Tensor, dotted if dotted.startswith("__") else function.__name__)
    return resolve(mica, dotted)


def assert_same(ours, theirs, where=""):
    """Same structure, dtypes, shapes and values; NaN equals NaN."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, mica.Tensor), f"{where}: {type(ours).__name__} where torch has a tensor"
        assert str(ours.layout).rsplit(".", 1)[-1] == str(theirs.layout)[6:], f"{where}: {ours.layout}, {theirs.layout}"
        rtol, atol = TOLERANCE.get(theirs.dtype, (0, 0))
        assert tuple(ours.shape) == tuple(theirs.shape), f"{where}: shape {tuple(ours.shape)}, {tuple(theirs.shape)}"
        assert str(ours.dtype).rsplit(".", 1)[-1] == str(theirs.dtype)[6:], f"{where}: {ours.dtype}, {theirs.dtype}"
        plain = theirs.detach().resolve_conj().resolve_neg()
        if theirs.layout != torch.strided:
            assert ours._nnz() == theirs._nnz(), f"{where}: {ours._nnz()} elements, {theirs._nnz()}"
            plain = plain.to_dense()
        torch.testing.assert_close(
            in_torch(ours), plain, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{where}: {m}"
        )
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} results, {len(theirs)}"
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}[{i}]")
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, float):
        assert ours == theirs or (ours != ours and theirs != theirs) or abs(ours - theirs) <= 1e-6 * abs(theirs), where
    else:
        assert in_torch(ours) == theirs, f"{where}: {ours!r}, {theirs!r}"


def names_gpu(sample):
    """Whether torch would make its result on a GPU, which a machine of the tests may have."""
    return any(
        str(value).startswith("cuda")
        for value in (*sample.args, *sample.kwargs.values())
        if isinstance(value, str | torch.device)
    )


def samples_of(op, dtype, requires_grad=False, at_most=20):
    """The database's sample inputs, evenly thinned where there are many."""
    torch.manual_seed(0)
    samples = [s for s in op.sample_inputs("cpu", dtype, requires_grad=requires_grad) if not names_gpu(s)]
    return samples[:: -(-len(samples) // at_most)] if samples else []


def call_both(op, sample):
    """What torch and Mica make of a sample: results, or the exception that torch raised."""
    ours = function_in_mica(op.op, op.name)
    inputs = in_mica((sample.input, sample.args, sample.kwargs))  # before torch may change its own
    if op.name in HOST_ARGUMENTS:
        inputs = (inputs[0], tuple(t.cpu() if isinstance(t, mica.Tensor) else t for t in inputs[1]), inputs[2])
    torch.manual_seed(0)
    try:
        theirs = op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception as e:
        return e, None, inputs
    mica.manual_seed(0)
    return theirs, ours(inputs[0], *inputs[1], **inputs[2]), inputs


def tensors_in(value):
    if isinstance(value, torch.Tensor | mica.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


def replaced(value, places, given):
    """The structure, with given[places[id(t)]] in the place of every tensor t that has one."""
    if isinstance(value, mica.Tensor):
        return given[places[id(value)]] if id(value) in places else value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(replaced(v, places, given) for v in value)
    if isinstance(value, dict):
        return {k: replaced(v, places, given) for k, v in value.items()}
    return value


def weighted_sum(results, weights):
    total = 0
    for result, weight in zip(results, weights, strict=True):
        term = (result * weight).sum()
        total = total + (term.real if term.is_complex() else term)
    return total


def gradients(library, results, weights, inputs):
    """Of the weighted sum of all results that require grad; zeros where an input plays no part."""
    found = library.autograd.grad(weighted_sum(results, weights), inputs, allow_unused=True)
    return [library.zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True)]
