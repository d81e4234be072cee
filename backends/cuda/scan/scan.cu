// cumsum, cumprod, cummax, cummin, logcumsumexp.
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/reduce/limits.cuh"
#include "backends/cuda/scan/scan.cuh"

namespace mica::cuda {

namespace {

template <class T, class A, bool kProduct>
struct RunningTotal {
  using In = T;
  using Acc = A;
  T* out;
  __device__ Acc identity() const { return Acc(kProduct ? 1 : 0); }
  __device__ Acc load(T v, int64_t) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const {
    if constexpr (kProduct) return a * b;
    return a + b;
  }
  __device__ void store(Acc a, int64_t at, int64_t) const { out[at] = convert<T>(a); }
  // Several at once, where they are aligned.
  template <int kCount>
  __device__ bool store_piece(const Acc (&a)[kCount], int64_t at) const {
    using Piece = Vector<T, kCount>;
    if (reinterpret_cast<uintptr_t>(out + at) % alignof(Piece)) return false;
    Piece piece;
#pragma unroll
    for (int j = 0; j < kCount; ++j) piece.item[j] = convert<T>(a[j]);
    *reinterpret_cast<Piece*>(out + at) = piece;
    return true;
  }
};
// Sums of floats of up to 32 bits are what rows of thousands of elements are scanned for.
template <class T>
struct RunningSum : RunningTotal<T, float, false> {
  static constexpr bool kWide = true;
};

template <class C>
struct Placed {
  C value;
  int64_t index;  // -1 before the first
};
// The last of equal elements, and a NaN takes over from everything.
template <class T>
struct RunningExtremum {
  using In = T;
  using C = compute_t<T>;
  using Acc = Placed<C>;
  T* values;
  int64_t* indices;
  Turned<C> turned;
  __device__ Acc identity() const { return {C(0), -1}; }
  __device__ Acc load(T v, int64_t i) const { return {turned(convert<C>(v)), i}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    return b.value != b.value || (a.value == a.value && b.value >= a.value) ? b : a;
  }
  __device__ void store(Acc a, int64_t at, int64_t second) const {
    values[at] = convert<T>(turned(a.value));
    indices[second] = a.index;
  }
};

template <class T, class A>
struct RunningLogSum {
  using In = T;
  using Acc = A;
  T* out;
  __device__ Acc identity() const { return Acc(-INFINITY); }
  __device__ Acc load(T v, int64_t) const { return convert<Acc>(v); }
  __device__ __noinline__ Acc combine(Acc a, Acc b) const {
    if constexpr (is_complex_v<Acc>) {
      if (a.real() < b.real()) {
        const Acc t = a;
        a = b;
        b = t;
      }
      if (::isinf(a.real()) && a.real() < 0) return a;
      return a + complex_functions::log(Acc(1) + complex_functions::exp(b - a));
    } else {
      const bool less = a != a || a < b;
      const Acc low = less ? a : b, high = less ? b : a;
      if (low == high && ::isinf(low)) return low;
      return high + ::log1p(::exp(low - high));
    }
  }
  __device__ void store(Acc a, int64_t at, int64_t) const { out[at] = convert<T>(a); }
};

// Whether the lines of a matrix lie across memory and those of the result along it. Turning such a matrix into the
// result's place first takes less than half as long as reading or writing it across.
bool lies_across(const TensorView& out, const TensorView& self, int64_t dim) {
  return self.ndim == 2 && self.strides[1 - dim] == 1 && self.strides[dim] > 1 && out.strides[dim] == 1;
}
void turn(const TensorView& out, const TensorView& self, int64_t dim) {
  PointwiseLoop loop{};
  loop.ndim = 2, loop.noperands = 2, loop.numel = self.numel, loop.device = self.device;
  const int64_t size = element_size(self.dtype), order[2] = {dim, 1 - dim};
  const TensorView* const operands[2] = {&out, &self};
  for (int k = 0; k < 2; ++k) {
    loop.data[k] = static_cast<char*>(operands[k]->data);
    loop.dtypes[k] = self.dtype;
    for (int d = 0; d < 2; ++d)
      loop.shape[d] = self.sizes[order[d]], loop.strides[d][k] = operands[k]->strides[order[d]] * size;
  }
  loop.dtype = self.dtype;
  copy(loop);
}

template <bool kProduct>
void cumulate(const char* op, const TensorView& out, const TensorView& self, int64_t dim) {
  if (lies_across(out, self, dim)) {
    turn(out, self, dim);
    return cumulate<kProduct>(op, out, out, dim);
  }
  visit_wrapping_number(op, self.dtype, [&]<class T>(Tag<T>) {
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;
    if constexpr (!kProduct && std::is_same_v<A, float>) {
      run_scan(out, {}, self, dim, RunningSum<T>{{out.ptr<T>()}});
    } else {
      run_scan(out, {}, self, dim, RunningTotal<T, A, kProduct>{out.ptr<T>()});
    }
  });
}
void running_extremum(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self,
                      int64_t dim, bool largest) {
  visit_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    run_scan(values, indices, self, dim, RunningExtremum<T>{values.ptr<T>(), indices.ptr<int64_t>(), {largest}});
  });
}

}  // namespace

void cumsum(const TensorView& out, const TensorView& self, int64_t dim) { cumulate<false>("cumsum", out, self, dim); }
void sum_up(int64_t* numbers, int64_t count, int device) {
  const int64_t sizes[1] = {count}, strides[1] = {1};
  TensorView view;
  view.data = numbers;
  view.sizes = sizes;
  view.strides = strides;
  view.numel = count;
  view.ndim = 1;
  view.dtype = DType::Int64;
  view.device = Device(DeviceType::CUDA, device);
  cumsum(view, view, 0);
}
void cumprod(const TensorView& out, const TensorView& self, int64_t dim) { cumulate<true>("cumprod", out, self, dim); }
void cummax(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  running_extremum("cummax", values, indices, self, dim, true);
}
void cummin(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  running_extremum("cummin", values, indices, self, dim, false);
}
void logcumsumexp(const TensorView& out, const TensorView& self, int64_t dim) {
  visit_floating_complex("logcumsumexp", self.dtype, [&]<class T>(Tag<T>) {
    using A = std::conditional_t<is_complex_v<T>, complexd, double>;
    run_scan(out, {}, self, dim, RunningLogSum<T, A>{out.ptr<T>()});
  });
}

}  // namespace mica::cuda
