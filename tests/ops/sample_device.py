"""Samples of operations on a device beside the CPU."""

import mica
from sample_runner import Evaluator

# These read the storage, whatever the strides of the tensor say, and a copy to a device has another one.
STORAGE = {"as_strided", "as_strided_scatter"}
# Functions whose results differ from device to device, or are addresses and the like.
RANDOM = (
    "rand", "normal", "bernoulli", "dropout", "multinomial", "poisson", "binomial", "exponential", "cauchy", "geometric",
    "uniform", "random", "rrelu", "empty", "init_", "gumbel",
)  # fmt: skip


def is_random(sample):
    return any(word in sample.op for word in RANDOM)


class OnDevice(Evaluator):
    """Tensors are made on the CPU, from the same numbers, and moved."""

    device = "cuda"

    def make(self, shape, draw, dtype):
        return super().make(shape, draw, dtype).to(self.device)

    def run(self, text):
        with mica.device(self.device):
            return super().run(text)

    def floating(self, shape, low, high):
        with mica.device("cpu"):
            return super().floating(shape, low, high)

    def I(self, *shape):  # noqa: E743
        with mica.device("cpu"):
            return super().I(*shape)

    def B(self, *shape):
        with mica.device("cpu"):
            return super().B(*shape)

    def X(self, *shape, high):
        with mica.device("cpu"):
            return super().X(*shape, high=high)

    def C(self, *shape):
        with mica.device("cpu"):
            return super().C(*shape)
