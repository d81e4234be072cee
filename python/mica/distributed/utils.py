"""Small parts that packages take from here."""


def _sync_module_states(
    module, process_group, broadcast_bucket_size, src, params_and_buffers_to_ignore, broadcast_buffers=True
):
    """Nothing to send: there is one process."""


def _verify_param_shape_across_processes(process_group, tensors, logger=None):
    """Nothing to compare: there is one process."""


def _to_kwargs(inputs, kwargs, target_device, use_side_stream_for_tensor_copies=False):
    import mica
    from mica.utils._pytree import tree_map_only

    return tree_map_only(mica.Tensor, lambda tensor: tensor.to(target_device), ((inputs,), (kwargs or {},)))
