"""Compilers of graphs of aten's operators: those that run them as they are."""

__all__ = [
    "debug_compile",
    "default_decompositions",  # noqa: F822
    "make_boxed_compiler",
    "make_boxed_func",
    "nop",
    "print_compile",
    "ts_compile",
]


def make_boxed_func(f):
    """A function that takes its arguments as one list, which it may empty."""

    def boxed(args):
        return f(*args)

    boxed._boxed_call = True
    return boxed


def make_boxed_compiler(compiler):
    """A compiler whose functions take their arguments as one list."""

    def compile(fx_g, inps):
        made = compiler(fx_g, inps)
        return made if getattr(made, "_boxed_call", False) else make_boxed_func(made)

    return compile


def nop(fx_g, _):
    """The graph as it is."""
    return make_boxed_func(fx_g.forward)


def print_compile(fx_g, _):
    """Prints the graph, and leaves it as it is."""
    print(fx_g.code)
    return fx_g


def debug_compile(fx_g, inps):
    """Prints the graph and the sizes of its inputs, and leaves it as it is."""
    print(fx_g.code)
    print([tuple(value.shape) if hasattr(value, "shape") else value for value in inps])
    return make_boxed_func(fx_g.forward)


def ts_compile(fx_g, inps):
    raise NotImplementedError("ts_compile makes TorchScript, which Mica does not have; nop runs the graph as it is")


_TAKEN_APART = ("detach", "gelu_backward", "leaky_relu_backward", "sigmoid_backward", "threshold_backward",
                "hardtanh_backward", "hardsigmoid_backward", "hardswish_backward", "tanh_backward", "silu_backward",
                "elu_backward", "masked_fill", "elu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid",
                "conj_physical")  # fmt: skip


def __getattr__(name):
    if name != "default_decompositions":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import mica
    from mica._decomp import decomposition_table, get_decompositions

    packets = [getattr(mica.ops.aten, each) for each in _TAKEN_APART]
    overloads = [getattr(packet, each) for packet in packets for each in packet.overloads()]
    globals()[name] = made = get_decompositions([each for each in overloads if each in decomposition_table])
    return made
