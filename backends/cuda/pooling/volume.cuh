// Volumes of (batch, channels, depth, height, width) in either order of memory, and sums that many threads add to.
#pragma once

#include <memory>

#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

struct Volume {
  int64_t channels, size[3];
  bool channels_last;

  __host__ __device__ int64_t places() const { return size[0] * size[1] * size[2]; }
  // The element at a place of a plane; planes are counted over batch and channels.
  __device__ int64_t at(int64_t plane, int64_t place) const {
    if (!channels_last) return plane * places() + place;
    return (plane / channels * places() + place) * channels + plane % channels;
  }
  // The plane and the position of element i of memory.
  __device__ void locate(int64_t i, int64_t& plane, int64_t (&position)[3]) const {
    if (i >> 31) {
      locate_in<int64_t>(i, plane, position);
    } else {
      locate_in<uint32_t>(static_cast<uint32_t>(i), plane, position);
    }
  }
  // A division of 32 bits is a fraction of the price.
  template <class N>
  __device__ void locate_in(N i, int64_t& plane, int64_t (&position)[3]) const {
    const N c = static_cast<N>(channels), n = static_cast<N>(places()), w = static_cast<N>(size[2]),
            h = static_cast<N>(size[1]);
    N place;
    if (channels_last) {
      const N pixel = i / c, image = pixel / n;
      place = pixel - image * n;
      plane = static_cast<int64_t>(image) * channels + (i - pixel * c);
    } else {
      const N p = i / n;
      place = i - p * n;
      plane = p;
    }
    const N row = place / w, deep = row / h;
    position[2] = place - row * w;
    position[1] = row - deep * h;
    position[0] = deep;
  }
};
inline Volume volume_of(const TensorView& t, bool channels_last) {
  return {t.sizes[1], {t.sizes[2], t.sizes[3], t.sizes[4]}, channels_last};
}

// Converts dense memory, four elements at a time.
template <class From, class To>
struct ConvertAll {
  static constexpr int V = 4;
  const From* from;
  To* to;
  int64_t n;
  bool aligned;
  __device__ void operator()(int64_t v) const {
    const int64_t i = v * V;
    if (aligned && i + V <= n) {
      const auto in = reinterpret_cast<const Vector<From, V>*>(from)[v];
      Vector<To, V> out;
#pragma unroll
      for (int j = 0; j < V; ++j) out.item[j] = convert<To>(in.item[j]);
      reinterpret_cast<Vector<To, V>*>(to)[v] = out;
    } else {
      for (int64_t j = i; j < i + V && j < n; ++j) to[j] = convert<To>(from[j]);
    }
  }
};

// Zeros to add to, one for each element of a dense tensor: its own memory, or float32 for 16-bit floats, which are
// rounded once, by finish().
template <class T>
class Sums {
 public:
  using A = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

  explicit Sums(const TensorView& out) : out_(out) {
    const int device = out.device.index();
    const auto bytes = static_cast<size_t>(out.numel) * sizeof(A);
    if constexpr (std::is_same_v<A, T>) {
      data_ = out.ptr<T>();
    } else {
      memory_ = std::make_unique<Workspace>(bytes, device);
      data_ = static_cast<A*>(memory_->data());
    }
    MICA_CUDA(cudaMemsetAsync(data_, 0, bytes, current_stream(device)));
  }
  A* data() const { return data_; }
  void finish() const {
    if constexpr (!std::is_same_v<A, T>)
      for_each(out_.device.index(), (out_.numel + 3) / 4,
               ConvertAll<A, T>{data_, out_.ptr<T>(), out_.numel, reinterpret_cast<uintptr_t>(out_.data) % 16 == 0});
  }

 private:
  const TensorView& out_;
  std::unique_ptr<Workspace> memory_;
  A* data_ = nullptr;
};

}  // namespace mica::cuda
