// sum, nansum, mean, prod, count_nonzero.
#include "backends/cuda/kernels.h"
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

// The sum, over `count`, which is one but for a mean. Integers meet in 64 bits, 16-bit floats in 32.
template <class I, class O>
struct Sum {
  static constexpr bool kRare = std::is_integral_v<O> && sizeof(O) < 8;
  using In = I;
  using Acc = std::conditional_t<std::is_integral_v<I>, int64_t, compute_t<I>>;
  Results<O> out;
  double count = 1;
  __device__ Acc identity() const { return Acc(0); }
  __device__ Acc load(In v, int64_t) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void store(Acc a, int64_t at, int64_t) const {
    if constexpr (is_complex_v<Acc>) {
      out.set(at, count == 1 ? a : a / static_cast<typename Acc::value_type>(count));
    } else if constexpr (std::is_floating_point_v<Acc>) {
      out.set(at, count == 1 ? a : a / static_cast<Acc>(count));
    } else {
      out.set(at, a);
    }
  }
};
template <class I>
struct NanSum : Sum<I, I> {
  static constexpr bool kRare = true;
  using A = typename Sum<I, I>::Acc;
  __device__ A load(I v, int64_t) const {
    const A x = convert<A>(v);
    return x != x ? A(0) : x;
  }
};
template <class I, class O>
struct Product : Sum<I, O> {
  static constexpr bool kRare = !std::is_same_v<I, half> && !std::is_same_v<I, bfloat16>;
  using A = typename Sum<I, O>::Acc;
  __device__ A identity() const { return A(1); }
  __device__ A combine(A a, A b) const { return a * b; }
};
template <class I>
struct CountNonzero : Sum<int64_t, int64_t> {
  static constexpr bool kRare = true;
  using In = I;
  Truth<I> truth;
  __device__ int64_t load(I v, int64_t) const { return truth(v); }
};

struct ProductOfTruths : CountNonzero<uint8_t> {
  __device__ int64_t identity() const { return 1; }
  __device__ int64_t combine(int64_t a, int64_t b) const { return a & b; }
};

// Calls f(In, Out).
template <class F>
void visit_sum(const char* op, const TensorView& out, const TensorView& self, const F& f) {
  const DType from = self.dtype;
  if (is_floating(from) || is_complex(from))
    return visit_floating_complex(op, from, [&]<class T>(Tag<T>) { f(Tag<T>{}, Tag<T>{}); });
  if (out.dtype == DType::Int64) {
    if (from == DType::UInt64) return f(Tag<int64_t>{}, Tag<int64_t>{});
    return visit_integral_bool(op, from, [&]<class T>(Tag<T>) {
      if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, uint64_t>) f(Tag<T>{}, Tag<int64_t>{});
    });
  }
  // Another integer dtype was asked for: the input has been converted to it.
  if (out.dtype != from) unsupported_dtype(op, out.dtype);
  visit_width(op, from, [&]<class T>(Tag<T>) { f(Tag<T>{}, Tag<T>{}); });
}

bool are_bools(const TensorView& out, const TensorView& self) {
  return out.dtype == DType::Bool && self.dtype == DType::Bool;
}

}  // namespace

void reduce_sum(const TensorView& out, const TensorView& self, uint64_t dims) {
  if (are_bools(out, self)) return reduce_any(out, self, dims);
  if (self.dtype == DType::Bool && out.dtype == DType::Int64) return reduce_count_nonzero(out, self, dims);
  visit_sum("sum", out, self, [&]<class I, class O>(Tag<I>, Tag<O>) {
    run_reduction(out, {}, self, dims, Sum<I, O>{{"sum", out}});
  });
}
void reduce_nansum(const TensorView& out, const TensorView& self, uint64_t dims) {
  if (!is_floating(self.dtype)) return reduce_sum(out, self, dims);
  visit_floating("nansum", self.dtype, [&]<class T>(Tag<T>) {
    run_reduction(out, {}, self, dims, NanSum<T>{{{"nansum", out}}});
  });
}
void reduce_mean(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_floating_complex("mean", self.dtype, [&]<class T>(Tag<T>) {
    run_reduction(out, {}, self, dims, Sum<T, T>{{"mean", out}, count_of(self, dims)});
  });
}
void reduce_prod(const TensorView& out, const TensorView& self, uint64_t dims) {
  if (are_bools(out, self)) return reduce_all(out, self, dims);
  if (self.dtype == DType::Bool && out.dtype == DType::Int64)
    return run_reduction(out, {}, self, dims, ProductOfTruths{{{{"prod", out}}, Truth<uint8_t>{0xff}}});
  visit_sum("prod", out, self, [&]<class I, class O>(Tag<I>, Tag<O>) {
    run_reduction(out, {}, self, dims, Product<I, O>{{{"prod", out}}});
  });
}
void reduce_count_nonzero(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    run_reduction(out, {}, self, dims, CountNonzero<T>{{{"count_nonzero", out}}, truth});
  });
}

}  // namespace mica::cuda
