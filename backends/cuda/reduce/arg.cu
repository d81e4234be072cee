// Where the largest and the smallest elements are.
#include "backends/cuda/reduce/limits.cuh"
#include "backends/cuda/reduce/reduce.cuh"
#include "backends/cuda/sort/order_key.cuh"

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
  // The largest of a warp, and the first index that has it, by instructions that look at all lanes.
  __device__ Acc join_warp(Acc a) const requires(sizeof(C) <= 4) {
    constexpr uint32_t kNone = ~0u, kAll = ~0u;
    const auto key = static_cast<uint32_t>(order_key(a.value));
    const auto high = static_cast<uint32_t>(a.index >> 32), low = static_cast<uint32_t>(a.index);
    bool wins = key == __reduce_max_sync(kAll, key);
    const uint32_t first_high = __reduce_min_sync(kAll, wins ? high : kNone);
    wins = wins && high == first_high;
    const uint32_t first_low = __reduce_min_sync(kAll, wins ? low : kNone);
    const int lane = __ffs(static_cast<int>(__ballot_sync(kAll, wins && low == first_low))) - 1;
    return {static_cast<C>(__shfl_sync(kAll, a.value, lane)),
            static_cast<int64_t>(static_cast<uint64_t>(first_high) << 32 | first_low)};
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
