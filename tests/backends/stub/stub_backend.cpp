// A backend that proves the seam: two devices whose memory is the host's under addresses that nobody can read through,
// so that a core that touches a device's memory by itself dies at once. Built against the public headers alone.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "mica/backend.h"
#include "mica/error.h"

#ifndef STUB_ABI_OFFSET
#define STUB_ABI_OFFSET 0
#endif

namespace stub {

using namespace mica;

constexpr int kDevices = 2;
constexpr uintptr_t kMark = uintptr_t{1} << 56;  // makes an address one that the processor refuses

void* device_address(void* host) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kMark); }
char* host_address(const void* device) {
  const auto bits = reinterpret_cast<uintptr_t>(device);
  MICA_CHECK(bits & kMark, "the stub got an address of the host where one of its own was due");
  return reinterpret_cast<char*>(bits & ~kMark);
}

// ---- devices and memory

thread_local int current = 0;
std::atomic<int64_t> allocated[kDevices], peak[kDevices], calls[kDevices];

int device_count() { return kDevices; }
int current_device() { return current; }
void set_device(int index) { current = index; }

void* allocate(size_t nbytes, int index) {
  MICA_CHECK(index >= 0 && index < kDevices, "the stub was asked for memory of device ", index);
  MICA_CHECK_KIND(nbytes < (size_t{1} << 40), OutOfMemory, "stub out of memory");
  const int64_t now = allocated[index] += static_cast<int64_t>(nbytes);
  if (now > peak[index]) peak[index] = now;
  ++calls[index];
  return device_address(std::malloc(nbytes));
}
void release(void* data, size_t nbytes, int index) {
  allocated[index] -= static_cast<int64_t>(nbytes);
  std::free(host_address(data));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes, bool) {
  std::memcpy(to_device.is_cpu() ? to : host_address(to), from_device.is_cpu() ? from : host_address(from), nbytes);
}
void synchronize(int) {}

MemoryStats memory_stats(int index) {
  MemoryStats stats;
  stats.allocated = stats.reserved = allocated[index];
  stats.peak_allocated = stats.peak_reserved = peak[index];
  stats.allocations = stats.device_allocations = calls[index];
  return stats;
}
void reset_peak_memory_stats(int index) { peak[index] = allocated[index].load(); }
const char* device_name(int) { return "host memory under another name"; }

// ---- streams: numbers without work. One that was told to wait for an event counts as not done, so that tests see it.

std::mutex streams_mutex;
std::set<const void*> waiting;
std::atomic<uintptr_t> events{0};

Stream current_stream(int index) { return {nullptr, Device(register_device_type("stub"), index)}; }
bool stream_done(Stream stream) {
  std::lock_guard lock(streams_mutex);
  return !waiting.contains(stream.handle);
}
Event new_event(int, bool) { return {reinterpret_cast<void*>(++events)}; }
void free_event(Event) {}
void record_event(Event, Stream) {}
void wait_event(Stream stream, Event) {
  std::lock_guard lock(streams_mutex);
  waiting.insert(stream.handle);
}

// ---- pointwise kernels

// Calls f(pointers) for every element, with the addresses of its operands.
template <class F>
void for_each(const PointwiseLoop& loop, const F& f) {
  char* base[PointwiseLoop::kMaxOperands];
  for (int k = 0; k < loop.noperands; ++k) base[k] = loop.numbers >> k & 1 ? loop.data[k] : host_address(loop.data[k]);
  for (int64_t i = 0; i < loop.numel; ++i) {
    char* at[PointwiseLoop::kMaxOperands];
    std::memcpy(at, base, sizeof(at));
    int64_t rest = i;
    for (int d = 0; d < loop.ndim; ++d) {
      const int64_t here = rest % loop.shape[d];
      rest /= loop.shape[d];
      for (int k = 0; k < loop.noperands; ++k) at[k] += here * loop.strides[d][k];
    }
    f(at);
  }
}

template <class T>
struct Tag {
  using type = T;
};
template <class F>
void visit(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float32:
      return f(Tag<float>{});
    case DType::Float64:
      return f(Tag<double>{});
    case DType::Int64:
      return f(Tag<int64_t>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

void copy(const PointwiseLoop& loop) {
  if (loop.dtypes[0] == loop.dtypes[1]) {
    const auto size = static_cast<size_t>(element_size(loop.dtypes[0]));
    return for_each(loop, [&](char** at) { std::memcpy(at[0], at[1], size); });
  }
  visit("copy_", loop.dtypes[0], [&]<class To>(Tag<To>) {
    visit("copy_", loop.dtypes[1], [&]<class From>(Tag<From>) {
      for_each(loop,
               [](char** at) { *reinterpret_cast<To*>(at[0]) = static_cast<To>(*reinterpret_cast<From*>(at[1])); });
    });
  });
}

void fill(const PointwiseLoop& loop, Scalar value) {
  visit("fill_", loop.dtype, [&]<class T>(Tag<T>) {
    const T element = value.cast<T>();
    for_each(loop, [&](char** at) { *reinterpret_cast<T*>(at[0]) = element; });
  });
}

void add(const PointwiseLoop& loop, Scalar alpha) {
  visit("add", loop.dtype, [&]<class T>(Tag<T>) {
    const T scale = alpha.cast<T>();
    for_each(loop, [&](char** at) {
      *reinterpret_cast<T*>(at[0]) = *reinterpret_cast<T*>(at[1]) + scale * *reinterpret_cast<T*>(at[2]);
    });
  });
}

void mul(const PointwiseLoop& loop) {
  visit("mul", loop.dtype, [&]<class T>(Tag<T>) {
    for_each(loop, [](char** at) {
      *reinterpret_cast<T*>(at[0]) = *reinterpret_cast<T*>(at[1]) * *reinterpret_cast<T*>(at[2]);
    });
  });
}

// ---- kernels over whole tensors

void reduce_sum(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit("sum", self.dtype, [&]<class T>(Tag<T>) {
    MICA_CHECK(out.dtype == self.dtype, "the stub sums in the dtype of its input");
    T* to = reinterpret_cast<T*>(host_address(out.data));
    const T* from = self.numel ? reinterpret_cast<const T*>(host_address(self.data)) : nullptr;
    const bool keepdim = out.ndim == self.ndim;
    auto zero_or_add = [&](bool zero) {
      for (int64_t i = 0; i < (zero ? out.numel : self.numel); ++i) {
        int64_t rest = i, source = 0, target = 0;
        const TensorView& walked = zero ? out : self;
        for (int d = walked.ndim - 1, o = out.ndim - 1; d >= 0; --d) {
          const int64_t here = rest % walked.sizes[d];
          rest /= walked.sizes[d];
          if (zero) {
            target += here * out.strides[d];
            continue;
          }
          source += here * self.strides[d];
          const bool reduced = dims >> d & 1;
          if (!reduced) target += here * out.strides[o];
          if (!reduced || keepdim) --o;
        }
        to[target] = zero ? T(0) : to[target] + from[source];
      }
    };
    zero_or_add(true);
    zero_or_add(false);
  });
}

void matmul(const MatmulCall& call) {
  visit("matmul", call.out.dtype, [&]<class T>(Tag<T>) {
    const T alpha = call.alpha.cast<T>(), beta = call.beta.cast<T>();
    const int64_t inner = call.a.sizes[2];
    auto element = [](const TensorView& t, int64_t b, int64_t r, int64_t c) -> T& {
      return reinterpret_cast<T*>(host_address(t.data))[b * t.strides[0] + r * t.strides[1] + c * t.strides[2]];
    };
    for (int64_t b = 0; b < call.out.sizes[0]; ++b) {
      for (int64_t r = 0; r < call.out.sizes[1]; ++r) {
        for (int64_t c = 0; c < call.out.sizes[2]; ++c) {
          T sum = 0;
          for (int64_t k = 0; k < inner; ++k) sum += element(call.a, b, r, k) * element(call.b, b, k, c);
          T value = alpha * sum;
          if (beta != T(0)) value += beta * element(call.out, b, r, c);
          if (call.bias) value += reinterpret_cast<const T*>(host_address(call.bias))[c];
          element(call.out, b, r, c) = value;
        }
      }
    }
  });
}

}  // namespace stub

extern "C" const mica::Backend* mica_backend() {
  static const mica::KernelTable kernels = [] {
    mica::KernelTable t;
    t.copy = stub::copy;
    t.fill = stub::fill;
    t.add = stub::add;
    t.mul = stub::mul;
    t.reduce_sum = stub::reduce_sum;
    t.matmul = stub::matmul;
    return t;
  }();
  static const mica::Backend backend = [] {
    mica::Backend b;
    b.abi = mica::kBackendAbi + STUB_ABI_OFFSET;
    b.name = "stub";
    b.kernels = &kernels;
    b.dlpack_type = 12;  // a device that DLPack has no name for
    b.device_count = stub::device_count;
    b.current_device = stub::current_device;
    b.set_device = stub::set_device;
    b.allocate = stub::allocate;
    b.free = stub::release;
    b.copy_bytes = stub::copy_bytes;
    b.synchronize = stub::synchronize;
    b.memory_stats = stub::memory_stats;
    b.reset_peak_memory_stats = stub::reset_peak_memory_stats;
    b.device_name = stub::device_name;
    b.current_stream = stub::current_stream;
    b.stream_done = stub::stream_done;
    b.new_event = stub::new_event;
    b.free_event = stub::free_event;
    b.record_event = stub::record_event;
    b.wait_event = stub::wait_event;
    return b;
  }();
  return &backend;
}
