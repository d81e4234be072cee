// amax, amin, all, any.
#include "backends/cuda/kernels.h"
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

template <class T>
__device__ T lowest() {
  if constexpr (std::is_same_v<T, bool>) {
    return false;
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? static_cast<T>(static_cast<T>(1) << (sizeof(T) * 8 - 1)) : T(0);
  } else {
    return -static_cast<T>(INFINITY);
  }
}
template <class T>
__device__ T highest() {
  if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(~lowest<T>());
  } else {
    return static_cast<T>(INFINITY);
  }
}

// A NaN wins.
template <class T>
struct Largest {
  using In = T;
  using Out = T;
  using Acc = compute_t<T>;
  __device__ Acc identity() const { return lowest<Acc>(); }
  __device__ Acc load(T v) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return a != a || a > b ? a : b; }
  __device__ T finish(Acc a) const { return convert<T>(a); }
};
template <class T>
struct Smallest : Largest<T> {
  using Acc = compute_t<T>;
  __device__ Acc identity() const { return highest<Acc>(); }
  __device__ Acc combine(Acc a, Acc b) const { return a != a || a < b ? a : b; }
};

// bool, or uint8 where the input was: both are one byte of 0 or 1.
template <class T>
struct Any {
  using In = T;
  using Out = uint8_t;
  using Acc = bool;
  __device__ bool identity() const { return false; }
  __device__ bool load(T v) const { return convert<bool>(v); }
  __device__ bool combine(bool a, bool b) const { return a || b; }
  __device__ uint8_t finish(bool a) const { return a; }
};
template <class T>
struct All : Any<T> {
  __device__ bool identity() const { return true; }
  __device__ bool combine(bool a, bool b) const { return a && b; }
};

}  // namespace

void reduce_amax(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_real_bool("amax", self.dtype, [&]<class T>(Tag<T>) { run_reduction(out, self, dims, Largest<T>{}); });
}
void reduce_amin(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_real_bool("amin", self.dtype, [&]<class T>(Tag<T>) { run_reduction(out, self, dims, Smallest<T>{}); });
}
void reduce_any(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_number_bool("any", self.dtype, [&]<class T>(Tag<T>) { run_reduction(out, self, dims, Any<T>{}); });
}
void reduce_all(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_number_bool("all", self.dtype, [&]<class T>(Tag<T>) { run_reduction(out, self, dims, All<T>{}); });
}

}  // namespace mica::cuda
