// Options as programs for libtorch write them: Conv2dOptions(3, 16, 5).stride(2).bias(false). The options themselves
// are Mica's structures; Settable gives a structure a setter and a getter for each member whose name torch knows.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "mica/nn/dims.h"
#include "mica/optim/number.h"

namespace torch {

// A choice among words: torch::kMean is Mica's "mean".
struct Word {
  const char* text;
  operator std::string() const { return text; }
};
inline constexpr Word kNone{"none"}, kMean{"mean"}, kSum{"sum"}, kBatchMean{"batchmean"}, kMax{"max"};
inline constexpr Word kZeros{"zeros"}, kReflect{"reflect"}, kReplicate{"replicate"}, kCircular{"circular"},
    kConstant{"constant"}, kSame{"same"}, kValid{"valid"}, kBorder{"border"};
inline constexpr Word kNearest{"nearest"}, kLinear{"linear"}, kBilinear{"bilinear"}, kBicubic{"bicubic"},
    kTrilinear{"trilinear"}, kArea{"area"}, kNearestExact{"nearest-exact"};
inline constexpr Word kReLU{"relu"}, kGELU{"gelu"}, kTanh{"tanh"}, kFanIn{"fan_in"}, kFanOut{"fan_out"};

namespace detail {

// What a setter takes for a member of type T: sizes without `optional`, so that they can be written in braces.
template <class T>
struct Given {
  using type = T;
};
template <>
struct Given<std::optional<mica::nn::Dims>> {
  using type = mica::nn::Dims;
};
template <>
struct Given<std::array<mica::optim::Number, 2>> {
  using type = std::tuple<double, double>;
};

template <class T>
void set_option(T& member, typename Given<T>::type value) {
  member = std::move(value);
}
inline void set_option(std::array<mica::optim::Number, 2>& member, std::tuple<double, double> value) {
  member = {std::get<0>(value), std::get<1>(value)};
}

// The type of Options::name, and of a name that it does not have a type that nobody can make.
class NotAnOption {
  NotAnOption() = default;
};
// clang-format off
#define TORCH_FOR_EACH_OPTION(F)                                                                                                   \
  F(stride) F(padding) F(dilation) F(groups) F(bias) F(padding_mode) F(output_padding) F(kernel_size)                              \
  F(ceil_mode) F(count_include_pad) F(divisor_override) F(output_size) F(output_ratio)                                             \
  F(eps) F(momentum) F(affine) F(track_running_stats) F(elementwise_affine) F(alpha) F(beta) F(k)                                  \
  F(num_layers) F(dropout) F(bidirectional) F(batch_first) F(proj_size) F(nonlinearity)                                            \
  F(padding_idx) F(max_norm) F(norm_type) F(scale_grad_by_freq) F(mode) F(include_last_offset)                                     \
  F(reduction) F(weight) F(ignore_index) F(label_smoothing) F(pos_weight) F(delta) F(log_target) F(log_input)                      \
  F(full) F(margin) F(p) F(swap) F(blank) F(zero_infinity) F(distance_function)                                                    \
  F(size) F(scale_factor) F(align_corners) F(recompute_scale_factor)                                                               \
  F(dim_feedforward) F(activation) F(norm_first) F(layer_norm_eps) F(add_bias_kv) F(add_zero_attn) F(kdim) F(vdim)                 \
  F(negative_slope) F(inplace) F(lambd) F(dim) F(approximate) F(min_val) F(max_val) F(threshold) F(value)                          \
  F(num_parameters) F(init) F(lower) F(upper) F(start_dim) F(end_dim) F(keepdim) F(training)                                       \
  F(lr) F(betas) F(weight_decay) F(amsgrad) F(dampening) F(nesterov) F(lr_decay) F(initial_accumulator_value)                      \
  F(centered) F(rho) F(t0) F(maximize) F(capturable) F(max_iter) F(max_eval) F(tolerance_grad) F(tolerance_change) F(history_size) \
  F(batch_size) F(workers) F(drop_last)
// clang-format on
#define TORCH_OPTION_TYPE(name)              \
  template <class Options>                   \
  struct type_of_##name {                    \
    using type = NotAnOption;                \
  };                                         \
  template <class Options>                   \
  requires requires(Options & o) { o.name; } \
  struct type_of_##name<Options> {           \
    using type = decltype(Options::name);    \
  };
TORCH_FOR_EACH_OPTION(TORCH_OPTION_TYPE)
#undef TORCH_OPTION_TYPE

}  // namespace detail

template <class Self, class Options>
class Settable {
 public:
  Settable() = default;
  explicit Settable(Options options) : options_(std::move(options)) {}
  operator const Options&() const { return options_; }
  const Options& options() const { return options_; }

#define TORCH_SETTER(name)                                                                         \
  Self& name(typename detail::Given<typename detail::type_of_##name<Options>::type>::type value) { \
    detail::set_option(options_.name, std::move(value));                                           \
    return static_cast<Self&>(*this);                                                              \
  }                                                                                                \
  const typename detail::type_of_##name<Options>::type& name() const { return options_.name; }
  TORCH_FOR_EACH_OPTION(TORCH_SETTER)
#undef TORCH_SETTER

  // Of a convolution: "same" or "valid" in the place of numbers.
  Self& padding(Word word) {
    options_.padding_word = word;
    return static_cast<Self&>(*this);
  }

 protected:
  Options options_;
};

#undef TORCH_FOR_EACH_OPTION

}  // namespace torch
