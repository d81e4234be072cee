"""The named tuples that operations with several results return: mica.return_types.sort and its like."""

from mica._C import _return_type

# Operations whose results are named tuples; those with "_out" write them into tensors.
_NAMES = [
    "aminmax",
    "cummax",
    "cummin",
    "frexp",
    "geqrf",
    "histogram",
    "kthvalue",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_eigh",
    "linalg_inv_ex",
    "linalg_ldl_factor",
    "linalg_ldl_factor_ex",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor",
    "linalg_lu_factor_ex",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve_ex",
    "linalg_svd",
    "lu_unpack",
    "max",
    "median",
    "min",
    "mode",
    "nanmedian",
    "qr",
    "slogdet",
    "sort",
    "svd",
    "topk",
    "triangular_solve",
]


def __getattr__(name):
    if name == "histogramdd":
        import mica

        return type(mica.histogramdd(mica.zeros(1, 1), [1]))
    if name == "all_return_types":
        return [_return_type(each + form) for each in _NAMES for form in ("", "_out")] + [__getattr__("histogramdd")]
    return _return_type(name)


def pytree_register_structseq(cls):
    """Let `torch.utils._pytree` take apart a class of named tuples, by position; those of torch's operations are known."""
    from mica.utils._pytree import SUPPORTED_NODES, SequenceKey, register_pytree_node

    if cls in SUPPORTED_NODES or cls.__module__ == "torch.return_types":
        raise ValueError(f"{cls} is already registered as pytree node.")
    register_pytree_node(
        cls,
        lambda value: (list(value), None),
        lambda values, context: cls(values),
        flatten_with_keys_fn=lambda value: ([(SequenceKey(i), each) for i, each in enumerate(value)], None),
    )
