"""Functions that no __torch_function__ is asked about, and functions with the parameters of those that it is."""

import functools
import inspect
import types

import mica

# The public names, by where they are, of the functions that take no tensors, make them of numbers, or are types' own.
_IGNORED = {
    "Tensor": """__delitem__ __dir__ __hash__ __init_subclass__ __iter__ __new__ __subclasshook__ __torch_dispatch__
        __torch_function__ as_subclass eig lstsq new new_empty new_empty_strided new_full new_ones new_tensor new_zeros
        reinforce solve stride symeig to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc
        to_sparse_csr unflatten""",
    "": """arange are_deterministic_algorithms_enabled as_strided as_tensor asarray autocast_decrement_nesting
        autocast_increment_nesting bartlett_window blackman_window broadcast_shapes can_cast clear_autocast_cache compile
        cond empty empty_permuted empty_quantized empty_strided eye fill from_dlpack from_file from_numpy frombuffer full
        get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_default_device get_default_dtype
        get_deterministic_debug_mode get_device_module get_float32_matmul_precision get_num_interop_threads
        get_num_threads get_rng_state hamming_window hann_window initial_seed is_anomaly_check_nan_enabled
        is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled
        is_deterministic_algorithms_warn_only_enabled is_grad_enabled is_inference_mode_enabled is_storage is_tensor
        is_warn_always_enabled kaiser_window linspace load logspace manual_seed normal ones promote_types rand rand_like
        randint randint_like randn randn_like randperm range result_type save scalar_tensor seed set_anomaly_enabled
        set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype
        set_autocast_enabled set_autocast_gpu_dtype set_default_device set_default_dtype set_default_tensor_type
        set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_interop_threads
        set_num_threads set_printoptions set_rng_state set_warn_always sparse_bsc_tensor sparse_bsr_tensor
        sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sym_fresh_size tensor
        thread_safe_generator tril_indices triu_indices typename use_deterministic_algorithms vander vmap zeros""",
    "fft": "fftfreq rfftfreq",
    "nn.functional": """boolean_dispatch grouped_mm handle_torch_function hardsigmoid hardswish has_torch_function
        has_torch_function_unary has_torch_function_variadic scaled_grouped_mm scaled_mm sigmoid tanh upsample
        upsample_bilinear upsample_nearest""",
    "nn.init": """calculate_gain constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform
        xavier_normal xavier_uniform""",
}


@functools.cache
def ignored():
    """The functions of the table, as a frozen set."""
    found = set()
    for place, names in _IGNORED.items():
        owner = functools.reduce(getattr, place.split("."), mica) if place else mica
        found.update(getattr(owner, name) for name in names.split() if hasattr(owner, name))
    return frozenset(found)


def _count_of_positional(signature):
    return sum(each.kind is not each.KEYWORD_ONLY for each in signature.parameters.values())


def _merged(signatures):
    """One signature for a function of several overloads: the one with the most parameters.

    What another overload does without has a default.
    """
    longest = max(signatures, key=lambda each: (len(each.parameters), -_count_of_positional(each)))
    needed = set.intersection(*(set(each.parameters) for each in signatures))
    parameters, has_default = [], False
    for each in longest.parameters.values():
        each = each.replace(annotation=each.empty)
        if each.kind is not each.KEYWORD_ONLY:
            has_default |= each.default is not each.empty or each.name not in needed
        optional = has_default or each.kind is each.KEYWORD_ONLY
        parameters.append(each.replace(default=None) if optional and each.default is each.empty else each)
    return inspect.Signature(parameters)


def _writes_out(schema):
    return any(
        each.kwarg_only and each.alias_info is not None and each.alias_info.is_write for each in schema.arguments
    )


def _signature(function, is_method):
    """The parameters of a function, as far as they are known."""
    from mica.fx.operator_schemas import get_signature_for_torch_op

    kinds = inspect.Parameter
    if getattr(function, "__name__", "") == "__get__":
        return inspect.Signature([kinds("self", kinds.POSITIONAL_OR_KEYWORD)])
    try:
        return inspect.signature(function)
    except ValueError:
        pass
    except TypeError:
        return None
    found, schemas = get_signature_for_torch_op(function, return_schemas=True)
    if found:  # forms that write into tensors have an "out" of their own below
        plain = [each for each, schema in zip(found, schemas, strict=True) if not _writes_out(schema)]
        found = plain or found
    if not found:
        rest = [kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)]
        return inspect.Signature([kinds("self", kinds.POSITIONAL_OR_KEYWORD), *rest] if is_method else rest)
    merged = _merged(found)
    parameters = list(merged.parameters.values())
    if is_method:
        if parameters[0].name == "input":
            parameters[0] = parameters[0].replace(name="self")
        return merged.replace(parameters=parameters)
    if "out" not in merged.parameters:
        parameters.append(kinds("out", kinds.KEYWORD_ONLY, default=None))
    return merged.replace(parameters=parameters)


def _stand_in(signature):
    def stand_in(*args, **kwargs):
        signature.bind(*args, **kwargs)
        return -1

    stand_in.__signature__ = signature
    return stand_in


def stand_ins(functions_by_owner):
    """A dict: functions, and functions with the same parameters that return -1."""
    found = {}
    for owner, functions in functions_by_owner.items():
        for function in functions:
            if function in ignored() or isinstance(function, types.ModuleType):
                continue
            signature = _signature(function, owner is mica.Tensor)
            if signature is not None:
                found.setdefault(function, _stand_in(signature))
    return found
