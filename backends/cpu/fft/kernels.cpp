// The transforms of a tensor along one dimension.
#include <algorithm>
#include <vector>

#include "backends/cpu/fft/dense.h"
#include "backends/cpu/fft/lanes.h"
#include "backends/cpu/fft/long_transform.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu::fft {
namespace {

constexpr int64_t kLongestDense = 32768, kLeastShared = 8192;

// Where each sequence along `dim` begins, the last dimension changing fastest; in numbers, `unit` to an element.
std::vector<int64_t> offsets_of(const TensorView& view, int64_t dim, int64_t unit) {
  int64_t count = 1, inner = -1;  // `inner` is the last dimension other than `dim`
  for (int64_t d = 0; d < view.ndim; ++d)
    if (d != dim) count *= view.sizes[d], inner = d;
  std::vector<int64_t> offsets(static_cast<size_t>(count)), index(static_cast<size_t>(view.ndim), 0);
  const int64_t run = inner < 0 ? 1 : view.sizes[inner], step = inner < 0 ? 0 : view.strides[inner] * unit;
  int64_t at = 0;
  for (int64_t first = 0; first < count; first += run) {
    int64_t* const to = offsets.data() + first;
    for (int64_t i = 0; i < run; ++i) to[i] = at * unit + i * step;
    for (int64_t d = inner - 1; d >= 0; --d) {
      if (d == dim) continue;
      at += view.strides[d];
      if (++index[static_cast<size_t>(d)] < view.sizes[d]) break;
      at -= view.strides[d] * view.sizes[d];
      index[static_cast<size_t>(d)] = 0;
    }
  }
  return offsets;
}

template <class T>
void run(Kind kind, const TensorView& out, const TensorView& in, int64_t dim, bool backward, double scale) {
  Batch<T> batch;
  batch.kind = kind;
  batch.length = kind == Kind::ToReal ? out.sizes[dim] : in.sizes[dim];
  batch.in = in.ptr<T>();
  batch.out = out.ptr<T>();
  const int64_t in_unit = kind == Kind::FromReal ? 1 : 2, out_unit = kind == Kind::ToReal ? 1 : 2;
  batch.in_stride = in.strides[dim] * in_unit;
  batch.out_stride = out.strides[dim] * out_unit;
  const std::vector<int64_t> in_offsets = offsets_of(in, dim, in_unit), out_offsets = offsets_of(out, dim, out_unit);
  batch.in_offsets = in_offsets.data();
  batch.out_offsets = out_offsets.data();
  batch.backward = backward;
  batch.whole = kind == Kind::FromReal && out.sizes[dim] > batch.length / 2 + 1;
  batch.scale = static_cast<T>(scale);
  const int64_t count = static_cast<int64_t>(in_offsets.size());
  const int64_t threads = get_num_threads();
  // Each thread takes whole transforms, unless there are a few long ones that are better shared.
  if (batch.in_stride == in_unit && batch.out_stride == out_unit && batch.length <= kLongestDense &&
      (count >= threads || batch.length <= kLeastShared)) {
    if (const auto plan = dense_plan_of<T>(batch.plan_length())) {
      const auto roots = batch.halved() ? half_roots<T>(batch.length) : nullptr;
      const int64_t grain = std::max<int64_t>(1, 8192 / plan->steps.length);
      parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
        run_dense(*plan, roots ? roots->data() : nullptr, batch, begin, end);
      });
      return;
    }
  }
  if (prefers_cut(batch.length, count, std::is_same_v<T, double>)) {
    for (int64_t t = 0; t < count; ++t) {
      Batch<T> one = batch;
      one.in += in_offsets[static_cast<size_t>(t)];
      one.out += out_offsets[static_cast<size_t>(t)];
      run_long(one);
    }
    return;
  }
  const auto nested = kind == Kind::Complex && batch.in_stride != 2 ? nested_of<T>(batch.length) : nullptr;
  batch.nested = nested.get();
  const auto odd = kind != Kind::Complex && !batch.halved() ? odd_real_of<T>(batch.length) : nullptr;
  batch.odd = odd.get();
  const auto plan = plan_of<T>(batch.plan_length());
  const auto roots = batch.halved() ? half_roots<T>(batch.length) : nullptr;
  const int64_t lanes = lane_count(std::is_same_v<T, double>), groups = (count + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, 8192 / (plan->working_length() * lanes));
  parallel_for(0, groups, grain, [&](int64_t begin, int64_t end) {
    run_lanes(*plan, roots ? roots->data() : nullptr, batch, begin * lanes, std::min(end * lanes, count));
  });
}

void c2c(const TensorView& out, const TensorView& in, int64_t dim, bool forward, double scale) {
  if (in.dtype == DType::Complex64) return run<float>(Kind::Complex, out, in, dim, !forward, scale);
  if (in.dtype == DType::Complex128) return run<double>(Kind::Complex, out, in, dim, !forward, scale);
  unsupported_dtype("fft_c2c", in.dtype);
}

void r2c(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  if (in.dtype == DType::Float32) return run<float>(Kind::FromReal, out, in, dim, false, scale);
  if (in.dtype == DType::Float64) return run<double>(Kind::FromReal, out, in, dim, false, scale);
  unsupported_dtype("fft_r2c", in.dtype);
}

void c2r(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  if (in.dtype == DType::Complex64) return run<float>(Kind::ToReal, out, in, dim, true, scale);
  if (in.dtype == DType::Complex128) return run<double>(Kind::ToReal, out, in, dim, true, scale);
  unsupported_dtype("fft_c2r", in.dtype);
}

}  // namespace

MICA_REGISTER_CPU(fft_c2c, c2c);
MICA_REGISTER_CPU(fft_r2c, r2c);
MICA_REGISTER_CPU(fft_c2r, c2r);

}  // namespace mica::cpu::fft
