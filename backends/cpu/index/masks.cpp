// Selection by a mask. Elements are counted by chunk first, so that every chunk knows where its part of the result
// begins.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/index/masks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "backends/cpu/index/chunks.h"
#include "backends/cpu/index/element_bytes.h"
#include "backends/cpu/simd_register.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Packs the elements of [from, from + n) where the mask holds into [to, end). It is known that they fill that range.
template <class T>
HWY_ATTR void pack_scalar(const T* from, const uint8_t* mask, int64_t n, T* to, T* end) {
  for (int64_t i = 0; i < n && to < end;) {
    uint64_t eight = 1;
    if (i + 8 <= n) std::memcpy(&eight, mask + i, 8);
    const int64_t stop = !eight ? i : i + 8 < n ? i + 8 : n;
    // An element is always written and only counted if it is wanted, while there is room for it.
    for (int64_t k = i; k < stop && to < end; ++k) {
      *to = from[k];
      to += mask[k] != 0;
    }
    i = !eight ? i + 8 : stop;
  }
}

// Highway packs lanes of 2, 4 and 8 bytes; a store may write a whole vector, so the last ones go one by one.
template <class T>
HWY_ATTR void pack(const T* from, const uint8_t* mask, int64_t n, T* to, T* end) {
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) {
    const hn::ScalableTag<T> d;
    const hn::ScalableTag<uint8_t> d8;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto bytes = static_cast<int64_t>(hn::Lanes(d8));
    // A step reads one vector of mask bytes: sizeof(T) vectors of elements.
    for (; n >= bytes && end - to >= bytes; n -= bytes, from += bytes, mask += bytes) {
      alignas(8) uint8_t bits[8 + 8] = {};
      hn::StoreMaskBits(d8, hn::Ne(hn::LoadU(d8, mask), hn::Zero(d8)), bits);
      uint64_t word;
      std::memcpy(&word, bits, 8);
      if (!word) continue;
      for (int64_t k = 0; k < bytes; k += lanes) {
        alignas(8) uint8_t part[8];
        const uint64_t shifted = word >> k;
        std::memcpy(part, &shifted, 8);
        to += hn::CompressStore(hn::LoadU(d, from + k), hn::LoadMaskBits(d, part), d, to);
      }
    }
  }
  pack_scalar(from, mask, n, to, end);
}

template <class T>
HWY_ATTR void unpack(T* to, const uint8_t* mask, int64_t n, const T* from, const T* end) {
  for (int64_t i = 0; i < n && from < end; ++i) {
    to[i] = mask[i] ? *from : to[i];
    from += mask[i] != 0;
  }
}

void masked_select_kernel(const TensorView& out, const TensorView& self, const TensorView& mask,
                          const TensorView& offsets) {
  visit_element_size(element_size(self.dtype), [&]<class T>(Tag<T>) {
    for_each_chunk(self.numel, offsets, [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
      pack(self.ptr<const T>() + begin, mask.ptr<const uint8_t>() + begin, end - begin, out.ptr<T>() + first,
           out.ptr<T>() + last);
    });
  });
}

void masked_scatter_kernel(const TensorView& self, const TensorView& mask, const TensorView& source,
                           const TensorView& offsets) {
  visit_element_size(element_size(self.dtype), [&]<class T>(Tag<T>) {
    for_each_chunk(self.numel, offsets, [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
      auto* from = source.ptr<const T>();
      unpack(self.ptr<T>() + begin, mask.ptr<const uint8_t>() + begin, end - begin, from + first, from + last);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(masked_select_kernel);
HWY_EXPORT(masked_scatter_kernel);
MICA_REGISTER_SIMD(masked_select, masked_select_kernel);
MICA_REGISTER_SIMD(masked_scatter, masked_scatter_kernel);
}  // namespace mica::cpu
#endif
