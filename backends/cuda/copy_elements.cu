#include "backends/cuda/copy_elements.h"

#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct CopyElements {
  Places<2> places;
  T* to;
  const T* from;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    to[at[0]] = from[at[1]];
  }
};

}  // namespace

void copy_elements(const TensorView& to, const TensorView& from) {
  visit_size(element_size(to.dtype), [&]<class T>(Tag<T>) {
    for_each(to.device.index(), to.numel, CopyElements<T>{places_of(to, from), to.ptr<T>(), from.ptr<const T>()});
  });
}

}  // namespace mica::cuda
