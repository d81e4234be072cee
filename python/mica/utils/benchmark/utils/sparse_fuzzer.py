"""Random sparse inputs."""

from mica.utils.benchmark.fuzzer import FuzzedSparseTensor

__all__ = ["FuzzedSparseTensor"]
