// Fourier transforms along one dimension, through cuFFT: sequences that do not lie one after the other are copied so
// that they do. Plans are kept, and work in memory of the allocator.
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "backends/cuda/context.h"
#include "backends/cuda/fft/cufft.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

void check(int status, const char* what) { MICA_CHECK(status == 0, "cuFFT error ", status, " from ", what); }

struct Kept {
  cufft::Plan plan;
  size_t bytes;
};

// The plan of `batch` sequences of n points, each contiguous, one after the other.
const Kept& plan_of(int device, int type, int64_t n, int64_t batch) {
  static auto* plans = new std::map<std::tuple<int, int, int64_t, int64_t>, Kept>;
  const auto [found, made] = plans->try_emplace({device, type, n, batch}, Kept{});
  if (!made) return found->second;
  const cufft::Api& api = cufft::api();
  Kept& kept = found->second;
  check(api.create(&kept.plan), "cufftCreate");
  check(api.set_auto_allocation(kept.plan, 0), "cufftSetAutoAllocation");
  long long points = n;
  check(api.make(kept.plan, 1, &points, nullptr, 1, n, nullptr, 1, n, type, batch, &kept.bytes), "cufftMakePlanMany64");
  return kept;
}

// The tensor's elements with `dim` fastest, to or from dense memory, times a factor.
template <class T, bool kToDense>
struct Move {
  Places<1> places;  // of the sequences' beginnings
  int64_t n, stride;
  T* tensor;
  T* dense;
  T factor;
  bool scaled;
  __device__ void operator()(int64_t i) const {
    const int64_t sequence = i / n, j = i - sequence * n;
    int64_t at[1];
    places.at(sequence, at);
    T& place = tensor[at[0] + j * stride];
    if constexpr (kToDense) {
      dense[i] = place;
    } else {
      place = scaled ? dense[i] * factor : dense[i];
    }
  }
};
// Matrices of rows x columns, one after the other, turned into columns x rows, times a factor. A tile is turned in
// shared memory, so that both sides are read and written in long runs.
constexpr int kTurn = 32, kTurnRows = 8;

template <class T>
__global__ void __launch_bounds__(kTurn* kTurnRows)
    turn_kernel(const T* from, T* to, int64_t rows, int64_t columns, int64_t tiles_down, int64_t tiles_across, T factor,
                bool scaled) {
  __shared__ alignas(16) unsigned char raw[kTurn * (kTurn + 1) * sizeof(T)];
  auto* tile = reinterpret_cast<T*>(raw);
  wait_for_predecessors();
  const int64_t across = blockIdx.x % tiles_across, rest = blockIdx.x / tiles_across;
  const int64_t down = rest % tiles_down, matrix = rest / tiles_down;
  from += matrix * rows * columns;
  to += matrix * rows * columns;
  const int64_t row = down * kTurn, column = across * kTurn;
  for (int y = threadIdx.y; y < kTurn; y += kTurnRows)
    if (row + y < rows && column + threadIdx.x < columns)
      tile[y * (kTurn + 1) + threadIdx.x] = from[(row + y) * columns + column + threadIdx.x];
  __syncthreads();
  for (int y = threadIdx.y; y < kTurn; y += kTurnRows)
    if (column + y < columns && row + threadIdx.x < rows) {
      const T value = tile[threadIdx.x * (kTurn + 1) + y];
      to[(column + y) * rows + row + threadIdx.x] = scaled ? value * factor : value;
    }
}

template <class T, bool kToDense>
void move(const TensorView& t, int64_t dim, void* dense, double factor) {
  T by;
  if constexpr (is_complex_v<T>) {
    by = T(static_cast<typename T::value_type>(factor));
  } else {
    by = static_cast<T>(factor);
  }
  const int64_t n = t.sizes[dim], inner = is_contiguous(t) ? t.strides[dim] : 1;
  if (n >= 8 && inner >= 8) {
    const int64_t rows = kToDense ? n : inner, columns = kToDense ? inner : n;
    const int64_t down = (rows + kTurn - 1) / kTurn, across = (columns + kTurn - 1) / kTurn;
    if (const int64_t blocks = t.numel / (n * inner) * down * across; blocks <= INT32_MAX) {
      auto* tensor = t.ptr<T>();
      auto* other = static_cast<T*>(dense);
      return launch<turn_kernel<T>>(t.device.index(), static_cast<unsigned>(blocks), dim3(kTurn, kTurnRows),
                                    static_cast<const T*>(kToDense ? tensor : other), kToDense ? other : tensor, rows,
                                    columns, down, across, by, factor != 1);
    }
  }
  Places<1> places;
  for (int d = t.ndim - 1; d >= 0; --d)
    if (d != dim) places.add(t.sizes[d], {t.strides[d]});
  places.finish();
  for_each(
      t.device.index(), t.numel,
      Move<T, kToDense>{places, t.sizes[dim], t.strides[dim], t.ptr<T>(), static_cast<T*>(dense), by, factor != 1});
}

// A real result takes nothing from the imaginary parts of the first and the middle frequency.
template <class C>
struct DropImaginary {
  C* spectrum;
  int64_t bins, n;
  __device__ void operator()(int64_t sequence) const {
    C* s = spectrum + sequence * bins;
    s[0] = C(s[0].real());
    if (n % 2 == 0) s[n / 2] = C(s[n / 2].real());
  }
};

enum class Kind { Complex, FromReal, ToReal };

template <class R>
void transform(Kind kind, const TensorView& out, const TensorView& in, int64_t dim, bool forward, double scale) {
  using C = Complex<R>;
  constexpr bool wide = sizeof(R) == 8;
  if (out.numel == 0 || in.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  const int64_t n = kind == Kind::ToReal ? out.sizes[dim] : in.sizes[dim], bins = n / 2 + 1;
  const int64_t batch = out.numel / out.sizes[dim];
  const int64_t in_bytes = in.numel * element_size(in.dtype), out_bytes = out.numel * element_size(out.dtype);
  // cuFFT writes over the input of a transform to reals, and wants its sequences side by side.
  auto lies_ready = [&](const TensorView& t) { return is_contiguous(t) && dim == t.ndim - 1; };
  std::optional<Workspace> from, to;
  void *source = in.data, *target = out.data;
  if (kind == Kind::ToReal || !lies_ready(in)) {
    from.emplace(static_cast<size_t>(in_bytes), device);
    source = from->data();
    if (kind == Kind::FromReal) {
      move<R, true>(in, dim, source, 1);
    } else {
      move<C, true>(in, dim, source, 1);
    }
  }
  if (kind == Kind::ToReal) for_each(device, batch, DropImaginary<C>{static_cast<C*>(source), bins, n});
  const bool direct = lies_ready(out);
  if (!direct) {
    to.emplace(static_cast<size_t>(out_bytes), device);
    target = to->data();
  }
  const int type = kind == Kind::Complex    ? (wide ? cufft::kDoubleComplexToComplex : cufft::kComplexToComplex)
                   : kind == Kind::FromReal ? (wide ? cufft::kDoubleRealToComplex : cufft::kRealToComplex)
                                            : (wide ? cufft::kDoubleComplexToReal : cufft::kComplexToReal);
  {
    static std::mutex mutex;
    std::lock_guard lock(mutex);  // held over the call: a plan has one work area and one stream
    const Kept& kept = plan_of(device, type, n, batch);
    const Workspace work(std::max<size_t>(kept.bytes, 16), device);
    const cufft::Api& api = cufft::api();
    check(api.set_work_area(kept.plan, work.data()), "cufftSetWorkArea");
    check(api.set_stream(kept.plan, current_stream(device)), "cufftSetStream");
    const int direction = forward ? cufft::kForward : cufft::kInverse;
    if (kind == Kind::Complex) {
      check((wide ? api.double_complex_to_complex : api.complex_to_complex)(kept.plan, source, target, direction),
            "cufftExecC2C");
    } else if (kind == Kind::FromReal) {
      check((wide ? api.double_real_to_complex : api.real_to_complex)(kept.plan, source, target), "cufftExecR2C");
    } else {
      check((wide ? api.double_complex_to_real : api.complex_to_real)(kept.plan, source, target), "cufftExecC2R");
    }
  }
  if (direct && scale == 1) return;
  if (kind == Kind::ToReal) {
    move<R, false>(out, dim, target, scale);
  } else {
    move<C, false>(out, dim, target, scale);
  }
}

void run(Kind kind, const TensorView& out, const TensorView& in, int64_t dim, bool forward, double scale) {
  const DType real = to_real(in.dtype);
  if (real == DType::Float32) return transform<float>(kind, out, in, dim, forward, scale);
  if (real == DType::Float64) return transform<double>(kind, out, in, dim, forward, scale);
  unsupported_dtype("fft", in.dtype);
}

}  // namespace

void fft_c2c(const TensorView& out, const TensorView& in, int64_t dim, bool forward, double scale) {
  run(Kind::Complex, out, in, dim, forward, scale);
}
void fft_r2c(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  run(Kind::FromReal, out, in, dim, true, scale);
}
void fft_c2r(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  run(Kind::ToReal, out, in, dim, false, scale);
}

}  // namespace mica::cuda
