"""Collectives that return their result: for a world of one, what goes in."""

import mica


class AsyncCollectiveTensor(mica.Tensor):
    """The result of a collective that may not be done yet: results are done when they are returned."""

    def wait(self):
        return self


def wait_tensor(tensor):
    return tensor


def _same(tensor, *args, **kwargs):
    return tensor.clone()


all_reduce = all_gather_tensor = reduce_scatter_tensor = broadcast = all_to_all_single = _same
all_to_all_single_autograd = all_gather_tensor_autograd = reduce_scatter_tensor_autograd = permute_tensor = _same
