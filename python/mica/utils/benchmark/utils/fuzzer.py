"""Random inputs."""

from mica.utils.benchmark.fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias, dtype_size, prod

__all__ = ["FuzzedParameter", "FuzzedTensor", "Fuzzer", "ParameterAlias", "dtype_size", "prod"]
