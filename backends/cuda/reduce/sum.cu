// sum, nansum, mean, prod, count_nonzero.
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

// The sum, over `count`, which is one but for a mean.
template <class I, class O, class A>
struct Sum {
  using In = I;
  using Acc = A;
  O* out;
  double count = 1;
  __device__ Acc identity() const { return Acc(0); }
  __device__ Acc load(In v, int64_t) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void store(Acc a, int64_t at, int64_t) const {
    if constexpr (is_complex_v<A>) {
      out[at] = convert<O>(count == 1 ? a : a / static_cast<typename A::value_type>(count));
    } else if constexpr (std::is_floating_point_v<A>) {
      out[at] = convert<O>(count == 1 ? a : a / static_cast<A>(count));
    } else {
      out[at] = convert<O>(a);
    }
  }
};
template <class I, class O, class A>
struct NanSum : Sum<I, O, A> {
  static constexpr bool kRare = true;
  __device__ A load(I v, int64_t) const {
    const A x = convert<A>(v);
    return x != x ? A(0) : x;
  }
};
template <class I, class O, class A>
struct Product : Sum<I, O, A> {
  static constexpr bool kRare = true;
  __device__ A identity() const { return A(1); }
  __device__ A combine(A a, A b) const { return a * b; }
};
template <class I>
struct CountNonzero : Sum<I, int64_t, int64_t> {
  static constexpr bool kRare = true;
  Truth<I> truth;
  __device__ int64_t load(I v, int64_t) const { return truth(v); }
};

// Calls f(In, Out, Acc): integers meet in 64 bits, 16-bit floats in 32, and come out as themselves or, where asked, as
// float32.
template <class F>
void visit_sum(const char* op, const TensorView& out, const TensorView& self, const F& f) {
  if (!is_floating(self.dtype) && !is_complex(self.dtype)) {
    if (out.dtype == DType::Int64)
      return visit_integral_bool(op, self.dtype, [&]<class T>(Tag<T>) { f(Tag<T>{}, Tag<int64_t>{}, Tag<int64_t>{}); });
    // Another integer dtype was asked for: the input has been converted to it.
    if (out.dtype != self.dtype) unsupported_dtype(op, out.dtype);
    if (self.dtype == DType::Bool) return f(Tag<bool>{}, Tag<bool>{}, Tag<int64_t>{});
    return visit_width(op, self.dtype, [&]<class T>(Tag<T>) { f(Tag<T>{}, Tag<T>{}, Tag<int64_t>{}); });
  }
  visit_floating_complex(op, self.dtype, [&]<class T>(Tag<T>) {
    if (out.dtype == self.dtype) return f(Tag<T>{}, Tag<T>{}, Tag<compute_t<T>>{});
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
      if (out.dtype == DType::Float32) return f(Tag<T>{}, Tag<float>{}, Tag<float>{});
    }
    unsupported_dtype(op, out.dtype);
  });
}

}  // namespace

void reduce_sum(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_sum("sum", out, self, [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) {
    run_reduction(out, {}, self, dims, Sum<I, O, A>{out.ptr<O>()});
  });
}
void reduce_nansum(const TensorView& out, const TensorView& self, uint64_t dims) {
  if (!is_floating(self.dtype)) return reduce_sum(out, self, dims);
  visit_floating("nansum", self.dtype, [&]<class T>(Tag<T>) {
    using A = compute_t<T>;
    if (out.dtype == self.dtype) return run_reduction(out, {}, self, dims, NanSum<T, T, A>{{out.ptr<T>()}});
    if constexpr (sizeof(T) == 2) {
      if (out.dtype == DType::Float32)
        return run_reduction(out, {}, self, dims, NanSum<T, float, A>{{out.ptr<float>()}});
    }
    unsupported_dtype("nansum", out.dtype);
  });
}
void reduce_mean(const TensorView& out, const TensorView& self, uint64_t dims) {
  if (!is_floating(self.dtype) && !is_complex(self.dtype)) unsupported_dtype("mean", self.dtype);
  visit_sum("mean", out, self, [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) {
    if constexpr (!std::is_integral_v<I>)
      run_reduction(out, {}, self, dims, Sum<I, O, A>{out.ptr<O>(), count_of(self, dims)});
  });
}
void reduce_prod(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_sum("prod", out, self, [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) {
    run_reduction(out, {}, self, dims, Product<I, O, A>{{out.ptr<O>()}});
  });
}
void reduce_count_nonzero(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    run_reduction(out, {}, self, dims, CountNonzero<T>{{out.ptr<int64_t>()}, truth});
  });
}

}  // namespace mica::cuda
