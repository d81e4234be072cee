// Element access with indices: x.accessor<float, 2>()[i][j]. Nothing is checked but the type and the number of
// dimensions, once. A packed accessor carries sizes and strides by value, so that a CUDA kernel can take it.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define MICA_HOST_DEVICE __host__ __device__
#else
#define MICA_HOST_DEVICE
#endif

namespace mica {

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

// Sizes and strides are those of the tensor it came from: it must not outlive them.
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;

  MICA_HOST_DEVICE TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}

  MICA_HOST_DEVICE decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[strides_[0] * i]);
    } else {
      return TensorAccessor<T, N - 1, PtrTraits, Index>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
  }
  MICA_HOST_DEVICE Index size(size_t d) const { return sizes_[d]; }
  MICA_HOST_DEVICE Index stride(size_t d) const { return strides_[d]; }
  MICA_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  const Index *sizes_, *strides_;
};

template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
class PackedTensorAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;

  PackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t d = 0; d < N; ++d) {
      sizes_[d] = static_cast<Index>(sizes[d]);
      strides_[d] = static_cast<Index>(strides[d]);
    }
  }

  MICA_HOST_DEVICE decltype(auto) operator[](Index i) const {
    return TensorAccessor<T, N, PtrTraits, Index>(data_, sizes_, strides_)[i];
  }
  MICA_HOST_DEVICE Index size(size_t d) const { return sizes_[d]; }
  MICA_HOST_DEVICE Index stride(size_t d) const { return strides_[d]; }
  MICA_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  Index sizes_[N], strides_[N];
};

template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, PtrTraits, int32_t>;
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, PtrTraits, int64_t>;

}  // namespace mica
