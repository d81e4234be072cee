// sum, mean, prod.
#include "backends/cuda/kernels.h"
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

template <class I, class O, class A>
struct Sum {
  using In = I;
  using Out = O;
  using Acc = A;
  __device__ Acc identity() const { return Acc(0); }
  __device__ Acc load(In v) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ Out finish(Acc a) const { return convert<Out>(a); }
};
template <class I, class O, class A>
struct Mean : Sum<I, O, A> {
  double count;
  __device__ O finish(A a) const {
    if constexpr (is_complex_v<A>) {
      return convert<O>(a / static_cast<typename A::value_type>(count));
    } else {
      return convert<O>(a / static_cast<A>(count));
    }
  }
};
template <class I, class O, class A>
struct Product : Sum<I, O, A> {
  __device__ A identity() const { return A(1); }
  __device__ A combine(A a, A b) const { return a * b; }
};

// Calls f(In, Out, Acc): integers meet in 64 bits, 16-bit floats in 32, and come out as themselves or, where asked, as
// float32.
template <class F>
void visit_sum(const char* op, const TensorView& out, const TensorView& self, const F& f) {
  if (!is_floating(self.dtype) && !is_complex(self.dtype))
    return visit_integral_bool(op, self.dtype, [&]<class T>(Tag<T>) {
      if (out.dtype == DType::Int64) return f(Tag<T>{}, Tag<int64_t>{}, Tag<int64_t>{});
      // Another integer dtype was asked for: the input has been converted to it.
      if (out.dtype != self.dtype) unsupported_dtype(op, out.dtype);
      f(Tag<T>{}, Tag<T>{}, Tag<int64_t>{});
    });
  visit_floating_complex(op, self.dtype, [&]<class T>(Tag<T>) {
    if (out.dtype == self.dtype) return f(Tag<T>{}, Tag<T>{}, Tag<compute_t<T>>{});
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
      if (out.dtype == DType::Float32) return f(Tag<T>{}, Tag<float>{}, Tag<float>{});
    }
    unsupported_dtype(op, out.dtype);
  });
}

double count_of(const TensorView& self, uint64_t dims) {
  double count = 1;
  for (int d = 0; d < self.ndim; ++d)
    if (dims >> d & 1) count *= static_cast<double>(self.sizes[d]);
  return count;
}

}  // namespace

void reduce_sum(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_sum("sum", out, self,
            [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) { run_reduction(out, self, dims, Sum<I, O, A>{}); });
}
void reduce_mean(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_sum("mean", out, self, [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) {
    Mean<I, O, A> op;
    op.count = count_of(self, dims);
    run_reduction(out, self, dims, op);
  });
}
void reduce_prod(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_sum("prod", out, self, [&]<class I, class O, class A>(Tag<I>, Tag<O>, Tag<A>) {
    run_reduction(out, self, dims, Product<I, O, A>{});
  });
}

}  // namespace mica::cuda
