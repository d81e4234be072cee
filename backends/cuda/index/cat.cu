// cat.
#include "backends/cuda/context.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kPieces = 64;

// Contiguous inputs: in every row of the output, a piece of each in turn. In units of T.
template <class T>
struct Pieces {
  int count;
  T* out;
  const T* data[kPieces];
  int64_t widths[kPieces], starts[kPieces];
  Divider dividers[kPieces];  // by the widths
  int64_t row;
};

constexpr int kEach = 4;  // loads of a thread that are under way at a time

// blockIdx.y is the piece; its elements are walked over in the order of its own memory.
template <class T>
__global__ void __launch_bounds__(kThreads) cat_kernel(Pieces<T> p, int64_t rows) {
  wait_for_predecessors();
  const int k = blockIdx.y;
  const int64_t width = p.widths[k], n = rows * width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const T* from = p.data[k];
  T* to = p.out + p.starts[k];
  const bool narrow = n < int64_t{1} << 31;
#pragma unroll 1
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += kEach * step) {
    T values[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (i + j * step < n) values[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t at = i + j * step;
      if (at >= n) break;
      const int64_t row = rows == 1 ? 0 : narrow ? p.dividers[k].divide(static_cast<uint32_t>(at)) : at / width;
      to[row * (p.row - width) + at] = values[j];
    }
  }
}

// Two inputs whose elements take turns.
template <class T>
__global__ void __launch_bounds__(kThreads) interleave(int64_t n, const T* a, const T* b, T* out) {
  constexpr int V = static_cast<int>(16 / sizeof(T));
  using Whole = Vector<T, V>;
  wait_for_predecessors();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if ((i + 1) * V <= n) {
    const Whole first = reinterpret_cast<const Whole*>(a)[i], second = reinterpret_cast<const Whole*>(b)[i];
    Whole low, high;
#pragma unroll
    for (int j = 0; j < V / 2; ++j) {
      low.item[2 * j] = first.item[j], low.item[2 * j + 1] = second.item[j];
      high.item[2 * j] = first.item[V / 2 + j], high.item[2 * j + 1] = second.item[V / 2 + j];
    }
    reinterpret_cast<Whole*>(out)[2 * i] = low;
    reinterpret_cast<Whole*>(out)[2 * i + 1] = high;
  } else {
    for (int64_t at = i * V; at < n; ++at) out[2 * at] = a[at], out[2 * at + 1] = b[at];
  }
}

// Whether these are two aligned inputs of single elements, `n` of each, of up to 4 bytes.
template <class T>
bool run_interleave(const TensorView& out, TensorViewList inputs, int64_t n) {
  if constexpr (sizeof(T) <= 4) {
    const auto *a = inputs[0]->ptr<const T>(), *b = inputs[1]->ptr<const T>();
    auto* to = out.ptr<T>();
    if ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | reinterpret_cast<uintptr_t>(to)) % 16)
      return false;
    launch<interleave<T>>(out.device.index(), blocks_for(n, static_cast<int64_t>(kThreads * 16 / sizeof(T))), kThreads,
                          n, a, b, to);
    return true;
  }
  return false;
}

template <class T>
void run_cat(const TensorView& out, TensorViewList inputs, int64_t dim, int64_t scale_up, int64_t scale_down) {
  int64_t inner = 1, rows = 1;
  for (int d = 0; d < out.ndim; ++d) (d < dim ? rows : inner) *= d == dim ? 1 : out.sizes[d];
  auto units = [&](int64_t elements) { return elements * scale_up / scale_down; };
  const int64_t row = units(inner * out.sizes[dim]);
  if (inputs.size() == 2 && row == 2 && units(inner * inputs[0]->sizes[dim]) == 1 &&
      run_interleave<T>(out, inputs, rows))
    return;
  int64_t start = 0;
  for (size_t first = 0; first < inputs.size(); first += kPieces) {
    Pieces<T> p{};
    p.out = out.ptr<T>();
    p.row = row;
    int64_t longest = 0;
    for (size_t i = first; i < std::min(inputs.size(), first + kPieces); ++i) {
      const int64_t width = units(inner * inputs[i]->sizes[dim]);
      p.data[p.count] = inputs[i]->ptr<const T>();
      p.widths[p.count] = width;
      if (width > 0 && width < int64_t{1} << 31) p.dividers[p.count] = Divider(static_cast<uint32_t>(width));
      p.starts[p.count++] = start;
      start += width;
      longest = std::max(longest, width * rows);
    }
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>((longest + kThreads * kEach - 1) / (kThreads * kEach), 65536));
    launch<cat_kernel<T>>(out.device.index(), dim3(std::max(1u, blocks), static_cast<unsigned>(p.count)), kThreads, p,
                          rows);
  }
}

// Single elements of inputs that lie in any way, as stack(dim=-1) joins them; what has been joined of their dimensions
// is the same in all of them.
constexpr int kTurns = 8;
struct Turns {
  int count, ndim = 0;
  int64_t row, first;  // inputs of all launches, and of those before
  Divider by_count, sizes[kPlaceDims];
  int64_t lengths[kPlaceDims], strides[kPlaceDims][kTurns];
  const char* data[kTurns];

  // False where there are too many dimensions.
  bool add(int64_t size, const int64_t (&step)[kTurns]) {
    if (size == 1) return true;
    bool joins = ndim > 0;
    for (int k = 0; joins && k < count; ++k) joins = strides[ndim - 1][k] * lengths[ndim - 1] == step[k];
    if (joins) {
      lengths[ndim - 1] *= size;
      return true;
    }
    if (ndim == kPlaceDims) return false;
    lengths[ndim] = size;
    std::copy_n(step, kTurns, strides[ndim++]);
    return true;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) take_turns(Turns t, uint32_t n, T* out) {
  wait_for_predecessors();
  const uint32_t first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
  uint32_t rows[kEach], inputs[kEach];
  T values[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const uint32_t i = min(first + j * kThreads, n - 1);
    rows[j] = t.by_count.divide(i);
    inputs[j] = i - rows[j] * t.by_count.divisor;
    uint32_t rest = rows[j];
    int64_t at = 0;
    for (int d = 0; d < t.ndim; ++d) {
      const uint32_t next = d + 1 < t.ndim ? t.sizes[d].divide(rest) : 0;
      at += static_cast<int64_t>(d + 1 < t.ndim ? rest - next * t.sizes[d].divisor : rest) * t.strides[d][inputs[j]];
      rest = next;
    }
    values[j] = reinterpret_cast<const T*>(t.data[inputs[j]])[at];
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (first + j * kThreads < n) out[rows[j] * t.row + t.first + inputs[j]] = values[j];
}

// False where the inputs have too many dimensions that cannot be joined, or too many elements.
bool run_turns(const TensorView& out, TensorViewList inputs, int64_t dim) {
  const auto row = static_cast<int64_t>(inputs.size()), rows = out.numel / row;
  if (rows * kTurns >= int64_t{1} << 31) return false;
  for (int64_t first = 0; first < row; first += kTurns) {
    Turns t{};
    t.count = static_cast<int>(std::min<int64_t>(kTurns, row - first));
    t.row = row, t.first = first;
    t.by_count = Divider(static_cast<uint32_t>(t.count));
    for (int d = out.ndim - 1; d >= 0; --d) {
      int64_t step[kTurns] = {};
      for (int k = 0; k < t.count; ++k) step[k] = inputs[static_cast<size_t>(first + k)]->strides[d];
      if (d != dim && !t.add(out.sizes[d], step)) return false;
    }
    for (int d = 0; d < t.ndim; ++d) t.sizes[d] = Divider(static_cast<uint32_t>(t.lengths[d]));
    for (int k = 0; k < t.count; ++k)
      t.data[k] = static_cast<const char*>(inputs[static_cast<size_t>(first + k)]->data);
    const auto n = static_cast<uint32_t>(rows * t.count);
    visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
      launch<take_turns<T>>(out.device.index(), blocks_for(n, kThreads * kEach), kThreads, t, n, out.ptr<T>());
    });
  }
  return true;
}

// One input after the other.
void copy_each(const TensorView& out, TensorViewList inputs, int64_t dim) {
  const int64_t size = element_size(out.dtype);
  int64_t place = 0;
  for (const TensorView* t : inputs) {
    PointwiseLoop loop{};
    loop.numel = t->numel, loop.ndim = out.ndim, loop.noperands = 2, loop.noutputs = 1;
    loop.dtype = loop.result_dtype = loop.dtypes[0] = loop.dtypes[1] = out.dtype;
    loop.device = out.device;
    loop.data[0] = static_cast<char*>(out.data) + place * out.strides[dim] * size;
    loop.data[1] = static_cast<char*>(t->data);
    for (int d = 0; d < out.ndim; ++d) {
      const int from = out.ndim - 1 - d;
      loop.shape[d] = t->sizes[from];
      loop.strides[d][0] = out.strides[from] * size, loop.strides[d][1] = t->strides[from] * size;
    }
    copy(loop);
    place += t->sizes[dim];
  }
}

}  // namespace

void cat(const TensorView& out, TensorViewList inputs, int64_t dim) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  for (const TensorView* t : inputs) {
    if (is_contiguous(*t)) continue;
    if (!run_turns(out, inputs, dim)) copy_each(out, inputs, dim);
    return;
  }
  const int64_t element = element_size(out.dtype);
  int64_t inner = element;
  for (int d = static_cast<int>(dim) + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  uintptr_t bits = reinterpret_cast<uintptr_t>(out.data);
  for (const TensorView* t : inputs)
    bits |= reinterpret_cast<uintptr_t>(t->data) | static_cast<uintptr_t>(inner * t->sizes[dim]);
  int64_t unit = 16;
  while (bits % static_cast<uintptr_t>(unit)) unit /= 2;
  visit_size(std::max(unit, int64_t{1}),
             [&]<class T>(Tag<T>) { run_cat<T>(out, inputs, dim, element, static_cast<int64_t>(sizeof(T))); });
}

}  // namespace mica::cuda
