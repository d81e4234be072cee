// Short ways to define a pointwise kernel of one, two or three operands. Functors see values of the type that an
// element is computed in; a kernel that is called rarely has one loop, for any strides, and no second one for
// contiguous memory: it compiles in half the time.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

template <class Out, class... In, class F>
void run_rare(const PointwiseLoop& loop, const F& f) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  PointwiseLoop whole = loop;
  for_each_piece(
      whole, [&](const PointwiseLoop& piece) { run_strided<Out, In...>(piece, f, std::index_sequence_for<In...>{}); });
}

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
