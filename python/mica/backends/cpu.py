"""What the processor can do."""


def get_cpu_capability():
    """The instructions that kernels use here, by torch's names: AVX512, AVX2, or DEFAULT for all others."""
    from mica import _C

    return {"AVX3": "AVX512", "AVX2": "AVX2"}.get(_C._build_info()["cpu_target"], "DEFAULT")
