#include "backends/cuda/copy_rows.h"

#include "backends/cuda/strided.cuh"

namespace mica::cuda {

namespace {

// A row has `parts` parts; where it lies is worked out once for several elements of a thread.
struct RowMove {
  Offsets<2> rows;  // their beginnings
  uint32_t count, width, parts;
  char* to;
  const char* from;
  int64_t to_step, from_step;  // from element to element
};

template <class T>
inline constexpr int kRowEach = sizeof(T) <= 2 ? 8 : 4;  // loads of a thread that are under way at a time

template <class T>
__global__ void __launch_bounds__(kThreads) move_rows(RowMove m) {
  constexpr int kEach = kRowEach<T>;
  wait_for_predecessors();
  const uint32_t group = blockIdx.x / m.parts, part = blockIdx.x - group * m.parts;
  const uint32_t row = group * blockDim.y + threadIdx.y;
  if (row >= m.count) return;
  int64_t at[2];
  m.rows.at(row, at);
  const uint32_t step = blockDim.x, first = part * (step * kEach) + threadIdx.x;
  char* to = m.to + at[0] + first * m.to_step;
  const char* from = m.from + at[1] + first * m.from_step;
  T values[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (first + j * step < m.width) values[j] = *reinterpret_cast<const T*>(from + j * (step * m.from_step));
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (first + j * step < m.width) *reinterpret_cast<T*>(to + j * (step * m.to_step)) = values[j];
}

}  // namespace

bool copy_rows(const PointwiseLoop& loop, int64_t size) {
  constexpr int64_t kShortest = 128;
  if (loop.numel == 0 || loop.numbers || loop.shape[0] < kShortest) return false;
  // Dense rows are moved in the largest units that divide them.
  int64_t unit = size;
  if (loop.strides[0][0] == size && loop.strides[0][1] == size && loop.shape[0] <= kPieceElements) {
    auto bits = static_cast<uint64_t>(loop.shape[0] * size) | reinterpret_cast<uintptr_t>(loop.data[0]) |
                reinterpret_cast<uintptr_t>(loop.data[1]);
    for (int d = 1; d < loop.ndim; ++d) bits |= static_cast<uint64_t>(loop.strides[d][0] | loop.strides[d][1]);
    while (unit < 16 && bits % static_cast<uint64_t>(unit * 2) == 0) unit *= 2;
  }
  if (loop.shape[0] * size / unit < kShortest) return false;
  PointwiseLoop whole = loop;
  visit_size(unit, [&]<class T>(Tag<T>) {
    for_each_piece(whole, [&](const PointwiseLoop& piece) {
      constexpr uint32_t kEach = kRowEach<T>;
      RowMove m{};
      m.width = static_cast<uint32_t>(piece.shape[0] * size / unit);
      m.rows.ndim = piece.ndim - 1;
      m.count = 1;
      for (int d = 1; d < piece.ndim; ++d) {
        m.rows.sizes[d - 1] = Divider(static_cast<uint32_t>(piece.shape[d]));
        for (int k = 0; k < 2; ++k) m.rows.strides[d - 1][k] = piece.strides[d][k];
        m.count *= static_cast<uint32_t>(piece.shape[d]);
      }
      m.to = piece.data[0], m.from = piece.data[1];
      m.to_step = unit == size ? piece.strides[0][0] : unit;
      m.from_step = unit == size ? piece.strides[0][1] : unit;
      uint32_t across = 32;
      while (across < kThreads && across * kEach < m.width) across *= 2;
      const uint32_t down = kThreads / across;
      m.parts = blocks_for(m.width, across * kEach);
      launch<move_rows<T>>(piece.device.index(), blocks_for(m.count, down) * m.parts, dim3(across, down), m);
    });
  });
  return true;
}

}  // namespace mica::cuda
