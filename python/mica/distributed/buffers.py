"""Tensors as memory that an engine reads and writes."""

import itertools

import mica


def _is_plain(tensor):
    return (
        tensor.is_cpu
        and tensor.layout is mica.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


class _Buffers:
    """Tensors as memory of the CPU. What is no such memory is copied, and results are copied back when they are there."""

    def __init__(self):
        self.kept, self.back = [], []

    def read(self, tensor):
        if _is_plain(tensor):
            return tensor
        if tensor.layout is not mica.strided:
            raise RuntimeError(f"collectives take dense tensors, but got one of layout {tensor.layout}")
        plain = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
        self.kept.append(plain)
        return plain

    def write(self, tensor, fill=False):
        """Memory for a result; with `fill`, of what is in the tensor now."""
        if _is_plain(tensor):
            return tensor
        if tensor.layout is not mica.strided:
            raise RuntimeError(f"collectives take dense tensors, but got one of layout {tensor.layout}")
        plain = mica.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        if fill:
            with mica.no_grad():
                plain.copy_(tensor)
        self.kept.append(plain)
        self.back.append((tensor, plain))
        return plain

    def finish(self):
        with mica.no_grad():
            for tensor, plain in self.back:
                tensor.detach().copy_(plain)


def _memory(tensors):
    return tuple(itertools.chain.from_iterable((each.data_ptr(), each.nbytes) for each in tensors))
