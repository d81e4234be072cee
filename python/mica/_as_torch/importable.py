"""The names that torch has, Mica lacks, and packages import at their top all the same: each may be imported, none used.

The list is short, and complete: a name of torch's that is neither in Mica nor here does not exist, for `import`, `hasattr`
and use alike. A name belongs here if a package imports it where it cannot do without, and never uses it in a program
that runs on Mica. Each row gives the module, its names, and who imports them for what.
"""

LISTED = [
    # Sharding over processes.
    ("distributed._composable.fsdp.fully_shard", "FSDPModule", "opacus asks whether a model is sharded, by the oldest name"),
    # Kernels for GPUs that are written in another language.
    ("_higher_order_ops.inline_asm_elementwise", "inline_asm_elementwise", "torchao has kernels for Blackwell"),
    ("sparse._triton_ops", "broadcast_batch_dims launch_kernel prepare_inputs ptr_stride_extractor tile_to_blocksize",
     "torchao has kernels in Triton for sparse weights"),
    ("sparse._triton_ops_meta", "get_meta minimize update", "torchao has kernels in Triton for sparse weights"),
    # Code that torch's compiler has made.
    ("_inductor.codecache", "", "nequip imports the module before it opens packages of machine code"),
    # Types of TorchScript's.
    ("", "DeviceObjType TensorType", "pytorch-forecasting and open_clip annotate functions with them"),
    ("_C", "Block Graph JitType ListType Node OptionalType ScriptClass ScriptObject TensorType TupleType Value",
     "counters of operations annotate functions with them"),
    ("onnx.symbolic_opset11", "select squeeze unsqueeze", "torchvision says how TorchScript's exporter writes its operators"),
]  # fmt: skip
