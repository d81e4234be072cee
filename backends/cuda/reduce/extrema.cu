// amax, amin, aminmax, all, any.
#include "backends/cuda/reduce/limits.cuh"
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

// The largest, or the smallest. A NaN wins.
template <class T>
struct Extreme {
  using In = T;
  using Acc = compute_t<T>;
  T* out;
  Turned<Acc> turned;
  __device__ Acc identity() const { return lowest<Acc>(); }
  __device__ Acc load(T v, int64_t) const { return turned(convert<Acc>(v)); }
  __device__ Acc combine(Acc a, Acc b) const { return larger_or_nan(a, b); }
  __device__ void store(Acc a, int64_t at, int64_t) const { out[at] = convert<T>(turned(a)); }
};

template <class C>
struct Range {
  C low, high;
};
template <class T>
struct LowAndHigh {
  static constexpr bool kRare = true;
  using In = T;
  using C = compute_t<T>;
  using Acc = Range<C>;
  T *low, *high;
  __device__ Acc identity() const { return {highest<C>(), lowest<C>()}; }
  __device__ Acc load(T v, int64_t) const { return {convert<C>(v), convert<C>(v)}; }
  __device__ Acc combine(Acc a, Acc b) const {
    return {a.low != a.low || a.low < b.low ? a.low : b.low, a.high != a.high || a.high > b.high ? a.high : b.high};
  }
  __device__ void store(Acc a, int64_t at, int64_t second) const {
    low[at] = convert<T>(a.low);
    high[second] = convert<T>(a.high);
  }
};

// Whether any element is true; where `negated`, whether none is false. The result is a bool, or uint8 where the input
// was: both are one byte of 0 or 1.
template <class T>
struct Any {
  static constexpr bool kRare = sizeof(T) > 1;
  using In = T;
  using Acc = bool;
  uint8_t* out;
  Truth<T> truth;
  bool negated;
  __device__ bool identity() const { return false; }
  __device__ bool load(T v, int64_t) const { return truth(v) != negated; }
  __device__ bool combine(bool a, bool b) const { return a || b; }
  __device__ void store(bool a, int64_t at, int64_t) const { out[at] = a != negated; }
};

void any_or_all(const TensorView& out, const TensorView& self, uint64_t dims, bool all) {
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    run_reduction(out, {}, self, dims, Any<T>{out.ptr<uint8_t>(), truth, all});
  });
}
void extreme(const char* op, const TensorView& out, const TensorView& self, uint64_t dims, bool largest) {
  visit_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    run_reduction(out, {}, self, dims, Extreme<T>{out.ptr<T>(), {largest}});
  });
}

}  // namespace

void reduce_amax(const TensorView& out, const TensorView& self, uint64_t dims) {
  extreme("amax", out, self, dims, true);
}
void reduce_amin(const TensorView& out, const TensorView& self, uint64_t dims) {
  extreme("amin", out, self, dims, false);
}
void reduce_aminmax(const TensorView& min, const TensorView& max, const TensorView& self, uint64_t dims) {
  auto together = [&]<class T>(Tag<T>) {
    run_reduction(min, max, self, dims, LowAndHigh<T>{min.ptr<T>(), max.ptr<T>()});
  };
  if (self.dtype == DType::Float32) return together(Tag<float>{});
  if (self.dtype == DType::Float16) return together(Tag<half>{});
  if (self.dtype == DType::BFloat16) return together(Tag<bfloat16>{});
  extreme("aminmax", min, self, dims, false);
  extreme("aminmax", max, self, dims, true);
}
void reduce_any(const TensorView& out, const TensorView& self, uint64_t dims) { any_or_all(out, self, dims, false); }
void reduce_all(const TensorView& out, const TensorView& self, uint64_t dims) { any_or_all(out, self, dims, true); }

}  // namespace mica::cuda
