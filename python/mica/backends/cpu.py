"""What the processor can do."""


def get_cpu_capability():
    """The instructions that torch would use, by its names."""
    import platform

    return "DEFAULT" if platform.machine() in ("aarch64", "arm64") else "AVX2"
