// Layers as functions under Python's names: nn::functional::relu(x). Losses are in mica/nn/loss.h; what is also a
// function of mica is the same one here.
#pragma once

#include "mica/layers.h"
#include "mica/nn/dims.h"

namespace mica::nn::functional {

#define MICA_SAME(name) using mica::name;
MICA_SAME(affine_grid)
MICA_SAME(avg_pool1d)
MICA_SAME(avg_pool2d)
MICA_SAME(avg_pool3d)
MICA_SAME(bilinear)
MICA_SAME(celu)
MICA_SAME(celu_)
MICA_SAME(channel_shuffle)
MICA_SAME(conv1d)
MICA_SAME(conv2d)
MICA_SAME(conv3d)
MICA_SAME(conv_tbc)
MICA_SAME(conv_transpose1d)
MICA_SAME(conv_transpose2d)
MICA_SAME(conv_transpose3d)
MICA_SAME(cosine_similarity)
MICA_SAME(elu)
MICA_SAME(elu_)
MICA_SAME(gelu)
MICA_SAME(glu)
MICA_SAME(grid_sample)
MICA_SAME(gumbel_softmax)
MICA_SAME(hardshrink)
MICA_SAME(hardsigmoid)
MICA_SAME(hardsigmoid_)
MICA_SAME(hardswish)
MICA_SAME(hardswish_)
MICA_SAME(hardtanh)
MICA_SAME(hardtanh_)
MICA_SAME(interpolate)
MICA_SAME(leaky_relu)
MICA_SAME(leaky_relu_)
MICA_SAME(linear)
MICA_SAME(local_response_norm)
MICA_SAME(lp_pool1d)
MICA_SAME(lp_pool2d)
MICA_SAME(lp_pool3d)
MICA_SAME(max_pool1d)
MICA_SAME(max_pool2d)
MICA_SAME(max_pool3d)
MICA_SAME(mish)
MICA_SAME(mish_)
MICA_SAME(normalize)
MICA_SAME(one_hot)
MICA_SAME(pad)
MICA_SAME(pairwise_distance)
MICA_SAME(pdist)
MICA_SAME(pixel_shuffle)
MICA_SAME(pixel_unshuffle)
MICA_SAME(prelu)
MICA_SAME(relu)
MICA_SAME(relu6)
MICA_SAME(relu6_)
MICA_SAME(relu_)
MICA_SAME(rrelu_)
MICA_SAME(scaled_dot_product_attention)
MICA_SAME(selu)
MICA_SAME(selu_)
MICA_SAME(sigmoid)
MICA_SAME(silu)
MICA_SAME(silu_)
MICA_SAME(softmin)
MICA_SAME(softplus)
MICA_SAME(softshrink)
MICA_SAME(softsign)
MICA_SAME(tanh)
MICA_SAME(tanhshrink)
MICA_SAME(threshold)
MICA_SAME(threshold_)
MICA_SAME(upsample)
MICA_SAME(upsample_bilinear)
MICA_SAME(upsample_nearest)
#undef MICA_SAME

inline Tensor logsigmoid(const Tensor& x) { return log_sigmoid(x); }
inline Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}) {
  return mica::softmax(x, dim, dtype);
}
inline Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}) {
  return mica::log_softmax(x, dim, dtype);
}
inline Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false) {
  return functional_rrelu(x, lower, upper, training);
}

#define MICA_DROPOUT(name, by_default)                                              \
  inline Tensor name(const Tensor& x, double p = 0.5, bool training = by_default) { \
    return functional_##name(x, p, training);                                       \
  }
MICA_DROPOUT(dropout, true)
MICA_DROPOUT(dropout1d, true)
MICA_DROPOUT(dropout2d, true)
MICA_DROPOUT(dropout3d, true)
MICA_DROPOUT(alpha_dropout, false)
MICA_DROPOUT(feature_alpha_dropout, false)
#undef MICA_DROPOUT

inline Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx = {},
                        std::optional<double> max_norm = {}, double norm_type = 2, bool scale_grad_by_freq = false) {
  return functional_embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq);
}

inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                         double momentum = 0.1, double eps = 1e-5) {
  return functional_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps);
}
inline Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                            const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                            double momentum = 0.1, double eps = 1e-5) {
  return functional_instance_norm(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps);
}
inline Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                         double eps = 1e-5) {
  return functional_group_norm(x, num_groups, weight, bias, eps);
}
inline Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return functional_layer_norm(x, normalized_shape, weight, bias, eps);
}
inline Tensor rms_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {},
                       std::optional<double> eps = {}) {
  return functional_rms_norm(x, normalized_shape, weight, eps);
}

// Patches of images as columns, and their sum back in place.
inline Tensor unfold(const Tensor& x, const Dims& kernel_size, const Dims& dilation = 1, const Dims& padding = 0,
                     const Dims& stride = 1) {
  return im2col(x, kernel_size.expand(2, "kernel_size"), dilation.expand(2, "dilation"), padding.expand(2, "padding"),
                stride.expand(2, "stride"));
}
inline Tensor fold(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const Dims& dilation = 1,
                   const Dims& padding = 0, const Dims& stride = 1) {
  return col2im(x, output_size.expand(2, "output_size"), kernel_size.expand(2, "kernel_size"),
                dilation.expand(2, "dilation"), padding.expand(2, "padding"), stride.expand(2, "stride"));
}

// The largest values, with and without where they were; and what takes the size of its result.
#define MICA_POOLS(n)                                                                                                \
  inline std::tuple<Tensor, Tensor> max_pool##n##d_with_indices(                                                     \
      const Tensor& x, IntArrayRef kernel_size, std::optional<IntArrayRef> stride = {},                              \
      IntArrayRef padding = IntArrayRef{0}, IntArrayRef dilation = IntArrayRef{1}, bool ceil_mode = false) {         \
    return functional_max_pool##n##d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, true);       \
  }                                                                                                                  \
  inline Tensor max_unpool##n##d(const Tensor& x, const Tensor& indices, IntArrayRef kernel_size,                    \
                                 std::optional<IntArrayRef> stride = {}, IntArrayRef padding = IntArrayRef{0},       \
                                 std::optional<IntArrayRef> output_size = {}) {                                      \
    return functional_max_unpool##n##d(x, indices, kernel_size, stride, padding, output_size);                       \
  }                                                                                                                  \
  inline std::tuple<Tensor, Tensor> adaptive_max_pool##n##d_with_indices(const Tensor& x, const Dims& output_size) { \
    return mica::adaptive_max_pool##n##d(x, output_size.expand(n, "output_size"));                                   \
  }                                                                                                                  \
  inline Tensor adaptive_max_pool##n##d(const Tensor& x, const Dims& output_size) {                                  \
    return std::get<0>(adaptive_max_pool##n##d_with_indices(x, output_size));                                        \
  }                                                                                                                  \
  inline Tensor adaptive_avg_pool##n##d(const Tensor& x, const Dims& output_size) {                                  \
    return mica::adaptive_avg_pool##n##d(x, output_size.expand(n, "output_size"));                                   \
  }
MICA_POOLS(1)
MICA_POOLS(2)
MICA_POOLS(3)
#undef MICA_POOLS

}  // namespace mica::nn::functional
