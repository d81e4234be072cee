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
  Extent3 extent;  // the extent of the large plane
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

// Planes that are worked on together: one, or channels of one image that lie side by side.
struct Block {
  int64_t large, small;  // where it begins in either set
  int64_t channels;
  int64_t step;  // from one element of a plane to the next
};

// No two blocks share a plane. An image is split only where there are fewer images than threads.
template <class F>
void for_each_block(const Planes& p, const F& body) {
  const int64_t parts = !p.channels_last
                            ? p.channels
                            : std::min<int64_t>(p.channels, p.batch < get_num_threads() ? get_num_threads() : 1);
  const int64_t size = (p.large + p.small) * p.channels / parts;
  parallel_for(0, p.batch * parts, std::max<int64_t>(1, 16384 / size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / parts, part = i % parts;
      const int64_t first = p.channels * part / parts, last = p.channels * (part + 1) / parts;
      if (p.channels_last) {
        body(Block{image * p.large * p.channels + first, image * p.small * p.channels + first, last - first,
                   p.channels});
      } else {
        body(Block{i * p.large, i * p.small, 1, 1});
      }
    }
  });
}

template <class I>
void check_indices(const I* indices, const Planes& p, const Block& b) {
  if (b.step == b.channels) return check_indices(indices + b.small, p.small * b.channels, p);
  for (int64_t i = 0; i < p.small; ++i) check_indices(indices + b.small + i * b.step, b.channels, p);
}

// The larger planes from zeros, with `place(target, value)` for every element of the smaller ones.
template <class T, class I, class Place>
void scatter(T* out, const T* source, const I* indices, const Planes& p, const Place& place) {
  using S = typename Place::type;
  for_each_block(p, [&](const Block& b) {
    check_indices(indices, p, b);
    std::vector<S> sums;  // sums are kept apart where they have another type
    S* target;
    int64_t step = b.step;
    if constexpr (std::is_same_v<S, T>) {
      target = out + b.large;
      if (step == b.channels) {
        std::memset(static_cast<void*>(target), 0, static_cast<size_t>(p.large * step) * sizeof(T));
      } else {
        for (int64_t i = 0; i < p.large; ++i) std::fill_n(target + i * step, b.channels, T());
      }
    } else {
      sums.assign(static_cast<size_t>(p.large * b.channels), S(0));
      target = sums.data();
      step = b.channels;
    }
    for (int64_t i = 0; i < p.small; ++i) {
      const T* values = source + b.small + i * b.step;
      const I* where = indices + b.small + i * b.step;
      for (int64_t c = 0; c < b.channels; ++c) place(target[where[c] * step + c], values[c]);
    }
    if constexpr (!std::is_same_v<S, T>) {
      for (int64_t i = 0; i < p.large; ++i)
        for (int64_t c = 0; c < b.channels; ++c)
          out[b.large + i * b.step + c] = static_cast<T>(sums[i * b.channels + c]);
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
  for_each_block(p, [&](const Block& b) {
    check_indices(indices, p, b);
    for (int64_t i = 0; i < p.small; ++i) {
      const I* where = indices + b.small + i * b.step;
      for (int64_t c = 0; c < b.channels; ++c) out[b.small + i * b.step + c] = source[b.large + where[c] * b.step + c];
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
