#include <algorithm>
#include <cmath>

#include "core/geometry.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/fft_implementations.h"
#include "mica/ops.h"
#include "mica/parallel.h"

namespace mica::shapes {

namespace {

double scale_of(IntArrayRef sizes, IntArrayRef dims, int64_t normalization) {
  double count = 1;
  for (const int64_t d : dims) count *= static_cast<double>(sizes[static_cast<size_t>(d)]);
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(count) : 1 / count;
}

void check_kind(const Tensor& x, bool complex, const char* op) {
  const DType real = to_real(x.dtype());
  if (x.is_complex() != complex || (real != DType::Float32 && real != DType::Float64)) unsupported_dtype(op, x.dtype());
}

// Strides of dense memory in which the transformed dimensions are innermost, and the last of `dims` the very innermost
// if it is halved. The other dimensions lie as in `like`. torch's results on CUDA have this order too.
DimVector inner_strides(const Tensor& like, IntArrayRef sizes, IntArrayRef dims, bool halved) {
  DimVector order, rank(sizes.size(), 0);
  for (size_t d = 0; d < sizes.size(); ++d) order.push_back(static_cast<int64_t>(d));
  for (const int64_t d : dims) rank[static_cast<size_t>(d)] = 1;
  if (halved) rank[static_cast<size_t>(dims[dims.size() - 1])] = 2;
  std::stable_sort(order.begin(), order.end(), [&](int64_t one, int64_t other) {
    const int64_t first = rank[static_cast<size_t>(one)], second = rank[static_cast<size_t>(other)];
    return first != second ? first < second : like.strides()[one] > like.strides()[other];
  });
  DimVector strides(sizes.size(), 1);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

bool takes_many(const TensorView& x) { return !x.device.is_meta() && MICA_LAYER_TAKES(x.device, fft_many, &x); }
bool takes_many(const Tensor& x) { return takes_many(x.view_of()); }

// The transform along all of `dims`, with its factor, by a backend that has one call for it. An input whose innermost
// dimension is not dense is copied first; half a spectrum is not, since the kernel copies it in any case.
Tensor transformed(const Tensor& self, IntArrayRef sizes, DType dtype, IntArrayRef dims, bool forward, double scale) {
  const bool halved = dtype != self.dtype(), to_real = halved && self.is_complex();
  const DimVector strides = inner_strides(self, sizes, dims, halved);
  const Tensor result = empty_strided(sizes, strides, self.options().dtype(dtype));
  if (result.numel() == 0 || self.numel() == 0) return result;
  Tensor in = self;
  for (size_t d = 0; d < sizes.size() && !to_real; ++d)
    if (strides[d] == 1 && sizes[d] > 1 && self.strides()[d] != 1) {
      in = empty_strided(self.sizes(), inner_strides(self, self.sizes(), dims, halved), self.options());
      in.copy_(self);
    }
  MICA_LAYER_KERNEL(self.device(), fft_many)(result.view_of(), in.view_of(), dims, forward, scale);
  return result;
}

// Complex transforms along the first `count` of `dims`, in place; the last one applies the factor.
void transform_rest(const TensorView& x, IntArrayRef dims, size_t count, bool forward, double scale) {
  if (count > 0 && takes_many(x))
    return MICA_LAYER_KERNEL(x.device, fft_many)(x, x, IntArrayRef(dims.data(), count), forward, scale);
  for (size_t i = 0; i < count; ++i)
    MICA_LAYER_KERNEL(x.device, fft_c2c)(x, x, dims[i], forward, i + 1 == count ? scale : 1);
}

// On the CPU, where transforms go along several other dimensions, calls `f` with a few slices of the first dimension at
// a time: each transform then finds in the caches what the one before has left. Elsewhere calls it once, with all
// slices.
template <class F>
void by_slices(const TensorView& out, const TensorView& in, const DimVector& dims, const F& f) {
  constexpr int64_t kSlicesBytes = int64_t{4} << 20;
  const bool apart = std::find(dims.begin(), dims.end(), 0) == dims.end();
  if (dims.size() < 2 || !apart || !out.device.is_cpu()) return f(out, in);
  const int64_t count = out.sizes[0], bytes = out.numel / count * element_size(out.dtype);
  const int64_t step = std::max<int64_t>(get_num_threads(), kSlicesBytes / bytes);
  if (step >= count) return f(out, in);
  DimVector out_sizes(out.shape()), in_sizes(in.shape());
  TensorView to = out, from = in;
  to.sizes = out_sizes.data();
  from.sizes = in_sizes.data();
  for (int64_t first = 0; first < count; first += step) {
    const int64_t now = std::min(step, count - first);
    out_sizes[0] = in_sizes[0] = now;
    to.numel = out.numel / count * now;
    from.numel = in.numel / count * now;
    to.data = static_cast<char*>(out.data) + first * out.strides[0] * element_size(out.dtype);
    from.data = static_cast<char*>(in.data) + first * in.strides[0] * element_size(in.dtype);
    f(to, from);
  }
}

}  // namespace

void _fft_c2c(Out& out, const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward) {
  check_kind(self, true, "fft_c2c");
  const DimVector dims = wrap_dims(dim, self.dim());
  if (!dims.empty() && takes_many(self)) {
    out.take(transformed(self, self.sizes(), self.dtype(), dims, forward, scale_of(self.sizes(), dims, normalization)));
    return;
  }
  const Tensor result = empty(self.sizes(), self.options());
  if (!self.is_meta() && self.numel() > 0) {
    if (dims.empty()) {
      result.copy_(self);
    } else {
      const double scale = scale_of(self.sizes(), dims, normalization);
      const size_t rest = dims.size() - 1;
      by_slices(result.view_of(), self.view_of(), dims, [&](const TensorView& to, const TensorView& from) {
        MICA_LAYER_KERNEL(self.device(), fft_c2c)(to, from, dims[rest], forward, rest == 0 ? scale : 1);
        transform_rest(to, dims, rest, forward, scale);
      });
    }
  }
  out.take(result);
}

void _fft_r2c(Out& out, const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided) {
  check_kind(self, false, "fft_r2c");
  const DimVector dims = wrap_dims(dim, self.dim());
  MICA_CHECK(!dims.empty(), "_fft_r2c needs a dimension");
  const TensorOptions complex = self.options().dtype(to_complex(self.dtype()));
  if (!onesided && takes_many(self)) {
    out.take(transformed(self.to(complex.dtype()), self.sizes(), complex.dtype(), dims, true,
                         scale_of(self.sizes(), dims, normalization)));
    return;
  }
  const size_t rest = dims.size() - 1;
  DimVector sizes(self.sizes());
  int64_t& bins = sizes[static_cast<size_t>(dims[rest])];
  if (onesided) bins = bins / 2 + 1;
  if (takes_many(self)) {
    out.take(
        transformed(self, sizes, to_complex(self.dtype()), dims, true, scale_of(self.sizes(), dims, normalization)));
    return;
  }
  const Tensor result = empty(sizes, complex);
  if (!self.is_meta() && self.numel() > 0) {
    const double scale = scale_of(self.sizes(), dims, normalization);
    by_slices(result.view_of(), self.view_of(), dims, [&](const TensorView& to, const TensorView& from) {
      MICA_LAYER_KERNEL(self.device(), fft_r2c)(to, from, dims[rest], rest == 0 ? scale : 1);
      transform_rest(to, dims, rest, true, scale);
    });
  }
  out.take(result);
}

void _fft_c2r(Out& out, const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size) {
  check_kind(self, true, "fft_c2r");
  const DimVector dims = wrap_dims(dim, self.dim());
  MICA_CHECK(!dims.empty(), "_fft_c2r needs a dimension");
  const size_t rest = dims.size() - 1;
  DimVector sizes(self.sizes());
  MICA_CHECK(last_dim_size >= 1 && sizes[static_cast<size_t>(dims[rest])] == last_dim_size / 2 + 1,
             "Invalid number of data points (", last_dim_size, ") specified");
  sizes[static_cast<size_t>(dims[rest])] = last_dim_size;
  if (takes_many(self)) {
    out.take(transformed(self, sizes, to_real(self.dtype()), dims, false, scale_of(sizes, dims, normalization)));
    return;
  }
  const Tensor result = empty(sizes, self.options().dtype(to_real(self.dtype())));
  if (!self.is_meta() && result.numel() > 0) {
    Tensor spectrum = self;
    if (rest > 0) {
      spectrum = empty(self.sizes(), self.options());
      MICA_LAYER_KERNEL(self.device(), fft_c2c)(spectrum.view_of(), self.view_of(), dims[0], false, 1);
      transform_rest(spectrum.view_of(), IntArrayRef(dims.data() + 1, rest - 1), rest - 1, false, 1);
    }
    MICA_LAYER_KERNEL(self.device(), fft_c2r)
    (result.view_of(), spectrum.view_of(), dims[rest], scale_of(sizes, dims, normalization));
  }
  out.take(result);
}

}  // namespace mica::shapes
