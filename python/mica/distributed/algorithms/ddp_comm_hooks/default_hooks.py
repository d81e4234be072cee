"""Hooks that average gradients, as they are or in 16 bits."""

import mica

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]


def _average(group, tensor):
    from mica.distributed import all_reduce, get_world_size

    tensor.div_(get_world_size(group))
    return all_reduce(tensor, group=group, async_op=True).get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group, bucket):
    """The mean over all processes."""
    return _average(process_group, bucket.buffer())


def _compressed(group, bucket, dtype):
    buffer = bucket.buffer()

    def restore(done):
        buffer.copy_(done.value())
        return buffer

    return _average(group, buffer.to(dtype, copy=True)).then(restore)


def fp16_compress_hook(process_group, bucket):
    """The mean over all processes, sent as float16."""
    return _compressed(process_group, bucket, mica.float16)


def bf16_compress_hook(process_group, bucket):
    """The mean over all processes, sent as bfloat16."""
    return _compressed(process_group, bucket, mica.bfloat16)


def _wrapped(hook, dtype):
    def compressed(state, bucket):
        wide = bucket.buffer()
        bucket.set_buffer(wide.to(dtype))

        def restore(done):
            result = done.value()
            wide.copy_(result[0] if isinstance(result, (list, tuple)) else result)
            return wide

        return hook(state, bucket).then(restore)

    return compressed


def fp16_compress_wrapper(hook):
    """The hook with gradients in float16."""
    return _wrapped(hook, mica.float16)


def bf16_compress_wrapper(hook):
    """The hook with gradients in bfloat16."""
    return _wrapped(hook, mica.bfloat16)
