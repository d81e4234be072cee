"""What is not run of the examples in torch's docstrings, and what may differ, each with its reason."""

# Statements that are not run. Statements that need them then have no name to read, on either side.
SKIPPED_STATEMENTS = {
    r"torch\.cuda|\bcuda\b|torch\.(xpu|mtia|mps)\b|'(cuda|hpu|xpu|mps)": "needs another device",
    r"torch\.(compile|jit|export|onnx|_dynamo|fx\.experimental|package)\b|make_fx|\bopcheck\b": "needs torch.compile, TorchScript or torch.export",
    r"_jit_set_autocast_mode|_jit_internal": "needs TorchScript",
    r"torch\.distributed|\bdist\.|DistributedDataParallel|DistributedSampler|\brpc\b|init_process_group": "needs processes",
    r"hub\.|urlopen|https?://": "needs the network",
    r"torchvision|torchdata|torchtext|triton|matplotlib|\bplt\b|\bax\b|tensorboard|tabulate|scipy|sympy": "needs another package",
    r"pdb|input\(\)|sleep\(": "asks or waits",
    r"\.seed\(\)|num_workers=12": "differs from run to run",
}
# Docstrings that are not run.
NOT_RUN = {
    r"torch\.ao\.nn\.(quantized|quantized\.dynamic)\.Conv(Transpose)?3d": "convolves for half a minute",
    r"torch\.nn\.attention\.flex_attention\.create_block_mask|torch\.while_loop|torch\.utils\.debug_log\..*": "torch compiles it first, for half a minute",
    r"torch\.(autograd\.)?profiler\..*|torch\.utils\.benchmark\..*": "times, and events within torch's operators",
    r"torch\.(Event|Stream)(\..*)?": "the CPU has none in torch; in Mica they are those of its one queue",
    r"torch\.utils\.(generate_methods_for|rename)_privateuse1_backend": "another way to bring a backend (docs/backends.md)",
    r"torch\.autograd\.detect_anomaly": "the trace names files",
}
# (docstring, words of the difference, why)
EXCUSES = [
    # Results that are computed in one piece, or in other pieces, have other nodes and other strides; values are
    # compared.
    (
        r"torch\.(ao\.nn\.quantized\..*|einsum|fft\.i?[hr]fft[2n]|func\.(hessian|jacfwd)|linalg\.(lu_)?solve|nested\..*"
        r"|nn\.attention\.bias\..*|nn\.utils\.(convert_conv3d_weight_memory_format|parametrizations\.orthogonal)"
        r"|nn\.utils\.rnn\.unpa(ck|d)_sequence|quantized_batch_norm|triangular_solve|unravel_index)",
        r"\.(stride|offset): ",
        "torch promises no strides of what it makes anew",
    ),
    (
        r"torch\.(ao\.nn\.(quantizable|quantized\.dynamic)\..*|func\.grad|nested\.as_nested_tensor|nn\.InstanceNorm\dd"
        r"|nn\.(CrossEntropy|L1|LinearCrossEntropy|NLL|SoftMargin)Loss|nn\.(RNN|LSTMCell)|nn\.functional\.cross_entropy"
        r"|nn\.utils\.parametrizations\.orthogonal|sparse\.mm)",
        r"grad_fn: ",
        "the last operation of something composed is another one",
    ),
    (
        r"torch\.(nn\.RMSNorm|sparse\.mm|nn\.utils\.parametrizations\.orthogonal)",
        r"shows .*grad_fn=",
        "as above, printed",
    ),
    (r".*", r"undescribed", "a fake, masked or uninitialized tensor refuses NumPy in other words"),
    # Rounding decides.
    (
        r"torch\.(qr|linalg\.lu_solve|fft\.hfft2|fft\.hfftn)",
        r"torch\.allclose",
        "elements near zero; the products are compared above it",
    ),
    (r"torch\.linalg\.norm", r"norm\(B\.double\(\), -2\)", "the least singular value of a singular matrix"),
    (r"torch\.nn\.Unfold", r"conv2d\(inp, w\) - out", "a rounding error"),
    (
        r"torch\.nn\.CTCLoss",
        r"input\.grad: values",
        "differences of probabilities near 1, by three of their last digits",
    ),
    # Decisions of docs/differences.md.
    (r"torch\.sort", r"x\.sort\(\)", "always stable"),
    (
        r"torch\.func\.grad",
        r"is_leaf",
        "gradients have a history where the function depends on more than its arguments",
    ),
    (r"torch\.nested\..*", r"nt\.shape|\.type: ", "sizes and strided nested tensors have classes of their own"),
    (
        r"torch\.ao\.nn\.(quantizable\.LSTM(Cell)?|quantized\.FloatFunctional)",
        r"(rnn|f_add): ",
        "FloatFunctional shows its observer when it has one",
    ),
    (
        r"torch\.ao\.quantization\..*",
        r"not in Mica yet|_with_args|_with_callable_args|get_combined_dict",
        "the FX flow and its helpers are absent",
    ),
    (
        r"torch\.ao\.nn\..*",
        r"nn\.(qat|intrinsic)\.Linear|m\[_packed_params",
        "Mica's older names hold all of the newer; the first weight is zero",
    ),
    (
        r"torch\.ao\.nn\.quantized\.(LSTM|Embedding.*)",
        r"custom_module_config|num_embeddings|NameError|did not change|printed",
        "made from modules, not from sizes",
    ),
    (
        r"torch\.ao\.nn\.quantized\.ConvTranspose\w+",
        r"output|'h = ",
        "torch's example has a kernel of two dimensions for one",
    ),
    (r"torch\.utils\.data\.datapipes\..*", r"", "data pipes belong to torchdata, and are absent"),
    (
        r"torch\.utils\.checkpoint\.(Selective|create_selective).*",
        r"create_selective_checkpoint_contexts|context_fn",
        "absent",
    ),
    (r"torch\.overrides\.(get_ignored_functions|get_testing_overrides|redispatch_function)", r"", "absent"),
    (
        r"torch\.fx\.traceback\..*|torch\.autograd\.(enforce_grad_layout_policy|graph\.region_activation_memory_budget)",
        r"",
        "absent",
    ),
    (r"torch\.nn\.attention\..*", r"flash_attention_impl|varlen_attn", "kernels of other packages; absent"),
    (r"torch\.nn\.attention\.sdpa_kernel", r"scaled_dot_product_attention changed", "it is an object of the engine"),
    (r"torch\.nn\.attention\.bias\..*", r"attn_bias", "torch's holds memory that nobody writes"),
    (r"torch\.sparse\.to_sparse_semi_structured", r"", "CUDA's alone; absent"),
    (r"torch\.quantize_per_tensor", r"quantize_per_tensor\(\[", "a list of tensors is not taken"),
    # Words and names.
    (r"torch\.\w*Tensor\.to_sparse", r"blocksize", "other words"),
    (
        r"torch\.(linalg\.solve_ex|fft\.ihfft[2n])",
        r"error .*(solve_ex|i?h?fft[2n]?)\(\)",
        "the name without its family",
    ),
    (r"torch\.nn\.(Fold|Unfold)", r"unfold\(\)", "the function's name, not the operator's"),
    (r"torch\.vmap", r"built-in function dot", "functions are those of a module"),
    (r"torch\.futures\..*", r"Future", "the class is torch.futures.Future"),
    (r"torch\.nn\.modules\.batchnorm\.LazyModuleMixin", r"_IncompatibleKeys", "as above"),
    (r"torch\.func\.linearize", r"warnings", "torch's warning is of a graph of its own"),
    (r"torch\.ldexp", r"warnings", "torch's warning is of an output of its own"),
    (r"torch\.serialization\.safe_globals", r"get_safe_globals", "torch begins with classes of its own"),
    (r"torch\.sparse\.mm", r"coalesced", "the gradient is coalesced"),
    (
        r"torch\.library\..*",
        r"register_vmap|library\.impl\(|register_autocast|f did not change|numpy_mul_vmap",
        "registrations return the function",
    ),
    (
        r"torch\.library\.(get_kernel|Library\.register_symm_mem_args)",
        r"",
        "operators of the table have no kernels of their own to hand out",
    ),
    (r"torch\.cpu\.get_capabilities", r"", "the instruction set that was chosen, not the processor's list"),
    (
        r"torch\.nn\.utils\.rnn\.unpad_sequence",
        r"padded_sequences did not change",
        "torch turns the caller's tensor around",
    ),
    (r"torch\.fx\.replace_pattern", r"Match", "the anchor is the node that matched"),
    (r"torch\.autograd\.graph\.saved_tensors_hooks", r"acking", "saved in the order of the arguments"),
    (r"torch\.optim\.swa_utils\.AveragedModel", r"invalid combination", "the words of the device's constructor"),
    (r"torch\.utils\.flop_counter\.ModuleTracker", r"Current modules", "a set, printed"),
    (r"torch\.utils\.ThroughputBenchmark", r"", "there is none: it is for modules of TorchScript"),
    (
        r"torch\.linalg\.solve_triangular",
        r"torch\.allclose\(A @ X, B\)",
        "an element near zero: which library is nearer to float64 changes with the numbers",
    ),
    (
        r"torch\.nn\.functional\.ctc_loss",
        r"log_probs\.grad",
        "sums of exponentials over 50 steps: both gradients are as far from float64's",
    ),
    (r"torch\.ao\.quantization\.fake_quantize\.Module\.to", r"Complex modules", "torch asks for reports to itself"),
]
