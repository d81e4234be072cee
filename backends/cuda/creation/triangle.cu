// tril and triu. What is not kept is not read.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kEach = 4;  // loads of a thread that are under way at a time

struct Triangle {
  int64_t rows, columns, diagonal;
  bool upper;
  Places<2> outer;  // what the kernel walks over beside the columns: the output and the input
  int64_t out_rows, in_rows, out_columns, in_columns;  // strides

  // Of the elements from a place on, the lower triangle keeps number k where k <= reach, the upper one where k >=
  // reach.
  __device__ int64_t reach(int64_t row, int64_t column) const { return row + diagonal - column; }
};

// A row has `parts` parts, each of kEach times blockDim.x vectors; threads along y have rows of their own.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) keep_rows(Triangle t, Divider rows, unsigned parts, T* out, const T* in) {
  using Piece = Vector<T, V>;
  wait_for_predecessors();
  const unsigned group = blockIdx.x / parts, part = blockIdx.x - group * parts;
  const int64_t number = static_cast<int64_t>(group) * blockDim.y + threadIdx.y;
  if (number >= t.outer.numel) return;
  int64_t at[2], row;
  t.outer.at(number, at);
  if (t.outer.narrow) {
    const auto n = static_cast<uint32_t>(number);
    row = n - rows.divide(n) * rows.divisor;
  } else {
    row = number % t.rows;
  }
  const int64_t first = (static_cast<int64_t>(part) * (kEach * blockDim.x) + threadIdx.x) * V;
  Piece pieces[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int64_t column = first + j * static_cast<int>(blockDim.x) * V, reach = t.reach(row, column);
    if (column < t.columns && (t.upper ? reach < V : reach >= 0))
      pieces[j] = *reinterpret_cast<const Piece*>(in + at[1] + column * t.in_columns);
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int64_t column = first + j * static_cast<int>(blockDim.x) * V, reach = t.reach(row, column);
    if (column >= t.columns) break;
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (t.upper ? k < reach : k > reach) pieces[j].item[k] = T{};
    *reinterpret_cast<Piece*>(out + at[0] + column * t.out_columns) = pieces[j];
  }
}

template <class T>
constexpr int kSide = sizeof(T) <= 2 ? 64 : 32;

// The columns of the input lie together and the rows of the output: tiles are turned in shared memory.
template <class T>
__global__ void __launch_bounds__(kThreads) keep_turned(Triangle t, int64_t across, int64_t down, T* out, const T* in) {
  constexpr int S = kSide<T>, kStep = kThreads / S;
  __shared__ T tile[S][S + 1];
  wait_for_predecessors();
  const int64_t stripe = blockIdx.x / across, batch = stripe / down;
  const int64_t column0 = (blockIdx.x - stripe * across) * S, row0 = (stripe - batch * down) * S;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  int64_t at[2];
  t.outer.at(batch, at);
  in += at[1], out += at[0];
  if (t.upper ? t.reach(row0, column0) < S : t.reach(row0, column0) > -S) {
    const int64_t row = row0 + x;
#pragma unroll
    for (int k = 0; k < S; k += kStep) {
      const int64_t column = column0 + y + k;
      if (row < t.rows && column < t.columns) tile[y + k][x] = in[row + column * t.in_columns];
    }
  }
  __syncthreads();
  const int64_t column = column0 + x;
  if (column >= t.columns) return;
#pragma unroll
  for (int k = 0; k < S; k += kStep) {
    const int64_t row = row0 + y + k, reach = t.reach(row, column);
    if (row >= t.rows) break;
    out[row * t.out_rows + column] = (t.upper ? reach <= 0 : reach >= 0) ? tile[x][y + k] : T{};
  }
}

template <class T, int V>
void run_rows(const Triangle& t, T* out, const T* in, int device) {
  const int64_t vectors = t.columns / V;
  unsigned across = 1;
  while (across < kThreads && across * kEach < vectors) across *= 2;
  const unsigned down = kThreads / across;
  const int64_t parts = (vectors + across * kEach - 1) / (across * kEach);
  const int64_t blocks = (t.outer.numel + down - 1) / down * parts;
  MICA_CHECK(blocks < (int64_t{1} << 31), "tril and triu do not take so many elements on a GPU");
  launch<keep_rows<T, V>>(device, static_cast<unsigned>(blocks), dim3(across, down), t,
                          Divider(static_cast<uint32_t>(t.outer.narrow ? t.rows : 1)), static_cast<unsigned>(parts),
                          out, in);
}

}  // namespace

void triangle(const TensorView& out, const TensorView& self, int64_t diagonal, bool upper) {
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  int r = out.ndim - 2, c = out.ndim - 1;
  if (out.strides[r] == 1 && out.strides[c] != 1) {  // the other way round, the rows of the output lie together
    std::swap(r, c);
    diagonal = -diagonal;
    upper = !upper;
  }
  Triangle t{out.sizes[r],   out.sizes[c],    diagonal,       upper,          {},
             out.strides[r], self.strides[r], out.strides[c], self.strides[c]};
  const bool turned = t.in_rows == 1 && t.in_columns != 1 && t.out_columns == 1 && t.rows >= 32 && t.columns >= 32;
  if (!turned) t.outer.add(t.rows, {t.out_rows, t.in_rows});
  for (int d = out.ndim - 3; d >= 0; --d) t.outer.add(out.sizes[d], {out.strides[d], self.strides[d]});
  t.outer.finish();
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    auto* to = out.ptr<T>();
    const auto* from = self.ptr<const T>();
    if (turned) {
      const int64_t across = (t.columns + kSide<T> - 1) / kSide<T>, down = (t.rows + kSide<T> - 1) / kSide<T>;
      const int64_t blocks = across * down * t.outer.numel;
      MICA_CHECK(blocks < (int64_t{1} << 31), "tril and triu do not take so many elements on a GPU");
      return launch<keep_turned<T>>(device, static_cast<unsigned>(blocks), kThreads, t, across, down, to, from);
    }
    constexpr int V = 16 / static_cast<int>(sizeof(T));
    if constexpr (V > 1) {
      const auto apart = [&](const TensorView& view) {
        int64_t bits = 0;
        for (int d = 0; d < view.ndim; ++d)
          if (d != c && view.sizes[d] > 1) bits |= view.strides[d];
        return bits % V || reinterpret_cast<uintptr_t>(view.data) % 16;
      };
      if (t.out_columns == 1 && t.in_columns == 1 && t.columns % V == 0 && !apart(out) && !apart(self))
        return run_rows<T, V>(t, to, from, device);
    }
    run_rows<T, 1>(t, to, from, device);
  });
}

}  // namespace mica::cuda
