"""Small parts that packages take from here."""


def _sync_module_states(
    module, process_group, broadcast_bucket_size, src, params_and_buffers_to_ignore, broadcast_buffers=True
):
    """Give every process the parameters and buffers of one."""
    from mica.distributed.collectives import broadcast

    ignored = params_and_buffers_to_ignore or ()
    tensors = [t.detach() for name, t in module.named_parameters() if name not in ignored]
    if broadcast_buffers:
        tensors += [t.detach() for name, t in module.named_buffers() if name not in ignored]
    for each in tensors:
        broadcast(each, group=process_group, group_src=src)


def _verify_param_shape_across_processes(process_group, tensors, logger=None):
    """Raise an error if processes have parameters of other shapes."""
    from mica.distributed.object_collectives import all_gather_object
    from mica.distributed.world import get_world_size

    shapes = [None] * get_world_size(process_group)
    all_gather_object(shapes, [tuple(each.shape) for each in tensors], process_group)
    for rank, other in enumerate(shapes):
        if other != shapes[0]:
            raise RuntimeError(
                f"[rank {rank}]: params appear not to match: they have the shapes {other}, and {shapes[0]} on rank 0"
            )


def _to_kwargs(inputs, kwargs, target_device, use_side_stream_for_tensor_copies=False):
    import mica
    from mica.utils._pytree import tree_map_only

    return tree_map_only(mica.Tensor, lambda tensor: tensor.to(target_device), ((inputs,), (kwargs or {},)))
