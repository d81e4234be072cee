// Calls a segment's code for a piece.
#include <algorithm>

#include "compiler/segments.h"

namespace mica::recording {

void prepare(PreparedSegment& p, const Segment& s, const PieceShape& piece) {
  const auto extent = [&](int d) { return d == piece.cut ? piece.range : s.shape[d]; };
  const auto stride = [&](int d, int k) { return s.operands[k]->strides[d]; };
  int64_t count = extent(s.inner), rows = 1;
  int64_t row_stride[Program::kStreams] = {};
  p.outer = 0;
  for (int d = s.inner - 1; d >= piece.cut; --d) {
    const int64_t n = extent(d);
    if (n == 1) continue;
    // Where no stream has a gap, a dimension makes the rows longer; where rows are evenly apart, it makes more of them.
    bool longer = rows == 1 && p.outer == 0, more = rows > 1 && p.outer == 0;
    for (int k = 0; k < s.streams; ++k) {
      longer = longer && stride(d, k) == count * Program::bytes_of(s.kinds[k]);
      more = more && stride(d, k) == row_stride[k] * rows;
    }
    if (longer) {
      count *= n;
    } else if (more) {
      rows *= n;
    } else if (rows == 1 && p.outer == 0) {
      rows = n;
      for (int k = 0; k < s.streams; ++k) row_stride[k] = stride(d, k);
    } else {
      p.extents[p.outer] = n;
      for (int k = 0; k < s.streams; ++k) p.strides[p.outer][k] = stride(d, k);
      ++p.outer;
    }
  }
  p.rows = rows;
  p.arguments.count = count;
  p.arguments.constants = s.constants;
  p.arguments.divisor = s.divisor;
  for (int k = 0; k < s.streams; ++k) p.arguments.skips[k] = row_stride[k] - count * Program::bytes_of(s.kinds[k]);
}

void execute(PreparedSegment& p, const Segment& s, char* const* addresses) {
  std::copy(addresses, addresses + s.streams, p.arguments.streams);
  int64_t index[kDims] = {};
  for (;;) {
    p.arguments.rows = p.rows;
    s.code(&p.arguments);
    int d = 0;
    for (; d < p.outer; ++d) {
      if (++index[d] < p.extents[d]) break;
      index[d] = 0;
    }
    if (d == p.outer) return;
    for (int k = 0; k < s.streams; ++k) {
      char* at = addresses[k];
      for (int o = 0; o < p.outer; ++o) at += index[o] * p.strides[o][k];
      p.arguments.streams[k] = at;
    }
  }
}

}  // namespace mica::recording
