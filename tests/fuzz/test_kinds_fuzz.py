"""Every method of Tensor on every kind of tensor, with arguments that fit and arguments that do not.

A call ends in an answer or in an error that says something, in time; an error changes nothing of what was given. Names
that end in an underscore may change their own tensor, and only that.
"""

import os
import random

import mica as torch
import pytest
from call_runner import contents, run_all

ERRORS = (
    RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, OverflowError, AssertionError, AttributeError,
    KeyError, BufferError,
)  # fmt: skip


def dense():
    return torch.tensor([[1.0, 0.0, -2.0], [0.0, 3.0, 0.0]])


def nested():
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


def masked():
    return torch.masked.masked_tensor(dense(), dense() != 0)


def uncoalesced():
    return torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], [1.0, 2.0, 3.0], (2, 3))


def quantized_channels():
    return torch.quantize_per_channel(dense(), torch.tensor([0.5, 0.1]), torch.tensor([0, 3]), 0, torch.qint8)


KINDS = {
    "coo": lambda: dense().to_sparse(),
    "coo uncoalesced": uncoalesced,
    "coo hybrid": lambda: dense().to_sparse(1),
    "coo empty": lambda: torch.sparse_coo_tensor(size=(0, 3)),
    "coo complex": lambda: dense().to(torch.complex64).to_sparse(),
    "coo integers": lambda: dense().to(torch.int64).to_sparse(),
    "csr": lambda: dense().to_sparse_csr(),
    "csc": lambda: dense().to_sparse_csc(),
    "bsr": lambda: torch.ones(4, 6).to_sparse_bsr((2, 3)),
    "bsc": lambda: torch.ones(4, 6).to_sparse_bsc((2, 3)),
    "csr batch": lambda: torch.stack([dense(), dense()]).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(dense(), 0.1, 5, torch.quint8),
    "quantized int32": lambda: torch.quantize_per_tensor(dense(), 0.1, 0, torch.qint32),
    "quantized channels": quantized_channels,
    "named": lambda: dense().refine_names("a", "b"),
    "nested": nested,
    "masked": masked,
    "masked coo": lambda: masked().to_sparse(),
    "masked csr": lambda: masked().to_sparse_csr(),
    "conjugate": lambda: dense().to(torch.complex64).conj(),
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "needs grad": lambda: dense().to_sparse().requires_grad_(),
}
ARGUMENTS = {
    "none": lambda x: (),
    "zero": lambda x: (0,),
    "negative": lambda x: (-1,),
    "far": lambda x: (2**62,),
    "half": lambda x: (0.5,),
    "nan": lambda x: (float("nan"),),
    "two": lambda x: (0, 1),
    "three": lambda x: (0, 1, 2**40),
    "list": lambda x: ([1, 0],),
    "itself": lambda x: (x,),
    "like": lambda x: (x.clone(),),
    "dense": lambda x: (dense(),),
    "wrong shape": lambda x: (torch.ones(5),),
    "indices": lambda x: (0, torch.tensor([7, -9])),
    "other dtype": lambda x: (torch.ones(2, 3, dtype=torch.int64),),
    "two of them": lambda x: (x, x.clone()),
    "matrix": lambda x: (torch.ones(3, 2),),
    "sparse": lambda x: (torch.eye(3).to_sparse(),),
    "compressed": lambda x: (torch.eye(3).to_sparse_csr(),),
    "dtype": lambda x: (torch.float8_e5m2,),
    "text": lambda x: ("x",),
}
# Calls that end the process, wait for another one or change the world on purpose, and names that are not operations.
LEFT_OUT = {
    "cuda", "share_memory_", "pin_memory", "backward", "register_hook", "register_post_accumulate_grad_hook", "mro",
    "is_shared", "as_subclass",
}  # fmt: skip
METHODS = sorted(n for n in dir(torch.Tensor) if not n.startswith("_") and n not in LEFT_OUT)


def said(tensor):
    """Text that differs where a tensor does."""
    if isinstance(tensor, torch.masked.MaskedTensor):
        return said(tensor.get_data()) + said(tensor.get_mask())
    if tensor.device.type == "meta":
        return repr((tensor.shape, tensor.dtype))
    if tensor.is_nested:
        return contents(tensor.values())
    if tensor.is_quantized:
        return repr((tensor.int_repr().tolist(), tensor.qscheme()))
    if tensor.layout == torch.sparse_coo:
        return repr((tensor._indices().tolist(), tensor._values().tolist(), tensor.shape))
    if tensor.layout != torch.strided:
        return repr(tensor.to_dense().tolist()) + repr(tensor.shape)
    return contents(tensor.rename(None).resolve_conj())


def work(case):
    kind, method = case
    for name, arguments in ARGUMENTS.items():
        x = KINDS[kind]()
        given = list(arguments(x))
        tensors = [x, *(t for t in given if isinstance(t, torch.Tensor))]
        before = [said(t) for t in tensors]
        try:
            result = getattr(x, method)
            result = result(*given) if callable(result) else result
            if isinstance(result, torch.Tensor) and method not in ("data_ptr", "set_"):
                repr(result)
            continue
        except ERRORS as error:
            if not str(error):
                return {"finding": f"{kind}.{method}({name}): an error without words, {type(error).__name__}"}
            if "internal assert" in str(error).lower():
                return {"finding": f"{kind}.{method}({name}): {error}"}
        except Exception as error:
            return {"finding": f"{kind}.{method}({name}): {type(error).__name__}: {error}"}
        after = [said(t) for t in tensors]
        if after != before:
            return {"finding": f"{kind}.{method}({name}): a failed call has changed an argument"}
    return {}


# All 13,000 cases take a minute and more, so that the ordinary tests take a fifth of them.
EVERY = int(os.environ.get("MICA_FUZZ_EVERY", "5"))


@pytest.mark.filterwarnings("ignore")
def test_every_method_of_every_kind():
    cases = [(kind, method) for kind in KINDS for method in METHODS]
    random.Random(0).shuffle(cases)
    found = [(case, outcome) for case, outcome in run_all(cases[::EVERY], work, batch=2000) if "finding" in outcome]
    assert not found
