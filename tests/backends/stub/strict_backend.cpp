// A backend that holds the core and the contracts of slots to each other. Its kernels are the CPU's behind addresses
// that nobody can read through. Before a slot runs, everything that its contract says it writes is filled with garbage:
// a caller that relies on zeros, or a slot that adds where it should write, gives other numbers than the CPU does.
#include <cstdlib>
#include <cstring>
#include <list>
#include <tuple>
#include <utility>
#include <vector>

#include "mica/error.h"
#include "mica/backend/layer_backend.h"

namespace strict {

using namespace mica;

constexpr uintptr_t kMark = uintptr_t{1} << 56;  // makes an address one that the processor refuses
constexpr unsigned char kGarbage = 0xff;         // a NaN, -1, or a bool that is neither 0 nor 1

void* device_address(void* host) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kMark); }
char* host_address(const void* device) {
  if (!device) return nullptr;
  const auto bits = reinterpret_cast<uintptr_t>(device);
  MICA_CHECK(bits & kMark, "a slot got an address of the host where one of the device was due");
  return reinterpret_cast<char*>(bits & ~kMark);
}

// ---- devices and memory

int device_count() { return 1; }
int current_device() { return 0; }
void set_device(int) {}
void* allocate(size_t nbytes, int) {
  void* const memory = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
  std::memset(memory, kGarbage, nbytes);
  return device_address(memory);
}
void release(void* data, size_t, int) { std::free(host_address(data)); }
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes, bool) {
  std::memcpy(to_device.is_cpu() ? to : host_address(to), from_device.is_cpu() ? from : host_address(from), nbytes);
}
void synchronize(int) {}
Generator& default_generator(int) {
  static Generator generator;
  return generator;
}
Generator new_generator(int, uint64_t seed) { return Generator(seed); }

// ---- arguments of slots, as the CPU takes them

void fill_with_garbage(const TensorView& view) {
  const auto size = static_cast<size_t>(element_size(view.dtype));
  for (int64_t i = 0; i < view.numel; ++i) {
    int64_t rest = i, at = 0;
    for (int d = view.ndim - 1; d >= 0; --d) {
      at += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    std::memset(view.ptr<char>() + at * static_cast<int64_t>(size), kGarbage, size);
  }
}

TensorView on_host(const TensorView& view) {
  TensorView host = view;
  MICA_CHECK(!view.defined() || !view.device.is_cpu(), "a slot of a device got a view of the host's memory");
  host.data = host_address(view.data);
  host.device = Device();
  return host;
}

// Each argument of a slot becomes one of these, which lives as long as the call.
template <class T>
struct Argument {
  T value;
  Argument(T given, bool) : value(given) {}
  T get() { return value; }
};
template <>
struct Argument<const TensorView&> {
  TensorView view;
  Argument(const TensorView& given, bool written) : view(on_host(given)) {
    if (written && view.defined()) fill_with_garbage(view);
  }
  const TensorView& get() { return view; }
};
template <>
struct Argument<TensorViewList> {
  std::list<TensorView> views;
  std::vector<const TensorView*> pointers;
  Argument(TensorViewList given, bool) {
    for (const TensorView* v : given) pointers.push_back(&views.emplace_back(on_host(*v)));
  }
  TensorViewList get() { return {pointers.data(), pointers.size()}; }
};
template <>
struct Argument<const MatmulCall&> {
  MatmulCall call;
  Argument(const MatmulCall& given, bool) : call(given) {
    call.out = on_host(given.out);
    call.a = on_host(given.a);
    call.b = on_host(given.b);
    call.bias = host_address(given.bias);
    if (!call.beta.is_complex() && call.beta.to_double() == 0) fill_with_garbage(call.out);
  }
  const MatmulCall& get() { return call; }
};
template <>
struct Argument<const PointwiseLoop&> {
  PointwiseLoop loop;
  Argument(const PointwiseLoop& given, bool) : loop(given) {
    loop.device = Device();
    for (int k = 0; k < loop.noperands; ++k)
      if (!(loop.numbers >> k & 1)) loop.data[k] = host_address(loop.data[k]);
    for (int k = 0; k < loop.noutputs; ++k)
      if (!is_read(k)) fill(k);
  }
  const PointwiseLoop& get() { return loop; }

 private:
  // An operation in place has its output among its inputs.
  bool is_read(int output) const {
    for (int k = loop.noutputs; k < loop.noperands; ++k)
      if (loop.data[k] == loop.data[output]) return true;
    return false;
  }
  void fill(int output) const {
    const auto size = static_cast<size_t>(element_size(loop.dtypes[output]));
    for (int64_t i = 0; i < loop.numel; ++i) {
      char* at = loop.data[output];
      int64_t rest = i;
      for (int d = 0; d < loop.ndim; ++d) {
        at += rest % loop.shape[d] * loop.strides[d][output];
        rest /= loop.shape[d];
      }
      std::memset(at, kGarbage, size);
    }
  }
};

// ---- the slots

// The function of the slot at *kSlot: the CPU's, called with arguments of the host.
template <auto kSlot, uint32_t kWritten, class... Args>
void run(Args... args) {
  [&]<size_t... kPlace>(std::index_sequence<kPlace...>) {
    std::tuple<Argument<Args>...> host{Argument<Args>(args, kWritten >> kPlace & 1)...};
    (*kSlot)(std::get<kPlace>(host).get()...);
  }
  (std::index_sequence_for<Args...>());
}

template <auto kSlot, uint32_t kWritten, class... Args>
auto wrap(void (*cpu)(Args...)) -> void (*)(Args...) {
  return cpu ? run<kSlot, kWritten, Args...> : nullptr;
}
// The steps of optimizers take addresses within a struct; without them the engine's operations do it.
template <auto, uint32_t>
auto wrap(void (*)(const struct FusedStep&)) -> void (*)(const struct FusedStep&) {
  return nullptr;
}

}  // namespace strict

extern "C" const mica::Backend* mica_backend() {
  static const mica::KernelTable kernels = [] {
    mica::KernelTable t;
#define MICA_WRAP(slot, written) t.slot = strict::wrap<&mica::cpu_kernels.slot, written>(mica::cpu_kernels.slot);
    MICA_KERNEL_SLOTS(MICA_WRAP)
#undef MICA_WRAP
    return t;
  }();
  static const mica::LayerKernelTable layers = [] {
    mica::LayerKernelTable t;
#define MICA_WRAP(slot, written) \
  t.slot = strict::wrap<&mica::cpu_layer_kernels.slot, written>(mica::cpu_layer_kernels.slot);
    MICA_LAYER_KERNEL_SLOTS(MICA_WRAP)
#undef MICA_WRAP
    return t;
  }();
  static const mica::Backend backend = [] {
    mica::Backend b;
    b.abi = mica::kBackendAbi;
    b.name = "strict";
    b.kernels = &kernels;
    b.layer_abi = mica::kLayerKernelTableHash;
    b.layer_kernels = &layers;
    b.device_count = strict::device_count;
    b.current_device = strict::current_device;
    b.set_device = strict::set_device;
    b.allocate = strict::allocate;
    b.free = strict::release;
    b.copy_bytes = strict::copy_bytes;
    b.synchronize = strict::synchronize;
    b.default_generator = strict::default_generator;
    b.new_generator = strict::new_generator;
    return b;
  }();
  return &backend;
}
