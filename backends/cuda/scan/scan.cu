// cumsum, cumprod, cummax, cummin, logcumsumexp. A line is cut into chunks where there are few lines: the chunks are
// reduced, their totals scanned, and then every chunk is scanned from what came before it.
#include <cub/block/block_scan.cuh>

#include "backends/cuda/allocator.h"
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/places.cuh"
#include "backends/cuda/reduce/limits.cuh"

namespace mica::cuda {

namespace {

struct Lines {
  Places<3> places;  // of the lines' beginnings: input, first output, second output
  int64_t length;
  int64_t strides[3];  // along a line
  int64_t chunk;       // elements
  int64_t chunks;      // of one line
};

constexpr int kScanThreads = 256, kItems = 4;

// Neighbouring threads work on neighbouring elements of one line.
template <bool kStore, class Op>
__global__ void __launch_bounds__(kScanThreads)
    scan_rows(Op op, Lines lines, const typename Op::In* in, typename Op::Acc* partial) {
  using Acc = typename Op::Acc;
  using Scan = cub::BlockScan<Acc, kScanThreads>;
  __shared__ typename Scan::TempStorage storage;
  const int64_t line = blockIdx.x / lines.chunks, chunk = blockIdx.x % lines.chunks;
  int64_t at[3];
  lines.places.at(line, at);
  const int64_t begin = chunk * lines.chunk,
                end = begin + lines.chunk < lines.length ? begin + lines.chunk : lines.length;
  auto combine = [&](const Acc& a, const Acc& b) { return op.combine(a, b); };
  Acc carry = kStore && chunk > 0 ? partial[line * lines.chunks + chunk] : op.identity();
  for (int64_t tile = begin; tile < end; tile += kScanThreads * kItems) {
    const int64_t first = tile + threadIdx.x * kItems;
    Acc items[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      items[j] = first + j < end ? op.load(in[at[0] + (first + j) * lines.strides[0]], first + j) : op.identity();
    Acc total;
    __syncthreads();
    Scan(storage).InclusiveScan(items, items, combine, total);
    if constexpr (kStore) {
#pragma unroll
      for (int j = 0; j < kItems; ++j)
        if (first + j < end)
          op.store(op.combine(carry, items[j]), at[1] + (first + j) * lines.strides[1],
                   at[2] + (first + j) * lines.strides[2]);
    }
    carry = op.combine(carry, total);
  }
  if (!kStore && threadIdx.x == 0) partial[line * lines.chunks + chunk] = carry;
}

// Neighbouring threads work on neighbouring lines, each along its own.
template <bool kStore, class Op>
__global__ void __launch_bounds__(kScanThreads)
    scan_columns(Op op, Lines lines, const typename Op::In* in, typename Op::Acc* partial) {
  using Acc = typename Op::Acc;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  const int64_t chunk = task / lines.places.numel, line = task % lines.places.numel;
  if (chunk >= lines.chunks) return;
  int64_t at[3];
  lines.places.at(line, at);
  const int64_t begin = chunk * lines.chunk,
                end = begin + lines.chunk < lines.length ? begin + lines.chunk : lines.length;
  Acc running = kStore && chunk > 0 ? partial[line * lines.chunks + chunk] : op.identity();
#pragma unroll 4
  for (int64_t i = begin; i < end; ++i) {
    running = op.combine(running, op.load(in[at[0] + i * lines.strides[0]], i));
    if constexpr (kStore) op.store(running, at[1] + i * lines.strides[1], at[2] + i * lines.strides[2]);
  }
  if (!kStore) partial[line * lines.chunks + chunk] = running;
}

// The totals of a line's chunks become what comes before each.
template <class Op>
struct ScanTotals {
  Op op;
  typename Op::Acc* partial;
  int64_t chunks;
  __device__ void operator()(int64_t line) const {
    auto running = op.identity();
    for (int64_t c = 0; c < chunks; ++c) {
      const auto total = partial[line * chunks + c];
      partial[line * chunks + c] = running;
      running = op.combine(running, total);
    }
  }
};

template <class Op>
void run_scan(const TensorView& out, const TensorView& second, const TensorView& self, int64_t dim, const Op& op) {
  using Acc = typename Op::Acc;
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  Lines lines{};
  lines.length = self.ndim ? self.sizes[dim] : 1;
  auto stride = [&](const TensorView& t, int64_t d) { return t.defined() && t.ndim ? t.strides[d] : 0; };
  lines.strides[0] = stride(self, dim), lines.strides[1] = stride(out, dim), lines.strides[2] = stride(second, dim);
  int64_t fastest = INT64_MAX;
  for (int d = self.ndim - 1; d >= 0; --d) {
    if (d == dim) continue;
    if (self.sizes[d] > 1) fastest = std::min(fastest, std::abs(self.strides[d]));
    lines.places.add(self.sizes[d], {stride(self, d), stride(out, d), stride(second, d)});
  }
  lines.places.finish();
  const int64_t count = lines.places.numel;
  const bool columns = fastest < std::abs(lines.strides[0]) && count >= 32;
  const int64_t wanted = properties(device).multiProcessorCount * (columns ? 2048 : 8);
  const int64_t shortest = columns ? 64 : kScanThreads * kItems;
  lines.chunks = std::clamp<int64_t>(std::min(wanted / count, lines.length / shortest), 1, 4096);
  lines.chunk = (lines.length + lines.chunks - 1) / lines.chunks;
  lines.chunks = (lines.length + lines.chunk - 1) / lines.chunk;
  const auto* in = self.ptr<const typename Op::In>();
  const auto blocks =
      columns ? blocks_for(count * lines.chunks, kScanThreads) : static_cast<unsigned>(count * lines.chunks);
  auto launch = [&](auto store, Acc* partial) {
    if (columns) {
      scan_columns<store(), Op><<<blocks, kScanThreads, 0, stream>>>(op, lines, in, partial);
    } else {
      scan_rows<store(), Op><<<blocks, kScanThreads, 0, stream>>>(op, lines, in, partial);
    }
    MICA_CUDA(cudaGetLastError());
  };
  if (lines.chunks == 1) return launch(std::true_type{}, nullptr);
  const Workspace parts(static_cast<size_t>(count * lines.chunks) * sizeof(Acc), device);
  auto* partial = static_cast<Acc*>(parts.data());
  launch(std::false_type{}, partial);
  for_each(device, count, ScanTotals<Op>{op, partial, lines.chunks});
  launch(std::true_type{}, partial);
}

template <class T, class A, bool kProduct>
struct Running {
  using In = T;
  using Acc = A;
  T* out;
  __device__ Acc identity() const { return Acc(kProduct ? 1 : 0); }
  __device__ Acc load(T v, int64_t) const { return convert<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const {
    if constexpr (kProduct) return a * b;
    return a + b;
  }
  __device__ void store(Acc a, int64_t at, int64_t) const { out[at] = convert<T>(a); }
};

template <class C>
struct Placed {
  C value;
  int64_t index;  // -1 before the first
};
// The last of equal elements, and a NaN takes over from everything.
template <class T>
struct RunningExtremum {
  using In = T;
  using C = compute_t<T>;
  using Acc = Placed<C>;
  T* values;
  int64_t* indices;
  bool largest;
  __device__ Acc identity() const { return {C(0), -1}; }
  __device__ Acc load(T v, int64_t i) const { return {convert<C>(v), i}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool takes_over =
        b.value != b.value || (a.value == a.value && (largest ? b.value >= a.value : b.value <= a.value));
    return takes_over ? b : a;
  }
  __device__ void store(Acc a, int64_t at, int64_t second) const {
    values[at] = convert<T>(a.value);
    indices[second] = a.index;
  }
};

template <class T, class A>
struct RunningLogSum {
  using In = T;
  using Acc = A;
  T* out;
  __device__ Acc identity() const { return Acc(-INFINITY); }
  __device__ Acc load(T v, int64_t) const { return convert<Acc>(v); }
  __device__ __noinline__ Acc combine(Acc a, Acc b) const {
    if constexpr (is_complex_v<Acc>) {
      if (a.real() < b.real()) {
        const Acc t = a;
        a = b;
        b = t;
      }
      if (::isinf(a.real()) && a.real() < 0) return a;
      return a + complex_functions::log(Acc(1) + complex_functions::exp(b - a));
    } else {
      const bool less = a != a || a < b;
      const Acc low = less ? a : b, high = less ? b : a;
      if (low == high && ::isinf(low)) return low;
      return high + ::log1p(::exp(low - high));
    }
  }
  __device__ void store(Acc a, int64_t at, int64_t) const { out[at] = convert<T>(a); }
};

template <bool kProduct>
void cumulate(const char* op, const TensorView& out, const TensorView& self, int64_t dim) {
  visit_wrapping_number(op, self.dtype, [&]<class T>(Tag<T>) {
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;
    run_scan(out, {}, self, dim, Running<T, A, kProduct>{out.ptr<T>()});
  });
}
void running_extremum(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self,
                      int64_t dim, bool largest) {
  visit_real_bool(op, self.dtype, [&]<class T>(Tag<T>) {
    run_scan(values, indices, self, dim, RunningExtremum<T>{values.ptr<T>(), indices.ptr<int64_t>(), largest});
  });
}

}  // namespace

void cumsum(const TensorView& out, const TensorView& self, int64_t dim) { cumulate<false>("cumsum", out, self, dim); }
void cumprod(const TensorView& out, const TensorView& self, int64_t dim) { cumulate<true>("cumprod", out, self, dim); }
void cummax(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  running_extremum("cummax", values, indices, self, dim, true);
}
void cummin(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  running_extremum("cummin", values, indices, self, dim, false);
}
void logcumsumexp(const TensorView& out, const TensorView& self, int64_t dim) {
  visit_floating_complex("logcumsumexp", self.dtype, [&]<class T>(Tag<T>) {
    using A = std::conditional_t<is_complex_v<T>, complexd, double>;
    run_scan(out, {}, self, dim, RunningLogSum<T, A>{out.ptr<T>()});
  });
}

}  // namespace mica::cuda
