"""Torch's compiler as a backend that gets graphs: torch.compile(backend=compile_fx), alone or within a program's own
backend."""

from mica._functorch.compilers import make_boxed_func

__all__ = ["compile_fx", "compile_fx_inner", "complex_memory_overlap"]


def _compiled(gm):
    from mica import _C

    if not callable(gm):
        raise RuntimeError(f"compile_fx expects a graph, but got {type(gm)}")
    return _C._CompiledCall(gm, False)


def _check(options):
    from mica._dynamo.compile_options import check_names

    check_names(None, options, "inductor")


def compile_fx(model_, example_inputs_, inner_compile=None, config_patches=None, decompositions=None,
               ignore_shape_env=False, **options):  # fmt: skip
    """A function that computes what a graph does, with its kernels run together.

    An `inner_compile` of the caller's own is handed the forward and the backward graph of aten's operators.
    """
    _check({**(config_patches or {}), **(options.get("options") or {})})
    if inner_compile is None or inner_compile is compile_fx_inner:
        return _compiled(model_)
    from mica._dynamo.backends.common import aot_autograd

    return aot_autograd(inner_compile, inner_compile, decompositions=decompositions)(model_, example_inputs_)


def compile_fx_inner(gm, example_inputs, **options):
    """Compiles a graph of aten's operators. The result takes its inputs as one list."""
    return make_boxed_func(_compiled(gm))


def complex_memory_overlap(t):
    """Whether dimensions of a tensor, besides expanded ones, may reach the same elements."""
    reach = 1
    for stride, size in sorted((stride, size) for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1):
        if stride == 0:
            continue
        if stride < reach:
            return True
        reach = stride * size
    return False
