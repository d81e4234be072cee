// Moves between planes and the places in them that indices name: what max pooling's derivatives and unpooling do.
#include <cstring>
#include <type_traits>
#include <vector>

#include "backends/cpu/pooling/visit.h"
#include "backends/cpu/pooling/windows.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// A set of planes of `large` elements, beside one of `small` elements each with an index into the large plane.
struct Planes {
  int64_t batch, channels, large, small;
  Extent3 extent;  // of the large plane
  bool channels_last;
};

Planes planes(const TensorView& large, const TensorView& small, bool channels_last) {
  return {large.size(0), large.size(1), volume(spatial(large)), volume(spatial(small)), spatial(large), channels_last};
}

[[noreturn]] void index_outside(int64_t index, const Extent3& e) {
  fail(cat("Found an invalid max index: ", index, " (output volumes are of size ",
           e[0] > 1 ? cat(e[0], "x", e[1], "x", e[2]) : cat(e[1], "x", e[2]), ")"));
}

template <class I>
void check_indices(const I* indices, int64_t n, const Planes& p) {
  bool inside = true;
  const auto limit = static_cast<uint64_t>(p.large);
  for (int64_t i = 0; i < n; ++i) inside &= static_cast<uint64_t>(static_cast<int64_t>(indices[i])) < limit;
  if (inside) return;
  for (int64_t i = 0; i < n; ++i)
    if (indices[i] < 0 || indices[i] >= p.large) index_outside(indices[i], p.extent);
}

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

// Channels of one image that are worked on together when they lie side by side.
constexpr int64_t kChannelBlock = 16;

// Calls body(image, first channel, how many) so that no two calls share a plane.
template <class F>
void for_each_block(const Planes& p, const F& body) {
  const int64_t block = p.channels_last ? kChannelBlock : 1;
  const int64_t blocks = (p.channels + block - 1) / block;
  const int64_t grain = std::max<int64_t>(1, 16384 / ((p.large + p.small) * block));
  parallel_for(0, p.batch * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % blocks * block;
      body(i / blocks, c, std::min(block, p.channels - c));
    }
  });
}

// The larger plane from zeros, with `place(target, value)` for every element of the smaller one.
template <class T, class I, class Place>
void scatter(T* out, const T* source, const I* indices, const Planes& p, const Place& place) {
  // A target that is summed in another type is summed apart.
  constexpr bool kDirect = std::is_same_v<typename Place::type, T>;
  using S = typename Place::type;
  for_each_block(p, [&](int64_t image, int64_t c, int64_t count) {
    const int64_t step = p.channels_last ? p.channels : 1;
    const int64_t at = p.channels_last ? image * p.large * p.channels + c : (image * p.channels + c) * p.large;
    const int64_t from = p.channels_last ? image * p.small * p.channels + c : (image * p.channels + c) * p.small;
    const int64_t width = p.channels_last ? count : 1;
    thread_local std::vector<S> buffer;
    S* target;
    int64_t target_step;
    if constexpr (kDirect) {
      target = out + at;
      target_step = step;
      if (step == 1) {
        std::memset(static_cast<void*>(target), 0, static_cast<size_t>(p.large) * sizeof(T));
      } else {
        for (int64_t i = 0; i < p.large; ++i) std::fill_n(target + i * step, width, T());
      }
    } else {
      buffer.assign(static_cast<size_t>(p.large * width), S(0));
      target = buffer.data();
      target_step = width;
    }
    if (step == 1) check_indices(indices + from, p.small, p);
    for (int64_t i = 0; i < p.small; ++i) {
      const T* values = source + from + i * step;
      const I* where = indices + from + i * step;
      for (int64_t k = 0; k < width; ++k) {
        const int64_t index = where[k];
        if (step != 1 && static_cast<uint64_t>(index) >= static_cast<uint64_t>(p.large)) index_outside(index, p.extent);
        place(target[index * target_step + k], values[k]);
      }
    }
    if constexpr (!kDirect) {
      for (int64_t i = 0; i < p.large; ++i)
        for (int64_t k = 0; k < width; ++k) out[at + i * step + k] = static_cast<T>(buffer[i * width + k]);
    }
  });
}

template <class T>
struct Assign {
  using type = T;
  void operator()(T& to, T value) const { to = value; }
};
template <class T>
struct Accumulate {
  using type = Sum<T>;
  void operator()(type& to, T value) const { to += static_cast<type>(value); }
};

template <class T, class I>
void gather(T* out, const T* source, const I* indices, const Planes& p) {
  for_each_block(p, [&](int64_t image, int64_t c, int64_t count) {
    const int64_t step = p.channels_last ? p.channels : 1, width = p.channels_last ? count : 1;
    const int64_t at = p.channels_last ? image * p.large * p.channels + c : (image * p.channels + c) * p.large;
    const int64_t to = p.channels_last ? image * p.small * p.channels + c : (image * p.channels + c) * p.small;
    for (int64_t i = 0; i < p.small; ++i) {
      for (int64_t k = 0; k < width; ++k) {
        const int64_t index = indices[to + i * step + k];
        if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(p.large)) index_outside(index, p.extent);
        out[to + i * step + k] = source[at + index * step + k];
      }
    }
  });
}

void plane_scatter_add(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  const Planes p = planes(out, source, channels_last);
  visit_floating("max_pool2d_backward", out.dtype, [&]<class T>(Tag<T>) {
    visit_index(indices.dtype, [&]<class I>(Tag<I>) {
      scatter(out.ptr<T>(), source.ptr<const T>(), indices.ptr<const I>(), p, Accumulate<T>());
    });
  });
}

void plane_scatter(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  const Planes p = planes(out, source, channels_last);
  visit_floating("max_unpool2d", out.dtype, [&]<class T>(Tag<T>) {
    scatter(out.ptr<T>(), source.ptr<const T>(), indices.ptr<const int64_t>(), p, Assign<T>());
  });
}

void plane_gather(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  const Planes p = planes(source, out, channels_last);
  visit_floating("max_unpool2d_backward", out.dtype, [&]<class T>(Tag<T>) {
    visit_index(indices.dtype,
                [&]<class I>(Tag<I>) { gather(out.ptr<T>(), source.ptr<const T>(), indices.ptr<const I>(), p); });
  });
}

MICA_REGISTER_CPU(plane_scatter_add, plane_scatter_add);
MICA_REGISTER_CPU(plane_scatter, plane_scatter);
MICA_REGISTER_CPU(plane_gather, plane_gather);

}  // namespace

}  // namespace mica::cpu
