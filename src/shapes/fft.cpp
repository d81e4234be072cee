#include <cmath>

#include "core/geometry.h"
#include "mica/generated/layers/fft_implementations.h"
#include "mica/layer_backend.h"
#include "mica/ops.h"

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

// Whether the backend transforms along several dimensions in one call, which includes the factor.
bool at_once(const Tensor& out, const Tensor& in, IntArrayRef dims, bool forward, double scale) {
  if (dims.size() < 2 || !MICA_LAYER_TAKES(out.device(), fft_many, &in.view_of())) return false;
  MICA_LAYER_KERNEL(out.device(), fft_many)(out.view_of(), in.view_of(), dims, forward, scale);
  return true;
}

// Complex transforms along the first `count` of `dims`, in place; the last one applies the factor.
void transform_rest(const Tensor& x, IntArrayRef dims, size_t count, bool forward, double scale) {
  if (at_once(x, x, IntArrayRef(dims.data(), count), forward, scale)) return;
  for (size_t i = 0; i < count; ++i)
    MICA_LAYER_KERNEL(x.device(), fft_c2c)(x.view_of(), x.view_of(), dims[i], forward, i + 1 == count ? scale : 1);
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
      if (!at_once(result, self, dims, forward, scale)) {
        const size_t rest = dims.size() - 1;
        MICA_LAYER_KERNEL(self.device(), fft_c2c)
        (result.view_of(), self.view_of(), dims[rest], forward, rest == 0 ? scale : 1);
        transform_rest(result, dims, rest, forward, scale);
      }
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
    transform_rest(result, dims, dims.size(), true, scale_of(self.sizes(), dims, normalization));
    return;
  }
  const size_t rest = dims.size() - 1;
  DimVector sizes(self.sizes());
  int64_t& bins = sizes[static_cast<size_t>(dims[rest])];
  bins = bins / 2 + 1;
  const Tensor result = empty(sizes, complex);
  if (!self.is_meta() && self.numel() > 0) {
    const double scale = scale_of(self.sizes(), dims, normalization);
    if (!at_once(result, self, dims, true, scale)) {
      MICA_LAYER_KERNEL(self.device(), fft_r2c)(result.view_of(), self.view_of(), dims[rest], rest == 0 ? scale : 1);
      transform_rest(result, dims, rest, true, scale);
    }
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
  const double scale = scale_of(sizes, dims, normalization);
  if (!self.is_meta() && result.numel() > 0 && !at_once(result, self, dims, false, scale)) {
    Tensor spectrum = self;
    if (rest > 0) {
      spectrum = empty(self.sizes(), self.options());
      MICA_LAYER_KERNEL(self.device(), fft_c2c)(spectrum.view_of(), self.view_of(), dims[0], false, 1);
      transform_rest(spectrum, IntArrayRef(dims.data() + 1, rest - 1), rest - 1, false, 1);
    }
    MICA_LAYER_KERNEL(self.device(), fft_c2r)
    (result.view_of(), spectrum.view_of(), dims[rest], scale);
  }
  out.take(result);
}

}  // namespace mica::shapes
