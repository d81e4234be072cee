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
    """Tensors as memory of the CPU. Other memory is copied first, and results are copied back when they are complete.

    Tensors of a GPU go through pinned memory, which it reads and writes by itself: copies are queued one behind the other,
    and waited for once, before the engine begins (`ready`) and when results are back (`finish`).
    """

    def __init__(self):
        self.kept, self.back, self.queued = [], [], set()

    def _space(self, tensor):
        plain = mica.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
        self.kept.append(plain)
        return plain

    def _fill(self, plain, tensor):
        with mica.no_grad():
            plain.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        if tensor.is_cuda:
            self.queued.add(tensor.device)

    def ready(self):
        """Waits until copies from a GPU are complete."""
        for device in self.queued:
            mica.cuda.current_stream(device).synchronize()
        self.queued.clear()

    def read(self, tensor):
        if _is_plain(tensor):
            return tensor
        if tensor.layout is not mica.strided:
            raise RuntimeError(f"collectives take dense tensors, but got one of layout {tensor.layout}")
        plain = self._space(tensor)
        self._fill(plain, tensor)
        return plain

    def write(self, tensor, fill=False):
        """Memory for a result; with `fill`, of what is in the tensor now."""
        if _is_plain(tensor):
            return tensor
        if tensor.layout is not mica.strided:
            raise RuntimeError(f"collectives take dense tensors, but got one of layout {tensor.layout}")
        plain = self._space(tensor)
        if fill:
            self._fill(plain, tensor)
        self.back.append((tensor, plain))
        return plain

    def finish(self):
        with mica.no_grad():
            for tensor, plain in self.back:
                tensor.detach().copy_(plain, non_blocking=tensor.is_cuda)
                if tensor.is_cuda:
                    self.queued.add(tensor.device)
        self.ready()


def _memory(tensors):
    return tuple(itertools.chain.from_iterable((each.data_ptr(), each.nbytes) for each in tensors))
