// Initial values of parameters. All draw through the operations of random numbers, in torch's order.
#include "mica/init.h"

#include <cmath>

#include "core/geometry.h"
#include "mica/core/grad_mode.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/init_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

double calculate_gain(std::string_view nonlinearity, std::optional<double> param) {
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2.0 / (1 + std::pow(param.value_or(0.01), 2)));
  if (nonlinearity == "selu") return 3.0 / 4;
  for (std::string_view linear :
       {"linear", "sigmoid", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
    if (nonlinearity == linear) return 1;
  fail(ErrorKind::Value, cat("Unsupported nonlinearity ", nonlinearity));
}

Fans calculate_fans(const Tensor& weight) {
  MICA_CHECK_KIND(weight.dim() >= 2, Value,
                  "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, but got one of ",
                  weight.dim());
  const int64_t field = count_elements(weight.sizes().slice(2, static_cast<size_t>(weight.dim()) - 2));
  return {count_elements({weight.size(1), field}), count_elements({weight.size(0), field})};
}

namespace inplace {

namespace {

using MaybeGenerator = std::optional<Generator>;

int64_t fan_of(const Tensor& weight, std::string_view mode) {
  std::string lower(mode);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  MICA_CHECK_KIND(lower == "fan_in" || lower == "fan_out", Value, "Mode ", lower,
                  " not supported, please use one of ['fan_in', 'fan_out']");
  const Fans fans = calculate_fans(weight);
  return lower == "fan_in" ? fans.in : fans.out;
}

double xavier_std(const Tensor& weight, double gain) {
  const Fans fans = calculate_fans(weight);
  return gain * std::sqrt(2.0 / (static_cast<double>(fans.in) + static_cast<double>(fans.out)));
}

bool is_without_elements(const Tensor& weight) {
  if (weight.numel() == 0) warn("Initializing zero-element tensors is a no-op");
  return weight.numel() == 0;
}

double kaiming_std(const Tensor& weight, double a, std::string_view mode, std::string_view nonlinearity) {
  const int64_t fan = fan_of(weight, mode);
  return calculate_gain(nonlinearity, a) / std::sqrt(static_cast<double>(fan));
}

double normal_distribution(double x) { return (1.0 + std::erf(x / std::sqrt(2.0))) / 2.0; }

bool is_true(const Tensor& t) { return t.item().to_bool(); }

// Draws all numbers, and draws those outside the bounds again until all are inside.
void draw_until_inside(const Tensor& self, double mean, double std, double a, double b,
                       const MaybeGenerator& generator) {
  const TensorOptions plain = TensorOptions(self.dtype()).device(kCPU);
  const Tensor low = full({}, a, plain), high = full({}, b, plain);
  self.normal_(mean, std, generator);
  Tensor inside = self;
  for (;;) {
    const Tensor outside = logical_or(lt(inside, low), gt(inside, high));
    if (!is_true(any(outside))) break;
    inside = where(outside, empty_like(inside).normal_(mean, std, generator), inside);
  }
  if (!inside.is_same(self)) self.copy_(inside);
}

// Draws uniform candidates, and accepts each with the ratio of its density to the highest in [a, b].
void draw_until_accepted(const Tensor& self, double mean, double std, double a, double b,
                         const MaybeGenerator& generator) {
  const double mode = std::max(a, std::min(mean, b));
  const double log_peak = -0.5 * std::pow((mode - mean) / std, 2);
  const Tensor candidates = empty_like(self), chances = empty_like(self);
  // The log density of the candidates, computed in place.
  const auto log_density = [&] { candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak); };
  const auto rejected = [&] { return gt(chances.uniform_(0, 1, generator).log_(), candidates); };
  self.uniform_(a, b, generator);
  candidates.copy_(self);
  log_density();
  Tensor pending = rejected();
  if (!is_true(any(pending))) return;
  Tensor result = self;
  do {
    candidates.uniform_(a, b, generator);
    result = where(pending, candidates, result);
    log_density();
    pending = where(pending, rejected(), pending);
  } while (is_true(any(pending)));
  self.copy_(result);
}

}  // namespace

void init_uniform_(const Tensor& self, double a, double b, const MaybeGenerator& generator) {
  self.uniform_(a, b, generator);
}

void init_normal_(const Tensor& self, double mean, double std, const MaybeGenerator& generator) {
  self.normal_(mean, std, generator);
}

void init_trunc_normal_(const Tensor& self, double mean, double std, double a, double b,
                        const MaybeGenerator& generator) {
  if (self.is_meta()) return;
  if (mean < a - 2 * std || mean > b + 2 * std)
    warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.");
  const double inside = normal_distribution((b - mean) / std) - normal_distribution((a - mean) / std);
  if (inside > 0.3)
    draw_until_inside(self, mean, std, a, b, generator);
  else
    draw_until_accepted(self, mean, std, a, b, generator);
}

void init_constant_(const Tensor& self, const Scalar& val) { self.fill_(val); }
void init_ones_(const Tensor& self) { self.fill_(1.0); }
void init_zeros_(const Tensor& self) { self.zero_(); }

void init_eye_(const Tensor& self) {
  MICA_CHECK_KIND(self.dim() == 2, Value, "Only tensors with 2 dimensions are supported, but got one of ", self.dim());
  self.zero_();
  self.diagonal().fill_(1);
}

void init_dirac_(const Tensor& self, int64_t groups) {
  MICA_CHECK_KIND(self.dim() >= 3 && self.dim() <= 5, Value,
                  "Only tensors with 3, 4, or 5 dimensions are supported, but got one of ", self.dim());
  MICA_CHECK_KIND(groups > 0 && self.size(0) % groups == 0, Value, "dim 0 must be divisible by groups, but it is ",
                  self.size(0), " with groups=", groups);
  if (self.is_meta()) return;
  self.zero_();
  Tensor centres = self;  // the middle of each kernel: outputs by inputs
  while (centres.dim() > 2) {
    if (centres.size(2) == 0) return;
    centres = centres.select(2, centres.size(2) / 2);
  }
  const int64_t outputs = self.size(0) / groups;
  for (int64_t g = 0; g < groups; ++g) centres.narrow(0, g * outputs, outputs).diagonal().fill_(1);
}

void init_xavier_uniform_(const Tensor& self, double gain, const MaybeGenerator& generator) {
  const double bound = std::sqrt(3.0) * xavier_std(self, gain);
  self.uniform_(-bound, bound, generator);
}

void init_xavier_normal_(const Tensor& self, double gain, const MaybeGenerator& generator) {
  self.normal_(0, xavier_std(self, gain), generator);
}

void init_kaiming_uniform_(const Tensor& self, double a, std::string_view mode, std::string_view nonlinearity,
                           const MaybeGenerator& generator) {
  if (is_without_elements(self)) return;
  const double bound = std::sqrt(3.0) * kaiming_std(self, a, mode, nonlinearity);
  self.uniform_(-bound, bound, generator);
}

void init_kaiming_normal_(const Tensor& self, double a, std::string_view mode, std::string_view nonlinearity,
                          const MaybeGenerator& generator) {
  if (is_without_elements(self)) return;
  self.normal_(0, kaiming_std(self, a, mode, nonlinearity), generator);
}

void init_orthogonal_(const Tensor& self, double gain, const MaybeGenerator& generator) {
  MICA_CHECK_KIND(self.dim() >= 2, Value, "Only tensors with 2 or more dimensions are supported, but got one of ",
                  self.dim());
  if (self.numel() == 0 || self.is_meta()) return;
  MICA_CHECK_KIND(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, NotImplemented,
                  "\"geqrf_cpu\" not implemented for '", info(self.dtype()).legacy,
                  "': initialise in float32 and convert");
  const int64_t rows = self.size(0), cols = self.numel() / rows;
  const Tensor values = empty({rows, cols}, TensorOptions(self.dtype()).device(self.device())).normal_(0, 1, generator);
  NoGradGuard no_grad;
  const auto [orthonormal, triangle] = linalg_qr((rows < cols ? values.t() : values).to(DType::Float64), "reduced");
  // Multiplied by the signs of r's diagonal, q has the uniform distribution.
  Tensor q = mul(orthonormal, sign(triangle.diagonal())).to(self.dtype());
  if (rows < cols) q = q.t();
  self.view(q.sizes()).copy_(q);
  self.mul_(gain);
}

void init_sparse_(const Tensor& self, double sparsity, double std, const MaybeGenerator& generator) {
  MICA_CHECK_KIND(self.dim() == 2, Value, "Only tensors with 2 dimensions are supported, but got one of ", self.dim());
  if (self.is_meta()) return;
  const int64_t rows = self.size(0);
  const auto zero_count = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  self.normal_(0, std, generator);
  for (int64_t column = 0; column < self.size(1); ++column) {
    const Tensor chosen = slice(randperm(rows), 0, 0, zero_count);
    self.select(1, column).index_fill_(0, chosen, 0);
  }
}

}  // namespace inplace

}  // namespace mica
