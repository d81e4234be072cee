"""How a backend that wants graphs of aten's operators, forward and backward, is made."""

__all__ = ["aot_autograd"]


def aot_autograd(
    fw_compiler, bw_compiler=None, partition_fn=None, decompositions=None, inference_compiler=None, **options
):
    """A backend of torch.compile that hands the forward and the backward graph to compilers."""
    from mica._functorch.aot_autograd import aot_module_simplified

    def backend(gm, example_inputs, **more):
        return aot_module_simplified(
            gm, example_inputs, fw_compiler=fw_compiler, bw_compiler=bw_compiler, partition_fn=partition_fn,
            decompositions=decompositions, inference_compiler=inference_compiler,
        )  # fmt: skip

    return backend
