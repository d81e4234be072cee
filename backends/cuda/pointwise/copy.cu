// copy: every dtype to every other; fill.
#include "backends/cuda/copy_rows.h"
#include "backends/cuda/creation/fill.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/pixels.cuh"
#include "backends/cuda/transposed.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Same {
  __device__ T operator()(T x) const { return x; }
};
// A copy of a bool is 0 or 1, whatever byte is in its place.
struct NotZero {
  __device__ uint8_t operator()(uint8_t x) const { return x != 0; }
};
template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

// The kernel looks at the source's dtype, in the same way in every thread: a table of all pairs of dtypes would need
// 400 kernels.
template <class To>
struct AnyConverted {
  const char* data;
  DType dtype;

  __device__ To at(int64_t offset) const {
    switch (dtype) {
#define MICA_CONVERT(T, Name) \
  case DType::Name:           \
    return convert<To>(*reinterpret_cast<const T*>(data + offset));
      MICA_CUDA_INTEGRAL(MICA_CONVERT)
      MICA_CUDA_FLOATING(MICA_CONVERT)
      MICA_CUDA_COMPLEX(MICA_CONVERT)
      MICA_CUDA_STORAGE(MICA_CONVERT)
#undef MICA_CONVERT
      default:
        return convert<To>(*reinterpret_cast<const bool*>(data + offset));
    }
  }
};

// Consecutive elements of one thread; the loads of all are under way before the first is used.
constexpr int kPerThread = 4;

template <class To>
__global__ void __launch_bounds__(kThreads) convert_flat(int64_t n, To* to, AnyConverted<To> from, int from_size) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
  To value[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
    if (i + j * kThreads < n) value[j] = from.at((i + j * kThreads) * from_size);
#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
    if (i + j * kThreads < n) to[i + j * kThreads] = value[j];
}

template <class To>
__global__ void __launch_bounds__(kThreads)
    convert_strided(uint32_t n, char* to, AnyConverted<To> from, Offsets<2> offsets) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t at[2];
  offsets.at(i, at);
  *reinterpret_cast<To*>(to + at[0]) = from.at(at[1]);
}

// The pairs of dtypes between which training moves numbers have loops of their own.
template <class To>
bool run_common(const PointwiseLoop& loop) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, half> || std::is_same_v<To, bfloat16>) {
    auto run = [&]<class From>(Tag<From>) {
      if constexpr (!std::is_same_v<To, From>) run_moved<To, From>(loop, Same<compute_t<From>>{});
      return true;
    };
    switch (loop.dtypes[1]) {
      case DType::Float32:
        return run(Tag<float>{});
      case DType::Float16:
        return run(Tag<half>{});
      case DType::BFloat16:
        return run(Tag<bfloat16>{});
      case DType::Int64:
        return run(Tag<int64_t>{});
      case DType::Int32:
        return run(Tag<int32_t>{});
      case DType::UInt8:
        return run(Tag<uint8_t>{});
      case DType::Bool:
        return run(Tag<bool>{});
      default:
        return false;
    }
  } else {
    return false;
  }
}

template <class To>
void run_converted(PointwiseLoop& loop) {
  if (run_common<To>(loop)) return;
  const cudaStream_t stream = current_stream(loop.device.index());
  const auto from_size = static_cast<int>(element_size(loop.dtypes[1]));
  AnyConverted<To> from{loop.data[1], loop.dtypes[1]};
  if (loop.ndim == 1 && loop.strides[0][0] == static_cast<int64_t>(sizeof(To)) && loop.strides[0][1] == from_size) {
    convert_flat<To><<<blocks_for(loop.numel, kThreads * kPerThread), kThreads, 0, stream>>>(
        loop.numel, reinterpret_cast<To*>(loop.data[0]), from, from_size);
    return MICA_CUDA(cudaGetLastError());
  }
  for_each_piece(loop, [&](const PointwiseLoop& piece) {
    from.data = piece.data[1];
    convert_strided<To><<<blocks_for(piece.numel, kThreads), kThreads, 0, stream>>>(
        static_cast<uint32_t>(piece.numel), piece.data[0], from, offsets_of<2>(piece));
    MICA_CUDA(cudaGetLastError());
  });
}

// A matrix and its transpose where transposed.cuh does not reach: odd sizes, small ones.
constexpr int kTile = 32, kTileRows = 8;

template <class T, class F>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(const char* from, char* to, int64_t width, int64_t height, int64_t from_pitch, int64_t to_pitch,
                     int64_t from_batch, int64_t to_batch, F f) {
  __shared__ T tile[kTile][kTile + 1];
  from += blockIdx.z * from_batch;
  to += blockIdx.z * to_batch;
  const int64_t x0 = static_cast<int64_t>(blockIdx.x) * kTile, y0 = static_cast<int64_t>(blockIdx.y) * kTile;
  constexpr int kEach = kTile / kTileRows;
  T values[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t y = y0 + threadIdx.y + k * kTileRows;
    if (x0 + threadIdx.x < width && y < height)
      values[k] = reinterpret_cast<const T*>(from + y * from_pitch)[x0 + threadIdx.x];
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) tile[threadIdx.y + k * kTileRows][threadIdx.x] = values[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int x = static_cast<int>(threadIdx.y) + k * kTileRows;
    if (y0 + threadIdx.x < height && x0 + x < width)
      reinterpret_cast<T*>(to + (x0 + x) * to_pitch)[y0 + threadIdx.x] = f(tile[threadIdx.x][x]);
  }
}

// Dimension 0 is dense in the output and dimension 1 in the input, with at most one more around them.
bool is_transpose(const PointwiseLoop& loop, int64_t size) {
  return (loop.ndim == 2 || (loop.ndim == 3 && loop.shape[2] < 65536)) && loop.strides[0][0] == size &&
         loop.strides[1][1] == size && loop.shape[0] >= 8 && loop.shape[1] >= 8 &&
         (loop.shape[0] + kTile - 1) / kTile < 65536 && loop.strides[1][0] >= size && loop.strides[0][1] >= size;
}

template <class T, class F>
void run_transpose(const PointwiseLoop& loop, F f) {
  if constexpr (sizeof(T) <= 8) {
    TransposedTiles tiles;
    if (as_transposed<T>(loop, 1, 0, tiles)) return run_tiles<T>(loop, tiles, f);
  }
  const int64_t height = loop.shape[0], width = loop.shape[1];
  const dim3 blocks(blocks_for(width, kTile), blocks_for(height, kTile),
                    loop.ndim == 3 ? static_cast<unsigned>(loop.shape[2]) : 1);
  const bool batched = loop.ndim == 3;
  transpose_kernel<T, F><<<blocks, dim3(kTile, kTileRows), 0, current_stream(loop.device.index())>>>(
      loop.data[1], loop.data[0], width, height, loop.strides[0][1], loop.strides[1][0],
      batched ? loop.strides[2][1] : 0, batched ? loop.strides[2][0] : 0, f);
  MICA_CUDA(cudaGetLastError());
}

}  // namespace

void copy(const PointwiseLoop& loop) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  if (loop.dtypes[0] != loop.dtypes[1]) {
    PointwiseLoop piece = loop;
    return visit_any("copy_", loop.dtypes[0], [&]<class To>(Tag<To>) { run_converted<To>(piece); });
  }
  if (loop.dtypes[0] == DType::Bool) {
    if (is_transpose(loop, 1)) return run_transpose<uint8_t>(loop, NotZero{});
    return run_moved<uint8_t, uint8_t>(loop, NotZero{});
  }
  const int64_t size = element_size(loop.dtypes[0]);
  // The driver's own copy costs more than a launch, until it is long.
  constexpr int64_t kLongCopy = int64_t{8} << 20;
  if (loop.ndim == 1 && loop.strides[0][0] == size && loop.strides[0][1] == size && loop.numel * size > kLongCopy)
    return MICA_CUDA(cudaMemcpyAsync(loop.data[0], loop.data[1], static_cast<size_t>(loop.numel * size),
                                     cudaMemcpyDeviceToDevice, current_stream(loop.device.index())));
  PixelCopy pixels;
  const bool by_pixels = as_pixel_copy(loop, size, pixels);
  const bool turned = is_transpose(loop, size);
  if (!by_pixels && !turned && copy_rows(loop, size)) return;
  visit_size(size, [&]<class T>(Tag<T>) {
    if (by_pixels) return copy_pixels<T>(pixels, current_stream(loop.device.index()));
    if (turned) return run_transpose<T>(loop, Same<T>{});
    run_moved<T, T>(loop, Same<T>{});
  });
}

void write_number(const Scalar& value, DType dtype, void* to) {
  switch (dtype) {
#define MICA_WRITE(T, Name)                    \
  case DType::Name: {                          \
    const T element = value.cast<T>();         \
    std::memcpy(to, &element, sizeof element); \
    return;                                    \
  }
    MICA_FORALL_DTYPES(MICA_WRITE)
#undef MICA_WRITE
    default:
      break;
  }
  // For dtypes that are only stored, zero means that all bits are zero; no other number has a meaning.
  if (!value.is_integral() || value.cast<int64_t>() != 0) unsupported_dtype("fill_", dtype);
  std::memset(to, 0, static_cast<size_t>(element_size(dtype)));
}

// The driver sets a few bytes without a kernel, for a third of the cost of a launch. Returns false where there are too
// many elements, where they are apart, or where they are not made of equal words.
template <class T>
static bool set_few(const PointwiseLoop& loop, const T& element) {
  constexpr int64_t kFewBytes = 4096;
  const int64_t bytes = loop.numel * static_cast<int64_t>(sizeof(T));
  if (loop.numel == 0 || loop.ndim != 1 || bytes > kFewBytes || loop.strides[0][0] != static_cast<int64_t>(sizeof(T)))
    return false;
  const auto* words = reinterpret_cast<const uint32_t*>(&element);
  for (size_t i = 1; i < sizeof(T) / 4; ++i)
    if (words[i] != words[0]) return false;
  const int index = loop.device.index();
  DeviceGuard guard(index);
  const auto to = reinterpret_cast<CUdeviceptr>(loop.data[0]);
  const cudaStream_t stream = current_stream(index);
  CUresult status;
  if constexpr (sizeof(T) == 1) {
    status = driver().set_bytes(to, reinterpret_cast<const uint8_t&>(element), static_cast<size_t>(bytes), stream);
  } else if constexpr (sizeof(T) == 2) {
    status =
        driver().set_halves(to, reinterpret_cast<const uint16_t&>(element), static_cast<size_t>(bytes / 2), stream);
  } else {
    status = driver().set_words(to, words[0], static_cast<size_t>(bytes / 4), stream);
  }
  if (status != CUDA_SUCCESS) [[unlikely]]
    fail_driver(status, "cuMemsetAsync");
  return true;
}

void fill(const PointwiseLoop& loop, Scalar value) {
  visit_size(element_size(loop.dtypes[0]), [&]<class T>(Tag<T>) {
    alignas(16) T element;
    write_number(value, loop.dtypes[0], &element);
    if (!set_few(loop, element) && !fill_dense(loop, &element, sizeof element))
      run_moved<T>(loop, Constant<T>{element});
  });
}

}  // namespace mica::cuda
