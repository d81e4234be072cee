// Where the largest and the smallest elements are.
#include "backends/cuda/reduce/limits.cuh"
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

template <class C>
struct Found {
  C value;
  int64_t index;
};

// A NaN wins, then the first of equal elements. Where only the index is wanted, `values` is null and indices are the
// first output.
template <class T>
struct Extremum {
  using In = T;
  using C = compute_t<T>;
  using Acc = Found<C>;
  T* values;
  int64_t* indices;
  Turned<C> turned;
  __device__ Acc identity() const { return {lowest<C>(), INT64_MAX}; }
  __device__ Acc load(T v, int64_t i) const { return {turned(convert<C>(v)), i}; }
  __device__ Acc combine(Acc a, Acc b) const {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool same = a_nan ? b_nan : a.value == b.value;
    if (same) return a.index < b.index ? a : b;
    return a_nan || (!b_nan && a.value > b.value) ? a : b;
  }
  // What comes later, in its order.
  template <int kCount>
  __device__ void absorb(Acc& a, const T (&v)[kCount], int64_t first) const {
    if (a.index == INT64_MAX) a = load(v[0], first);
    int which = -1;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C x = turned(convert<C>(v[j]));
      if (!(x <= a.value) && a.value == a.value) a.value = x, which = j;
    }
    if (which >= 0) a.index = first + which;
  }
  __device__ void store(Acc a, int64_t at, int64_t second) const {
    if (values) values[at] = convert<T>(turned(a.value));
    indices[values ? second : at] = a.index;
  }
};

void find(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self, uint64_t dims,
          bool largest) {
  visit_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    const Extremum<T> f{values.defined() ? values.ptr<T>() : nullptr, indices.ptr<int64_t>(), {largest}};
    if (values.defined()) return run_reduction(values, indices, self, dims, f);
    run_reduction(indices, {}, self, dims, f);
  });
}

}  // namespace

void reduce_argmax(const TensorView& out, const TensorView& self, uint64_t dims) {
  find("argmax", {}, out, self, dims, true);
}
void reduce_argmin(const TensorView& out, const TensorView& self, uint64_t dims) {
  find("argmin", {}, out, self, dims, false);
}
void reduce_max_with_index(const TensorView& values, const TensorView& indices, const TensorView& self, uint64_t dims) {
  find("max", values, indices, self, dims, true);
}
void reduce_min_with_index(const TensorView& values, const TensorView& indices, const TensorView& self, uint64_t dims) {
  find("min", values, indices, self, dims, false);
}

}  // namespace mica::cuda
