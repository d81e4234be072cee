// torch.fft in terms of transforms along given dimensions.
#include <algorithm>

#include "core/geometry.h"
#include "mica/generated/layers/fft.h"
#include "mica/generated/layers/fft_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

using OptionalString = std::optional<std::string_view>;
using OptionalSizes = std::optional<IntArrayRef>;

int64_t normalization_of(OptionalString norm, bool forward) {
  if (!norm || *norm == "backward") return forward ? 0 : 2;
  if (*norm == "forward") return forward ? 2 : 0;
  MICA_CHECK(*norm == "ortho", "Invalid normalization mode: \"", *norm, "\"");
  return 1;
}

// Integers become the default float, and reals become complex where the transform is complex.
Tensor promoted(const Tensor& x, bool complex) {
  DType dtype = x.dtype();
  if (!is_floating(dtype) && !is_complex(dtype)) dtype = default_dtype();
  MICA_CHECK(to_real(dtype) == DType::Float32 || to_real(dtype) == DType::Float64, "Unsupported dtype ",
             info(dtype).legacy);
  if (complex && !is_complex(dtype)) dtype = to_complex(dtype);
  return dtype == x.dtype() ? x : x.to(dtype);
}

void check_points(int64_t n) { MICA_CHECK(n >= 1, "Invalid number of data points (", n, ") specified"); }

// Cuts dimensions, or fills them with zeros, to the given sizes; -1 leaves a size as it is.
Tensor resized(const Tensor& x, IntArrayRef dims, IntArrayRef sizes) {
  DimVector pad(static_cast<size_t>(2 * x.dim()), 0);
  Tensor result = x;
  bool pads = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = dims[i], have = x.size(d), want = sizes[i];
    if (want == -1 || want == have) continue;
    check_points(want);
    if (want < have) {
      result = result.narrow(d, 0, want);
    } else {
      pad[static_cast<size_t>(2 * (x.dim() - 1 - d) + 1)] = want - have;
      pads = true;
    }
  }
  return pads ? constant_pad_nd(result, pad) : result;
}

// The whole spectrum, or for real inputs its first half where that is asked for. A backward transform of reals is the
// conjugate of the forward one.
Tensor transform(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalString norm, bool forward,
                 bool half) {
  Tensor x = promoted(self, false);
  const int64_t d = wrap_dim(dim, x.dim(), false);
  if (n) x = resized(x, IntArrayRef(d), IntArrayRef(*n));
  check_points(x.size(d));
  const int64_t mode = normalization_of(norm, forward);
  if (x.is_complex()) return _fft_c2c(x, IntArrayRef(d), mode, forward);
  const Tensor result = _fft_r2c(x, IntArrayRef(d), mode, half);
  return forward ? result : result.conj();
}

Tensor complex_transform(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalString norm, bool forward) {
  return transform(self, n, dim, norm, forward, false);
}

Tensor from_real(const char* name, const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalString norm,
                 bool forward) {
  MICA_CHECK(!self.is_complex(), name, " expects a real input tensor, but got ", info(self.dtype()).legacy);
  return transform(self, n, dim, norm, forward, true);
}

Tensor to_real_signal(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalString norm, bool forward) {
  Tensor x = promoted(self, true);
  const int64_t d = wrap_dim(dim, x.dim(), false);
  const int64_t count = n.value_or(2 * (x.size(d) - 1));
  check_points(count);
  x = resized(x, IntArrayRef(d), IntArrayRef(count / 2 + 1));
  if (forward) x = x.conj();
  return _fft_c2r(x, IntArrayRef(d), normalization_of(norm, forward), count);
}

struct Axes {
  DimVector dims, sizes;
};

Axes axes_of(const Tensor& x, OptionalSizes s, OptionalSizes dim) {
  Axes axes;
  if (dim) {
    for (const int64_t d : *dim) axes.dims.push_back(wrap_dim(d, x.dim(), false));
    DimVector sorted = axes.dims;
    std::sort(sorted.begin(), sorted.end());
    MICA_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "FFT dims must be unique");
  }
  if (s) {
    MICA_CHECK(!dim || dim->size() == s->size(), "When given, dim and shape arguments must have the same length");
    MICA_CHECK(static_cast<int64_t>(s->size()) <= x.dim(), "Got shape with ", s->size(),
               " values but input tensor only has ", x.dim(), " dimensions.");
    if (!dim)
      for (size_t i = 0; i < s->size(); ++i) axes.dims.push_back(x.dim() - static_cast<int64_t>(s->size() - i));
    for (size_t i = 0; i < s->size(); ++i) {
      const int64_t n = (*s)[i];
      axes.sizes.push_back(n == -1 ? x.size(axes.dims[i]) : n);
    }
  } else {
    if (!dim)
      for (int64_t d = 0; d < x.dim(); ++d) axes.dims.push_back(d);
    for (const int64_t d : axes.dims) axes.sizes.push_back(x.size(d));
  }
  for (const int64_t n : axes.sizes) check_points(n);
  return axes;
}

Tensor complex_transforms(const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm, bool forward) {
  const Tensor x = promoted(self, true);
  const Axes axes = axes_of(x, s, dim);
  return _fft_c2c(resized(x, axes.dims, axes.sizes), axes.dims, normalization_of(norm, forward), forward);
}

Tensor from_reals(const char* name, const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm) {
  MICA_CHECK(!self.is_complex(), name, " expects a real-valued input tensor, but got ", info(self.dtype()).legacy);
  const Tensor x = promoted(self, false);
  const Axes axes = axes_of(x, s, dim);
  MICA_CHECK(!axes.dims.empty(), name, " must transform at least one axis");
  return _fft_r2c(resized(x, axes.dims, axes.sizes), axes.dims, normalization_of(norm, true), true);
}

// Returns the size of the last transformed dimension of a real result, and puts the size of its spectrum into the axes.
int64_t real_size(const Tensor& x, Axes& axes, OptionalSizes s, const char* name) {
  MICA_CHECK(!axes.dims.empty(), name, " must transform at least one axis");
  const size_t last = axes.dims.size() - 1;
  const int64_t n = s && (*s)[last] != -1 ? (*s)[last] : 2 * (x.size(axes.dims[last]) - 1);
  check_points(n);
  axes.sizes[last] = n / 2 + 1;
  return n;
}

Tensor to_reals(const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm) {
  const Tensor x = promoted(self, true);
  Axes axes = axes_of(x, s, dim);
  const int64_t n = real_size(x, axes, s, "irfftn");
  return _fft_c2r(resized(x, axes.dims, axes.sizes), axes.dims, normalization_of(norm, false), n);
}

Tensor hermitian_transforms(const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm) {
  Tensor x = promoted(self, true);
  Axes axes = axes_of(x, s, dim);
  const int64_t n = real_size(x, axes, s, "hfftn");
  x = resized(x, axes.dims, axes.sizes);
  const size_t rest = axes.dims.size() - 1;
  const int64_t mode = normalization_of(norm, true);
  if (rest > 0) x = _fft_c2c(x, IntArrayRef(axes.dims.data(), rest), mode, true);
  return _fft_c2r(x.conj(), IntArrayRef(axes.dims[rest]), mode, n);
}

Tensor inverse_hermitian_transforms(const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm) {
  MICA_CHECK(!self.is_complex(), "ihfftn expects a real-valued input tensor, but got ", info(self.dtype()).legacy);
  Tensor x = promoted(self, false);
  const Axes axes = axes_of(x, s, dim);
  MICA_CHECK(!axes.dims.empty(), "ihfftn must transform at least one axis");
  x = resized(x, axes.dims, axes.sizes);
  const size_t rest = axes.dims.size() - 1;
  const int64_t mode = normalization_of(norm, false);
  const Tensor half = _fft_r2c(x, IntArrayRef(axes.dims[rest]), mode, true).conj_physical();
  return rest > 0 ? _fft_c2c(half, IntArrayRef(axes.dims.data(), rest), mode, false) : half;
}

}  // namespace

#define MICA_FFT_ONE(name, call) \
  Tensor name(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalString norm) { return call; }
MICA_FFT_ONE(fft_fft, complex_transform(self, n, dim, norm, true))
MICA_FFT_ONE(fft_ifft, complex_transform(self, n, dim, norm, false))
MICA_FFT_ONE(fft_rfft, from_real("rfft", self, n, dim, norm, true))
MICA_FFT_ONE(fft_ihfft, from_real("ihfft", self, n, dim, norm, false))
MICA_FFT_ONE(fft_irfft, to_real_signal(self, n, dim, norm, false))
MICA_FFT_ONE(fft_hfft, to_real_signal(self, n, dim, norm, true))
#undef MICA_FFT_ONE

#define MICA_FFT_MANY(name, call)                                                               \
  Tensor name##2(const Tensor& self, OptionalSizes s, IntArrayRef given, OptionalString norm) { \
    const OptionalSizes dim = given;                                                            \
    return call;                                                                                \
  }                                                                                             \
  Tensor name##n(const Tensor& self, OptionalSizes s, OptionalSizes dim, OptionalString norm) { return call; }
MICA_FFT_MANY(fft_fft, complex_transforms(self, s, dim, norm, true))
MICA_FFT_MANY(fft_ifft, complex_transforms(self, s, dim, norm, false))
MICA_FFT_MANY(fft_rfft, from_reals("rfftn", self, s, dim, norm))
MICA_FFT_MANY(fft_irfft, to_reals(self, s, dim, norm))
MICA_FFT_MANY(fft_hfft, hermitian_transforms(self, s, dim, norm))
MICA_FFT_MANY(fft_ihfft, inverse_hermitian_transforms(self, s, dim, norm))
#undef MICA_FFT_MANY

Tensor fft_fftfreq(int64_t n, double d, const TensorOptions& options) {
  const Tensor result = arange(Scalar(n), options.dtype(options.dtype()));
  const int64_t positive = (n + 1) / 2;
  if (n > positive)
    result.narrow(0, positive, n - positive).copy_(arange(Scalar(-(n / 2)), Scalar(0), result.options()));
  return result.mul_(Scalar(1.0 / (static_cast<double>(n) * d)));
}

Tensor fft_rfftfreq(int64_t n, double d, const TensorOptions& options) {
  return arange(Scalar(n / 2 + 1), options.dtype(options.dtype())).mul_(Scalar(1.0 / (static_cast<double>(n) * d)));
}

static Tensor shifted(const Tensor& x, OptionalSizes dim, bool back) {
  DimVector dims, shifts;
  if (dim) {
    for (const int64_t d : *dim) dims.push_back(wrap_dim(d, x.dim()));
  } else {
    for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  }
  for (const int64_t d : dims) shifts.push_back(back ? (x.size(d) + 1) / 2 : x.size(d) / 2);
  return roll(x, shifts, dims);
}

Tensor fft_fftshift(const Tensor& self, OptionalSizes dim) { return shifted(self, dim, false); }
Tensor fft_ifftshift(const Tensor& self, OptionalSizes dim) { return shifted(self, dim, true); }

}  // namespace mica::composite
