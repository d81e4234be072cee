"""PowerSGD: a matrix of gradients is sent as the product of two thin ones (Vogels and others, 2019).

A step of power iteration finds the factors: P = M Q, averaged over the processes and made orthogonal, then Q = M^T P,
averaged. What the factors do not hold stays on the process as its error and is added to its next gradient.
"""

import mica
from mica.distributed.algorithms.ddp_comm_hooks.default_hooks import _average

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """The state of the hook: the rank of the factors, the step from which it compresses, and this process's factors and
    errors."""

    def __init__(
        self, process_group, matrix_approximation_rank=1, start_powerSGD_iter=1_000, min_compression_rate=2,
        use_error_feedback=True, warm_start=True, orthogonalization_epsilon=0, random_seed=0,
        compression_stats_logging_frequency=10_000, batch_tensors_with_same_shape=False,
    ):  # fmt: skip
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD "
                "can only be applied after the first two iterations in DDP."
            )
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        # All processes draw the same numbers.
        self.generator = mica.Generator().manual_seed(random_seed)
        self.error_dict, self.p_memory_dict, self.q_memory_dict = {}, {}, {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape

    def __getstate__(self):
        """All but the group, which belongs to a process."""
        return {name: value for name, value in self.__dict__.items() if name != "process_group"}

    def __setstate__(self, state):
        from mica.distributed.distributed_c10d import _get_default_group

        self.process_group = _get_default_group()
        self.__dict__.update(state)

    def maybe_increase_iter(self, bucket):
        """Counts a pass when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self):
        """How many times fewer numbers were sent, and the numbers before and after."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after


def _orthogonalize(matrices, epsilon):
    """Makes the columns of each matrix orthogonal and of length one, in place."""
    if epsilon == 0 and matrices.dtype in (mica.float32, mica.float64):
        matrices.copy_(mica.linalg.qr(matrices)[0])
        return
    for i in range(matrices.shape[-1]):
        column = matrices[..., i : i + 1]
        column /= mica.linalg.vector_norm(column, dim=-2, keepdim=True) + epsilon
        if i + 1 < matrices.shape[-1]:
            rest = matrices[..., i + 1 :]
            rest -= (column * rest).sum(-2, keepdim=True) * column


def _fresh(state, like):
    drawn = mica.randn(like.shape, generator=state.generator, dtype=mica.float32)
    like.copy_(drawn)


def _sum(tensor, group):
    from mica.distributed import all_reduce

    all_reduce(tensor, group=group)
    return tensor


def _factor(state, matrix, key):
    """The matrix as the mean of all processes' has it in `rank` columns; the number of elements that were sent."""
    from mica.distributed import get_world_size

    n, m = matrix.shape
    rank = min(n, m, state.matrix_approximation_rank)
    size = get_world_size(state.process_group)
    known = state.warm_start and key in state.q_memory_dict
    if known:
        q = state.q_memory_dict[key]
    else:
        q = state.q_memory_dict[key] = matrix.new_empty(m, rank)
        _fresh(state, q)
    _orthogonalize(q, state.orthogonalization_epsilon)
    p = mica.matmul(matrix, q)
    _sum(p, state.process_group)
    _orthogonalize(p, state.orthogonalization_epsilon)
    mica.matmul(matrix.t(), p, out=q)
    _sum(q, state.process_group)
    q /= size
    state.p_memory_dict[key] = p
    return mica.matmul(p, q.t()), p.numel() + q.numel()


def _done(tensor):
    future = mica.futures.Future()
    future.set_result(tensor)
    return future


def powerSGD_hook(state, bucket):
    """Sends each matrix of the bucket as two factors, and all other gradients unchanged."""
    from mica.distributed import get_world_size

    starting = state.iter < state.start_powerSGD_iter
    state.maybe_increase_iter(bucket)
    buffer = bucket.buffer()
    if starting:
        return _average(state.process_group, buffer)
    size = get_world_size(state.process_group)
    index = bucket.index()
    if state.use_error_feedback:
        error = state.error_dict.get(index)
        if error is None or error.numel() != buffer.numel():
            state.error_dict[index] = mica.zeros_like(buffer)
        else:
            buffer.add_(error)
        wanted = buffer.clone()
    plain = []
    for number, gradient in enumerate(bucket.gradients()):
        matrix = gradient.reshape(gradient.shape[0], -1) if gradient.dim() else gradient.reshape(1, 1)
        n, m = matrix.shape
        rank = min(n, m, state.matrix_approximation_rank)
        if gradient.dim() < 2 or (n + m) * rank * state.min_compression_rate >= n * m:
            plain.append(gradient)
            continue
        result, sent = _factor(state, matrix, (index, number))
        gradient.copy_(result.view(gradient.shape))
        state.total_numel_before_compression += n * m
        state.total_numel_after_compression += sent
    if state.use_error_feedback:
        mica.sub(wanted, buffer, out=state.error_dict[index])  # zero for gradients that are sent unchanged
    for gradient in plain:
        dense = gradient.contiguous()
        _sum(dense, state.process_group)
        gradient.copy_(dense.div_(size))
        state.total_numel_before_compression += gradient.numel()
        state.total_numel_after_compression += gradient.numel()
    return _done(buffer)


def batched_powerSGD_hook(state, bucket):
    """Sends the whole bucket as one square matrix: faster and less exact."""
    starting = state.iter < state.start_powerSGD_iter
    state.maybe_increase_iter(bucket)
    buffer = bucket.buffer()
    if starting:
        return _average(state.process_group, buffer)
    index, count = bucket.index(), buffer.numel()
    side = int(count**0.5)
    side += side * side < count
    padded = buffer.new_zeros(side * side)
    padded[:count] = buffer
    if state.use_error_feedback:
        error = state.error_dict.get(index)
        if error is not None and error.numel() == padded.numel():
            padded.add_(error)
        wanted = padded.clone()
    result, sent = _factor(state, padded.view(side, side), index)
    if state.use_error_feedback:
        state.error_dict[index] = wanted - result.reshape(-1)
    state.total_numel_before_compression += count
    state.total_numel_after_compression += sent
    buffer.copy_(result.reshape(-1)[:count])
    return _done(buffer)
