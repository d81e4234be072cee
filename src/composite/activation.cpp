// Activations in terms of other operations, dropout, and the checks of arguments of activations.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>

#include "core/pointwise.h"
#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/backend/dropout_backend.h"
#include "mica/backend/kernel_types.h"
#include "mica/core/dispatch.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

namespace composite {

Tensor threshold(const Tensor& self, const Scalar& threshold, const Scalar& value) {
  return _threshold(self, threshold, value);
}

Tensor relu6(const Tensor& self) { return mica::hardtanh(self, 0, 6); }

Tensor selu(const Tensor& self) {
  return mica::elu(self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946);
}

Tensor celu(const Tensor& self, const Scalar& alpha) {
  const double a = alpha.to_double();
  MICA_CHECK(a != 0, "ZeroDivisionError: alpha cannot be 0 for CELU");
  return mica::elu(self, alpha, 1.0, 1.0 / a);
}

Tensor tanhshrink(const Tensor& self) { return self - self.tanh(); }

Tensor softsign(const Tensor& self) { return self / (self.abs() + 1); }

Tensor glu(const Tensor& self, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "glu does not support scalars because halving size must be even");
  const int64_t size = self.size(dim);
  MICA_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", dim < 0 ? dim + self.dim() : dim,
             " is size ", size);
  if (!is_floating(self.dtype())) unsupported_dtype("glu_cpu", self.dtype());
  return self.narrow(dim, 0, size / 2) * self.narrow(dim, size / 2, size / 2).sigmoid();
}

Tensor prelu(const Tensor& self, const Tensor& weight) {
  MICA_CHECK(self.dtype() == weight.dtype(), "prelu: Type promoting not supported. Got ", info(self.dtype()).legacy,
             " and ", info(weight.dtype()).legacy);
  MICA_CHECK(weight.dim() <= 1, "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = ", weight.dim());
  if (weight.numel() != 1) {
    MICA_CHECK(self.dim() > 0, "Not allow zero-dim input tensor.");
    const int64_t channels = self.dim() > 1 ? self.size(1) : 1;
    MICA_CHECK(channels == weight.numel(),
               "Mismatch of parameter numbers and input channel size. Found parameter numbers = ", weight.numel(),
               " and channel size = ", channels, ".");
  }
  if (self.dim() < 2) return _prelu_kernel(self, weight.reshape(self.dim() == 0 ? IntArrayRef{} : IntArrayRef{-1}));
  DimVector shape(self.dim(), 1);
  shape[1] = -1;
  return _prelu_kernel(self, weight.reshape(shape));
}

namespace {

// The CPU draws slopes in the order of the elements that use one, always in double. Other devices draw one for every
// element, in its own dtype, from (0, 1], which uniform_ turns into [0, 1). Both do as torch does.
Tensor drawn_slopes(const Tensor& self, double low, double high, const std::optional<Generator>& generator) {
  NoGradGuard no_grad;
  if (self.is_meta()) return ones_like(self);
  const Tensor negative = self <= 0;
  Tensor drawn;
  if (self.is_cpu()) {
    drawn = empty({negative.sum().item<int64_t>()}, self.options().dtype(DType::Float64));
    drawn.uniform_(low, high, generator);
    return mica::masked_scatter(ones_like(self), negative, drawn.to(self.dtype()));
  }
  drawn = empty(self.sizes(), self.options()).uniform_(0, 1, generator).to(DType::Float64);
  drawn = drawn.masked_fill(drawn == 0, 1).mul_(high - low).add_(low).to(self.dtype());
  return mica::where(negative, drawn, ones_like(self));
}

}  // namespace

Tensor rrelu(const Tensor& self, const Scalar& lower, const Scalar& upper, bool training,
             const std::optional<Generator>& generator) {
  const double low = lower.to_double(), high = upper.to_double();
  MICA_CHECK(std::isfinite(low), "rrelu: lower bound must be finite, got ", low);
  MICA_CHECK(std::isfinite(high), "rrelu: upper bound must be finite, got ", high);
  MICA_CHECK(low <= high, "Lower bound should be less than or equal to the upper bound");
  if (!training) return mica::leaky_relu(self, (low + high) / 2);
  if (!is_floating(self.dtype())) unsupported_dtype("rrelu_with_noise_out_cpu", self.dtype());
  return self * drawn_slopes(self, low, high, generator);
}

Tensor functional_rrelu(const Tensor& self, const Scalar& lower, const Scalar& upper, bool training, bool inplace) {
  return inplace ? mica::rrelu_(self, lower, upper, training) : mica::rrelu(self, lower, upper, training);
}

// ---- dropout -------------------------------------------------------------------------------------------------------

namespace {

enum class Drop { Elements, Channels };

Tensor kept(const Tensor& self, double p, Drop what) {
  NoGradGuard no_grad;
  MICA_CHECK(what == Drop::Elements || self.dim() >= 2, "Feature dropout requires at least 2 dimensions in the input");
  DimVector shape(self.dim(), 1);
  for (int64_t d = 0; d < std::min<int64_t>(self.dim(), 2); ++d) shape[d] = self.size(d);
  dispatch::direct = dispatch::active;  // lets a mode see where the noise begins
  const Tensor noise = what == Drop::Elements ? mica::empty_like(self) : mica::new_empty(self, shape);
  dispatch::direct = false;
  return noise.bernoulli_(1 - p);
}

bool drops_nothing(const Tensor& self, double p, bool train) {
  MICA_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  return p == 0 || !train || self.numel() == 0;
}

// The noise that a backend draws itself, scaled. Undefined where the backend leaves that to bernoulli_.
Tensor drawn_by_backend(const Tensor& self, double keep) {
  if (self.is_cpu() || self.is_meta() || !self.is_floating_point()) return {};
  const Backend& b = backend(self.device().type());
  auto* draw = b.extension ? reinterpret_cast<DropoutFunction*>(b.extension("draw_dropout")) : nullptr;
  if (!draw) return {};
  NoGradGuard no_grad;
  const Tensor noise = empty_like(self);
  draw(noise.view_of(), self.view_of(), noise.strides() == self.strides(), keep, default_generator(self.device()));
  return noise;
}

Tensor drop(const Tensor& self, double p, bool train, Drop what) {
  if (drops_nothing(self, p, train)) return self;
  if (p == 1) return self * mica::zeros(IntArrayRef{}, self.options());
  if (what == Drop::Elements) {
    if (const Tensor noise = drawn_by_backend(self, 1 - p); noise.defined()) return self * noise;
  }
  const Tensor noise = kept(self, p, what);
  noise.div_(1 - p);
  return self * noise;
}

// The factor and the summand of each element. Dropped elements take selu's limit for minus infinity; an affine map then
// restores mean and variance.
std::pair<Tensor, Tensor> alpha_noise(const Tensor& self, double p, Drop what) {
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Tensor noise = kept(self, p, what);
  const Tensor shift = (noise - 1).mul_(kAlpha * a).add_(kAlpha * a * p);
  noise.mul_(a);
  return {noise, shift};
}

Tensor alpha_drop(const Tensor& self, double p, bool train, Drop what) {
  if (drops_nothing(self, p, train)) return self;
  if (p == 1) return self * mica::zeros(IntArrayRef{}, self.options());
  const auto [noise, shift] = alpha_noise(self, p, what);
  return self * noise + shift;
}

// In place nothing is changed where nothing is dropped, so that what others have kept of the tensor stays valid.
// Numbers are drawn by bernoulli_ on every device, as in torch.
void drop_in_place(const Tensor& self, double p, bool train, Drop what) {
  if (drops_nothing(self, p, train)) return;
  if (p == 1) {
    self.mul_(mica::zeros(IntArrayRef{}, self.options()));
    return;
  }
  const Tensor noise = kept(self, p, what);
  self.mul_(noise.div_(1 - p));
}

void alpha_drop_in_place(const Tensor& self, double p, bool train, Drop what) {
  if (drops_nothing(self, p, train) || p == 1) return drop_in_place(self, p, train, what);
  const auto [noise, shift] = alpha_noise(self, p, what);
  self.mul_(noise).add_(shift);
}

void check_probability(double p) {
  MICA_CHECK_KIND(p >= 0 && p <= 1, Value, "dropout probability has to be between 0 and 1, but got ", p);
}

// dropout1d and dropout3d take a sample without a batch as a batch of one.
Tensor drop_channels(const Tensor& self, double p, bool training, bool inplace, bool batched) {
  const Tensor batch = batched ? self : self.unsqueeze(0);
  const Tensor result =
      inplace ? mica::feature_dropout_(batch, p, training) : mica::feature_dropout(batch, p, training);
  if (inplace) return self;
  return batched ? result : result.squeeze(0);
}

}  // namespace

Tensor dropout(const Tensor& self, double p, bool train) { return drop(self, p, train, Drop::Elements); }
Tensor feature_dropout(const Tensor& self, double p, bool train) { return drop(self, p, train, Drop::Channels); }
Tensor alpha_dropout(const Tensor& self, double p, bool train) { return alpha_drop(self, p, train, Drop::Elements); }
Tensor feature_alpha_dropout(const Tensor& self, double p, bool train) {
  return alpha_drop(self, p, train, Drop::Channels);
}

void dropout_(const Tensor& self, double p, bool train) { drop_in_place(self, p, train, Drop::Elements); }
void feature_dropout_(const Tensor& self, double p, bool train) { drop_in_place(self, p, train, Drop::Channels); }
void alpha_dropout_(const Tensor& self, double p, bool train) { alpha_drop_in_place(self, p, train, Drop::Elements); }
void feature_alpha_dropout_(const Tensor& self, double p, bool train) {
  alpha_drop_in_place(self, p, train, Drop::Channels);
}

Tensor functional_dropout(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  return inplace ? mica::dropout_(self, p, training) : mica::dropout(self, p, training);
}
Tensor functional_alpha_dropout(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  return inplace ? mica::alpha_dropout_(self, p, training) : mica::alpha_dropout(self, p, training);
}
Tensor functional_feature_alpha_dropout(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  return inplace ? mica::feature_alpha_dropout_(self, p, training) : mica::feature_alpha_dropout(self, p, training);
}

Tensor functional_dropout1d(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  MICA_CHECK(self.dim() == 2 || self.dim() == 3, "dropout1d: Expected 2D or 3D input, but received a ", self.dim(),
             "D input. Note that dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
             "a channel "
             "dimension, and an optional batch dimension (i.e. 2D or 3D inputs).");
  return drop_channels(self, p, training, inplace, self.dim() == 3);
}

Tensor functional_dropout2d(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  if (self.dim() == 3) {
    warn(
        "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - "
        "input is "
        "interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to "
        "interpret the "
        "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout "
        "behavior, please "
        "switch to using dropout1d instead.");
  } else if (self.dim() != 4) {
    warn(cat("dropout2d: Received a ", self.dim(),
             "-D input to dropout2d, which is deprecated and will result in an error in a future "
             "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
             "dropout2d exists to "
             "provide channel-wise dropout on inputs with 2 spatial dimensions, a channel dimension, and an optional "
             "batch dimension "
             "(i.e. 3D or 4D inputs)."));
  }
  return drop_channels(self, p, training, inplace, true);
}

Tensor functional_dropout3d(const Tensor& self, double p, bool training, bool inplace) {
  check_probability(p);
  if (self.dim() != 4 && self.dim() != 5) {
    warn(cat("dropout3d: Received a ", self.dim(),
             "-D input to dropout3d, which is deprecated and will result in an error in a future "
             "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
             "dropout3d exists to "
             "provide channel-wise dropout on inputs with 3 spatial dimensions, a channel dimension, and an optional "
             "batch dimension "
             "(i.e. 4D or 5D inputs)."));
  }
  return drop_channels(self, p, training, inplace, self.dim() == 5);
}

}  // namespace composite

namespace checks {

void relu(const Tensor& self) {
  MICA_CHECK(self.dtype() != DType::Bool, "Boolean inputs not supported for relu");
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "clamp is not supported for complex types");
}

void hardtanh(const Tensor& self, const Scalar& min_val, const Scalar& max_val) {
  MICA_CHECK(self.dtype() != DType::Bool, "Bool inputs not supported for hardtanh");
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "clamp is not supported for complex types");
  MICA_CHECK_KIND(min_val.to_double() <= max_val.to_double(), Value, "min_val cannot be greater than max_val");
  MICA_CHECK(self.is_signed() || (min_val.to_double() >= 0 && max_val.to_double() >= 0),
             "cannot do hardtanh on an unsigned type with negative limits");
}

void gelu(const Tensor&, std::string_view approximate) {
  MICA_CHECK(approximate == "none" || approximate == "tanh", "approximate argument must be either none or tanh.");
}

static double largest(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return 65504;
    case DType::BFloat16:
      return 0x1.FEp127;
    case DType::Float32:
      return FLT_MAX;
    default:
      return DBL_MAX;
  }
}

void softshrink(const Tensor& self, const Scalar& lambd) {
  if (!is_floating(self.dtype())) unsupported_dtype("softshrink_check", self.dtype());
  const double value = lambd.to_double(), most = largest(self.dtype());
  if (value >= 0 && value <= most) return;
  char text[128];
  std::snprintf(text, sizeof text, "lambda must be in range [0, %g] for input dtype %s, but found %g", most,
                info(self.dtype()).legacy, value);
  fail(text);
}

}  // namespace checks
}  // namespace mica
