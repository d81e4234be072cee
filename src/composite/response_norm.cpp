// Normalisation across neighbouring channels.
#include "autograd/formulas/formulas.h"
#include "autograd/formulas/pooling.h"
#include "core/host_data.h"
#include "mica/generated/layers/pooling.h"
#include "mica/generated/layers/rearrange_implementations.h"
#include "mica/ops.h"

namespace mica {

namespace {

// sums[:, c] = the sum of x[:, j] over the channels j for which `inside(c, j)` holds.
template <class F>
Tensor sum_of_channels(const Tensor& x, const F& inside) {
  const int64_t channels = x.size(1);
  const Tensor band = mica::zeros({channels, channels}, TensorOptions(DType::Float64).device(kCPU));
  double* at = host_data<double>(band);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < channels; ++j) at[c * channels + j] = inside(c, j) ? 1 : 0;
  const Tensor flat = x.flatten(2);
  return mica::matmul(band.to(x.options()), flat).view(x.sizes());
}

}  // namespace

namespace composite {

Tensor local_response_norm(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  const int64_t ndim = input.dim();
  MICA_CHECK_KIND(ndim >= 3, Value, "Expected 3D or higher dimensionality                          input (got ", ndim,
                  " dimensions)");
  if (input.numel() == 0) return input;
  // Channels become the height of images of one channel, or the depth of such volumes.
  const Tensor squares = input * input;
  const int64_t before = size / 2, behind = (size - 1) / 2;
  Tensor means;
  if (ndim == 3) {
    const Tensor padded = mica::constant_pad_nd(squares.unsqueeze(1), {0, 0, before, behind});
    means = mica::avg_pool2d(padded, {size, 1}, 1).squeeze(1);
  } else {
    const Tensor volumes = squares.reshape({input.size(0), 1, input.size(1), input.size(2), -1});
    const Tensor padded = mica::constant_pad_nd(volumes, {0, 0, 0, 0, before, behind});
    means = mica::avg_pool3d(padded, {size, 1, 1}, 1).squeeze(1).view(input.sizes());
  }
  return input / mica::pow(means * Scalar(alpha) + Scalar(k), Scalar(beta));
}

// As torch's CrossMapLRN2d counts: its window grows at the front and drops channels at the back one late, so that the
// first channel's square stays in every sum.
std::tuple<Tensor, Tensor> _cross_map_lrn2d(const Tensor& self, int64_t size, double alpha, double beta, double k) {
  MICA_CHECK_KIND(self.dim() == 4, Value, "CrossMapLRN2d: Expected input to be 4D, got ", self.dim(), "D instead.");
  const int64_t ahead = (size - 1) / 2 + 1;
  const Tensor sums =
      sum_of_channels(self * self, [&](int64_t c, int64_t j) { return j < c + ahead && (j == 0 || j > c - ahead); });
  const Tensor scale = sums * Scalar(alpha / static_cast<double>(size)) + Scalar(k);
  return {mica::pow(scale, Scalar(-beta)) * self, scale};
}

}  // namespace composite

namespace formulas {

Tensor cross_map_lrn2d_backward(const Tensor& grad, const Tensor& self, const Tensor& result, const Tensor& scale,
                                int64_t size, double alpha, double beta) {
  if (!grad.defined()) return {};
  const int64_t behind = size / 2 + size % 2;
  const Tensor ratio = grad * result / scale;
  const Tensor sums =
      sum_of_channels(ratio, [&](int64_t c, int64_t j) { return j >= c - behind && j < c - behind + size; });
  return mica::pow(scale, Scalar(-beta)) * grad - self * sums * Scalar(2 * alpha * beta / static_cast<double>(size));
}

}  // namespace formulas

}  // namespace mica
