"""What the processor can do: the instructions that Mica's kernels use here."""

from mica.backends.cpu import get_cpu_capability as _capability


def _is_avx2_supported():
    return _capability() in ("AVX2", "AVX512")


def _is_avx512_supported():
    return _capability() == "AVX512"
