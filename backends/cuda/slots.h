// The slots of both kernel tables that this backend fills; the function of a slot has its name, in mica::cuda. Other
// slots are either composed of other operations or refused by name (tests/cuda/test_slots.py lists which).
#pragma once

// clang-format off
#define MICA_CUDA_SLOTS(X) \
  /* numbers one by one */ \
  X(abs) X(acos) X(acosh) X(add) X(addcdiv) X(addcmul) X(angle) X(asin) X(asinh) X(atan) X(atan2) X(atanh) \
  X(bitwise_and) X(bitwise_left_shift) X(bitwise_not) X(bitwise_or) X(bitwise_right_shift) X(bitwise_xor) X(ceil) \
  X(clamp) X(clamp_max) X(clamp_min) X(complex) X(conj_physical) X(copy) X(copysign) X(cos) X(cosh) X(deg2rad) \
  X(digamma) X(div) X(div_floor) X(div_trunc) X(elu) X(elu_backward) X(eq) X(erf) X(erfc) X(erfinv) X(exp) X(exp2) \
  X(expm1) X(fill) X(floor) X(fmax) X(fmin) X(fmod) X(frac) X(frexp_exponent) X(frexp_mantissa) X(gcd) X(ge) X(gelu) \
  X(gelu_backward) X(gt) X(hardshrink) X(hardshrink_backward) X(hardsigmoid) X(hardsigmoid_backward) X(hardswish) \
  X(hardswish_backward) X(hardtanh) X(hardtanh_backward) X(heaviside) X(hypot) X(i0) X(igamma) X(igammac) X(isfinite) \
  X(isinf) X(isnan) X(isneginf) X(isposinf) X(lcm) X(le) X(leaky_relu) X(leaky_relu_backward) X(lerp) X(lgamma) X(log) \
  X(log10) X(log1p) X(log2) X(log_sigmoid) X(log_sigmoid_backward) X(logaddexp) X(logaddexp2) X(logical_and) \
  X(logical_not) X(logical_or) X(logical_xor) X(logit) X(logit_backward) X(lt) X(masked) X(masked_fill) X(maximum) \
  X(minimum) X(mish) X(mish_backward) X(mul) X(nan_to_num) X(ne) X(neg) X(nextafter) X(polar) X(polygamma) X(pow) \
  X(prelu) X(rad2deg) X(reciprocal) X(relu) X(remainder) X(round) X(round_decimals) X(rsqrt) X(rsub) X(sgn) X(sigmoid) \
  X(sigmoid_backward) X(sign) X(signbit) X(silu) X(silu_backward) X(sin) X(sinc) X(sinh) X(softplus) \
  X(softplus_backward) X(softshrink) X(special_entr) X(special_erfcx) X(special_i0e) X(special_i1) X(special_i1e) \
  X(special_log_ndtr) X(special_ndtr) X(special_ndtri) X(special_xlog1py) X(special_zeta) X(sqrt) X(sub) X(tan) X(tanh) \
  X(tanh_backward) X(threshold) X(threshold_backward) X(trunc) X(where) X(xlogy) \
  /* whole tensors */ \
  X(arange) X(bincount) X(cat) X(cummax) X(cummin) X(cumprod) X(cumsum) X(embedding_dense_backward) X(embedding_renorm) X(equal) \
  X(first_outside) X(gather) X(index) X(index_add) X(index_put) X(index_select) X(kthvalue) \
  X(linspace) X(log_softmax) X(log_softmax_backward) X(logcumsumexp) X(masked_scatter) \
  X(masked_select) X(matmul) X(median) X(mode) X(nonzero) X(nonzero_offsets) X(random_bernoulli) \
  X(random_bernoulli_each) X(random_binomial) X(random_cauchy) X(random_exponential) X(random_geometric) \
  X(random_integers) X(random_log_normal) X(random_multinomial) X(random_normal) X(random_permutation) \
  X(random_poisson) X(random_uniform) X(reduce_all) X(reduce_amax) X(reduce_amin) X(reduce_aminmax) X(reduce_any) \
  X(reduce_argmax) X(reduce_argmin) X(reduce_count_nonzero) X(reduce_logsumexp) X(reduce_max_with_index) \
  X(reduce_mean) X(reduce_min_with_index) X(reduce_nansum) X(reduce_norm) X(reduce_prod) X(reduce_sum) X(reduce_var) \
  X(scatter) X(searchsorted) X(softmax) X(softmax_backward) X(sort) X(topk) \
  X(triangle) X(unique)

#define MICA_CUDA_LAYER_SLOTS(X) \
  X(adadelta_step) X(adagrad_step) X(adam_step) X(adamax_step) X(adaptive_avg_pool) X(adaptive_avg_pool_backward) \
  X(adaptive_max_pool) X(advance_counters) X(asgd_step) X(attention_backward) X(attention_forward) X(avg_pool) \
  X(avg_pool_backward) X(batch_norm) X(batch_norm_backward) X(cdist) X(cdist_backward) X(col2im) X(convolution) \
  X(convolution_input_gradient) X(convolution_weight_gradient) X(cross_entropy) X(cross_entropy_backward) X(ctc_loss) \
  X(ctc_loss_backward) X(dequantize) X(embedding_bag) X(fft_c2c) X(fft_c2r) X(fft_many) X(fft_r2c) X(fractional_max_pool) X(grid_sample) X(grid_sample_backward) X(group_norm) \
  X(group_norm_backward) X(im2col) X(int8_mm) X(layer_norm) X(layer_norm_backward) X(max_pool) X(nadam_step) X(nll_loss) X(nll_loss_backward) X(pad_edges) \
  X(pad_edges_backward) X(pair_loss) X(pair_loss_backward) X(pdist) X(pdist_backward) X(plane_gather) \
  X(plane_scatter) X(plane_scatter_add) X(quantize) X(radam_step) X(rms_norm) X(rms_norm_backward) X(rmsprop_step) X(rprop_step) X(scaled_matmul) X(sgd_step) \
  X(special_bessel_j0) X(special_bessel_j1) X(special_bessel_y0) X(special_bessel_y1) \
  X(special_chebyshev_polynomial_t) X(special_chebyshev_polynomial_u) X(special_chebyshev_polynomial_v) \
  X(special_chebyshev_polynomial_w) X(special_hermite_polynomial_h) X(special_hermite_polynomial_he) \
  X(special_laguerre_polynomial_l) X(special_legendre_polynomial_p) X(special_shifted_chebyshev_polynomial_t) \
  X(special_shifted_chebyshev_polynomial_u) X(special_shifted_chebyshev_polynomial_v) \
  X(special_shifted_chebyshev_polynomial_w) X(special_spherical_bessel_j0) \
  X(dirichlet_grad) X(linalg_cholesky) X(linalg_cholesky_inverse) X(linalg_cholesky_solve) X(linalg_eig) \
  X(linalg_eigh) X(linalg_geqrf) X(linalg_inverse) X(linalg_ldl_factor) X(linalg_ldl_solve) X(linalg_lstsq) \
  X(linalg_lu_factor) X(linalg_lu_solve) X(linalg_orgqr) X(linalg_ormqr) X(linalg_svd) X(linalg_triangular_solve) \
  X(random_dirichlet) X(random_standard_gamma) X(recurrent_backward) X(recurrent_forward) X(sparse_add_at_keys) X(sparse_compress) X(sparse_csr_mm) \
  X(sparse_expand_rows) X(sparse_group_keys) X(sparse_keys) X(sparse_pack) X(sparse_sampled_mm) \
  X(sparse_scatter_rows) X(sparse_sum_groups) X(sparse_unflatten_keys) X(special_airy_ai) \
  X(special_modified_bessel_k0) X(special_modified_bessel_k1) X(special_scaled_modified_bessel_k0) \
  X(special_scaled_modified_bessel_k1) X(standard_gamma_grad) \
  X(unscale_on_device) X(update_scale_on_device) X(upsample) X(upsample_backward) X(vdot)
// clang-format on
