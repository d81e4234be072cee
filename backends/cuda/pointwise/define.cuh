// Short ways to define a pointwise kernel of one, two or three operands. Functors see values of the type that an
// element is computed in; a kernel that is called rarely has one loop, for any strides, and its function is compiled
// once and called, not written out for each element of a thread.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

template <class Out, class... In, class F>
void run_rare(const PointwiseLoop& loop, const F& f) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  PointwiseLoop whole = loop;
  for_each_piece(whole, [&](const PointwiseLoop& piece) {
    run_strided<Out, In...>(piece, Called<F>{f}, std::index_sequence_for<In...>{});
  });
}

// All loops for floats of 16 and 32 bits, and one for dtypes that come rarely.
template <class Out, class... In, class F>
void run_common(const PointwiseLoop& loop, const F& f) {
  if constexpr (is_short_float_v<Out>) {
    run_pointwise<Out, In...>(loop, f);
  } else {
    run_rare<Out, In...>(loop, f);
  }
}

// One answer for all elements: integers are finite, and unsigned ones are not negative.
struct Always {
  bool value;
  __device__ bool operator()() const { return value; }
};

#define MICA_RARE_1(slot, Name, visit, ...)                                                         \
  namespace {                                                                                       \
  template <class T>                                                                                \
  struct Name {                                                                                     \
    __device__ T operator()(T x) const { __VA_ARGS__ }                                              \
  };                                                                                                \
  }                                                                                                 \
  void slot(const PointwiseLoop& loop) {                                                            \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Name<compute_t<T>>{}); }); \
  }
#define MICA_RARE_2(slot, Name, visit, ...)                                                            \
  namespace {                                                                                          \
  template <class T>                                                                                   \
  struct Name {                                                                                        \
    __device__ T operator()(T x, T y) const { __VA_ARGS__ }                                            \
  };                                                                                                   \
  }                                                                                                    \
  void slot(const PointwiseLoop& loop) {                                                               \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T, T>(loop, Name<compute_t<T>>{}); }); \
  }

}  // namespace mica::cuda
