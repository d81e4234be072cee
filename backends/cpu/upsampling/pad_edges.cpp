// Borders made of the tensor itself: rows are copied, their ends element by element.
#include <cstring>

#include "backends/cpu/pooling/windows.h"
#include "backends/cpu/register.h"
#include "backends/cpu/upsampling/edges.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kPieceBytes = 65536;

template <class E>
void copy_ends(const E* from, E* to, const EdgeSources& sources, int64_t begin, int64_t end) {
  for (int64_t o = begin; o < end; ++o) to[o] = from[sources[o]];
}

// Elements of `bytes` each, which may be all channels of a pixel.
void copy_ends(const char* from, char* to, int64_t bytes, const EdgeSources& sources, int64_t begin, int64_t end) {
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
  const auto source = [&](int a) { return EdgeSources(mode, in[a], to[a], before[a]); };
  const EdgeSources sources[3] = {source(0), source(1), source(2)};
  const int64_t channels = channels_last ? self.size(1) : 1, bytes = element_size(self.dtype) * channels;
  const int64_t rows = out.size(0) * out.size(1) / channels * to[0] * to[1];
  // The outputs that continue a row of the input as it is.
  const int64_t first = std::clamp<int64_t>(before[2], 0, to[2]);
  const int64_t last = std::clamp<int64_t>(in[2] + before[2], first, to[2]);
  // Long rows are shared between threads too.
  const int64_t width = std::min(to[2], std::max<int64_t>(1, kPieceBytes / bytes));
  const int64_t parts = width == 0 ? 0 : (to[2] + width - 1) / width;
  const int64_t grain = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, width * bytes));
  parallel_for(0, rows * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / parts, from_column = piece % parts * width;
      const int64_t to_column = std::min(from_column + width, to[2]);
      const Position p = Position::of_row(row, to);
      const char* from =
          self.ptr<const char>() + ((p.plane * in[0] + sources[0][p.d]) * in[1] + sources[1][p.h]) * in[2] * bytes;
      char* target = out.ptr<char>() + row * to[2] * bytes;
      const int64_t plain = std::clamp(first, from_column, to_column), behind = std::clamp(last, plain, to_column);
      copy_ends(from, target, bytes, sources[2], from_column, plain);
      if (behind > plain)
        std::memcpy(target + plain * bytes, from + (plain - before[2]) * bytes,
                    static_cast<size_t>((behind - plain) * bytes));
      copy_ends(from, target, bytes, sources[2], behind, to_column);
    }
  });
}

MICA_REGISTER_CPU(pad_edges, pad_edges);

}  // namespace

}  // namespace mica::cpu
