"""From masked layers to quantized sparse ones, which are absent."""

__all__ = ["get_dynamic_sparse_quantized_mapping", "get_static_sparse_quantized_mapping"]


def _absent():
    raise NotImplementedError(
        "torch.ao.nn.sparse, quantized layers that skip zero blocks, is absent: squash the masks and quantize the layers"
    )


def get_static_sparse_quantized_mapping():
    """Absent: raises."""
    _absent()


def get_dynamic_sparse_quantized_mapping():
    """Absent: raises."""
    _absent()
