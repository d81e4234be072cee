// Borders made of the tensor itself: rows are copied, their ends element by element.
#include <cstring>

#include "backends/cpu/pooling/windows.h"
#include "backends/cpu/register.h"
#include "backends/cpu/upsampling/edges.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

template <class E>
void copy_ends(const E* from, E* to, const std::vector<int64_t>& sources, int64_t begin, int64_t end) {
  for (int64_t o = begin; o < end; ++o) to[o] = from[sources[o]];
}

// Elements of `bytes` each, which may be all channels of a pixel.
void copy_ends(const char* from, char* to, int64_t bytes, const std::vector<int64_t>& sources, int64_t begin,
               int64_t end) {
  switch (bytes) {
    case 1:
      return copy_ends(from, to, sources, begin, end);
    case 2:
      return copy_ends(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to), sources, begin, end);
    case 4:
      return copy_ends(reinterpret_cast<const uint32_t*>(from), reinterpret_cast<uint32_t*>(to), sources, begin, end);
    case 8:
      return copy_ends(reinterpret_cast<const uint64_t*>(from), reinterpret_cast<uint64_t*>(to), sources, begin, end);
    default:
      for (int64_t o = begin; o < end; ++o)
        std::memcpy(to + o * bytes, from + sources[o] * bytes, static_cast<size_t>(bytes));
  }
}

void pad_edges(const TensorView& out, const TensorView& self, std::string_view mode, IntArrayRef before,
               bool channels_last) {
  const Extent3 in = spatial(self), to = spatial(out);
  std::vector<int64_t> sources[3];
  for (int a = 0; a < 3; ++a) sources[a] = edge_sources(mode, in[a], to[a], before[a]);
  const int64_t channels = channels_last ? self.size(1) : 1, bytes = element_size(self.dtype) * channels;
  const int64_t rows = out.size(0) * out.size(1) / channels * to[0] * to[1];
  // The outputs that continue a row of the input as it is.
  const int64_t first = std::clamp<int64_t>(before[2], 0, to[2]);
  const int64_t last = std::clamp<int64_t>(in[2] + before[2], first, to[2]);
  parallel_for(0, rows, std::max<int64_t>(1, 65536 / (to[2] * bytes)), [&](int64_t begin, int64_t end) {
    Position p = Position::of_row(begin, to);
    for (int64_t row = begin; row < end; ++row, p.next_row(to)) {
      const char* from =
          self.ptr<const char>() + ((p.plane * in[0] + sources[0][p.d]) * in[1] + sources[1][p.h]) * in[2] * bytes;
      char* target = out.ptr<char>() + row * to[2] * bytes;
      copy_ends(from, target, bytes, sources[2], 0, first);
      std::memcpy(target + first * bytes, from + (first - before[2]) * bytes,
                  static_cast<size_t>((last - first) * bytes));
      copy_ends(from, target, bytes, sources[2], last, to[2]);
    }
  });
}

MICA_REGISTER_CPU(pad_edges, pad_edges);

}  // namespace

}  // namespace mica::cpu
