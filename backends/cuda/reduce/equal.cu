// Whether two tensors are equal.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Differ {
  const T *a, *b;
  Places<2> places;
  int* found;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    if (!(widen(a[at[0]]) == widen(b[at[1]]))) *found = 1;
  }
};

}  // namespace

void equal(const TensorView& self, const TensorView& other, bool* result) {
  *result = true;
  if (self.numel == 0) return;
  const int device = self.device.index();
  DeviceGuard guard(device);
  const Workspace flag(sizeof(int), device);
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemsetAsync(flag.data(), 0, sizeof(int), stream));
  visit_any("equal", self.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, complexh>) {
      unsupported_dtype("equal", self.dtype);
    } else {
      for_each(
          device, self.numel,
          Differ<T>{self.ptr<const T>(), other.ptr<const T>(), places_of(self, other), static_cast<int*>(flag.data())});
    }
  });
  int found = 0;
  read_back(&found, flag.data(), sizeof found, device);
  *result = !found;
}

}  // namespace mica::cuda
