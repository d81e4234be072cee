#include <algorithm>
#include <cmath>

#include "core/geometry.h"
#include "mica/generated/layers/fft_implementations.h"
#include "mica/layer_backend.h"
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

// Complex transforms along the first `count` of `dims`, in place; the last one applies the factor.
void transform_rest(const TensorView& x, IntArrayRef dims, size_t count, bool forward, double scale) {
  for (size_t i = 0; i < count; ++i)
    MICA_LAYER_KERNEL(x.device, fft_c2c)(x, x, dims[i], forward, i + 1 == count ? scale : 1);
}

// Calls `f` with a few slices of the first dimension at a time where transforms go along several others: what one
// leaves in the caches of a CPU is there for the next. Elsewhere once, with all.
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
  if (!onesided) {
    out.take(mica::empty(self.sizes(), complex));
    const Tensor& result = out.tensor();
    if (result.is_meta() || result.numel() == 0) return;
    result.copy_(self);
    transform_rest(result.view_of(), dims, dims.size(), true, scale_of(self.sizes(), dims, normalization));
    return;
  }
  const size_t rest = dims.size() - 1;
  DimVector sizes(self.sizes());
  int64_t& bins = sizes[static_cast<size_t>(dims[rest])];
  bins = bins / 2 + 1;
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
