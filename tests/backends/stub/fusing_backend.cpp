// A backend that fuses calls and needs no GPU: its memory is the host's, and its kernels are the CPU's. A fused loop is
// followed instruction by instruction, each on all elements, by the kernel that it stands for, so that results have the
// bits of the calls one by one. With MICA_FUSING_IDLE=1 in the environment its kernels do nothing: what is left is what
// the host pays for calls (bench/host_costs.py).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fusing.h"
#include "mica/backend/layer_backend.h"
#include "mica/error.h"

namespace fusing {

using namespace mica;

// ---- devices and memory

const bool idle = std::getenv("MICA_FUSING_IDLE") != nullptr;

int device_count() { return 1; }
int current_device() { return 0; }
void set_device(int) {}
// Blocks are kept for the next call, as a GPU's allocator keeps them.
thread_local std::map<size_t, std::vector<void*>>* blocks = new std::map<size_t, std::vector<void*>>;
void* allocate(size_t nbytes, int) {
  const size_t bytes = (nbytes + 511) / 512 * 512;
  std::vector<void*>& kept = (*blocks)[bytes];
  if (kept.empty()) return std::aligned_alloc(512, bytes);
  void* block = kept.back();
  kept.pop_back();
  return block;
}
void release(void* data, size_t nbytes, int) { (*blocks)[(nbytes + 511) / 512 * 512].push_back(data); }
void copy_bytes(void* to, Device, const void* from, Device, size_t nbytes, bool) { std::memcpy(to, from, nbytes); }
void synchronize(int) {}
Generator& default_generator(int) {
  static Generator generator;
  return generator;
}
Generator new_generator(int, uint64_t seed) { return Generator(seed); }

// ---- slots: the CPU's, called with arguments of the host

TensorView on_host(const TensorView& view) {
  TensorView host = view;
  host.device = Device();
  return host;
}

template <class T>
struct Argument {
  T value;
  explicit Argument(T given) : value(given) {}
  T get() { return value; }
};
template <>
struct Argument<const TensorView&> {
  TensorView view;
  explicit Argument(const TensorView& given) : view(on_host(given)) {}
  const TensorView& get() { return view; }
};
template <>
struct Argument<TensorViewList> {
  std::list<TensorView> views;
  std::vector<const TensorView*> pointers;
  explicit Argument(TensorViewList given) {
    for (const TensorView* v : given) pointers.push_back(&views.emplace_back(on_host(*v)));
  }
  TensorViewList get() { return {pointers.data(), pointers.size()}; }
};
template <>
struct Argument<const MatmulCall&> {
  MatmulCall call;
  explicit Argument(const MatmulCall& given) : call(given) {
    for (TensorView* view : {&call.out, &call.a, &call.b}) view->device = Device();
  }
  const MatmulCall& get() { return call; }
};
template <>
struct Argument<const PointwiseLoop&> {
  PointwiseLoop loop;
  explicit Argument(const PointwiseLoop& given) : loop(given) { loop.device = Device(); }
  const PointwiseLoop& get() { return loop; }
};

template <auto kSlot, class... Args>
void run_slot(Args... args) {
  if (idle) return;
  note_kernel();
  std::tuple<Argument<Args>...> host{Argument<Args>(args)...};
  std::apply([](auto&... each) { (*kSlot)(each.get()...); }, host);
}
template <auto kSlot, class... Args>
auto wrap(void (*cpu)(Args...)) -> void (*)(Args...) {
  return cpu ? run_slot<kSlot, Args...> : nullptr;
}
// The steps of optimizers take addresses within a struct; without them the engine's operations do it.
template <auto>
auto wrap(void (*)(const struct FusedStep&)) -> void (*)(const struct FusedStep&) {
  return nullptr;
}

// ---- what an instruction stands for: a kernel, its further arguments, dtypes and numbers

template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<std::string_view> {
  using type = FusedText;
};

using Invoke = void (*)(const PointwiseLoop&, const void* arguments);
struct Slot {
  Invoke invoke = nullptr;
  size_t bytes = 0;  // of the arguments
};
template <auto kSlot, class... P>
Slot slot_of(void (*)(const PointwiseLoop&, P...)) {
  using Arguments = std::tuple<typename Stored<std::remove_cvref_t<P>>::type...>;
  return {[](const PointwiseLoop& loop, const void* arguments) {
            std::apply([&](const auto&... each) { (*kSlot)(loop, each...); },
                       *static_cast<const Arguments*>(arguments));
          },
          sizeof...(P) ? sizeof(Arguments) : 0};
}
template <auto>
Slot slot_of(...) {
  return {};
}
const std::map<std::string_view, Slot>& slots() {
  static const auto* all = new std::map<std::string_view, Slot>{
#define MICA_SLOT(slot, written) {#slot, slot_of<&cpu_kernels.slot>(cpu_kernels.slot)},
      MICA_KERNEL_SLOTS(MICA_SLOT)
#undef MICA_SLOT
  };
  return *all;
}

// What the code of an instruction says.
struct Kind {
  Invoke invoke;
  DType dtype, result_dtype;
  DType dtypes[4];
  uint32_t numbers;
  friend bool operator==(const Kind&, const Kind&) = default;
};
// What differs from call to call. The instruction's first parameter says which it is.
struct Numbers {
  alignas(16) unsigned char values[4][16];
  alignas(16) unsigned char arguments[112];
};
std::mutex described_mutex;
std::vector<Kind>& kinds() {
  static auto* all = new std::vector<Kind>(2);  // codes of loads and stores come first
  return *all;
}
std::deque<Numbers>& numbers() {
  static auto* all = new std::deque<Numbers>;
  return *all;
}

bool is_fused_float(DType t) { return t == DType::Float32 || t == DType::Float16 || t == DType::BFloat16; }

bool describe(const char* name, const PointwiseLoop& loop, const void* arguments, FusedInstruction& step) {
  if (loop.noutputs != 1 || loop.noperands < 2 || loop.noperands > 4) return false;
  for (int k = 0; k < loop.noperands; ++k)
    if (!is_fused_float(loop.dtypes[k]) && loop.dtypes[k] != DType::Bool) return false;
  step.dtype = loop.dtypes[0];
  step.parameters[0] = step.parameters[1] = 0;
  step.inputs = static_cast<uint8_t>(loop.noperands - 1);
  for (int i = 0; i < step.inputs; ++i) {
    step.in[i] = loop.numbers >> (i + 1) & 1 ? FusedInstruction::kNumber : static_cast<int8_t>(i + 1);
    step.numbers[i] = 0;
  }
  step.code = 2;
  if (idle) return true;
  const auto found = slots().find(name);
  if (found == slots().end() || !found->second.invoke) return false;
  Kind kind{found->second.invoke, loop.dtype, loop.result_dtype, {}, loop.numbers};
  Numbers given{};
  for (int k = 0; k < loop.noperands; ++k) {
    kind.dtypes[k] = loop.dtypes[k];
    if (loop.numbers >> k & 1) std::memcpy(given.values[k], loop.data[k], sizeof given.values[k]);
  }
  if (found->second.bytes) std::memcpy(given.arguments, arguments, found->second.bytes);
  const std::lock_guard lock(described_mutex);
  const auto at = std::find(kinds().begin(), kinds().end(), kind);
  step.code = static_cast<int16_t>(at - kinds().begin());
  if (at == kinds().end()) kinds().push_back(kind);
  step.parameters[0] = static_cast<float>(numbers().size());
  numbers().push_back(given);
  return true;
}

// ---- loops

// Calls visit(offset in the operand, number of the element) for every element of the loop.
template <class Visit>
void each_element(const FusedLoop& loop, const int64_t* strides, const Visit& visit) {
  int64_t count = 1;
  for (int d = 0; d < loop.ndim; ++d) count *= loop.shape[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0;
    for (int d = loop.ndim - 1; d >= 0; --d) at += rest % loop.shape[d] * strides[d], rest /= loop.shape[d];
    visit(at, i);
  }
}

struct Register {
  std::vector<char> bytes;
  DType dtype = DType::Undefined;
};

void follow(const FusedLoop& loop) {
  int64_t count = 1;
  for (int d = 0; d < loop.ndim; ++d) count *= loop.shape[d];
  Register registers[kFusedRegisters];
  Register last;
  for (int i = 0; i < loop.ninstructions; ++i) {
    const FusedInstruction& now = loop.instructions[i];
    const auto input = [&](int k) -> Register& {
      const Register& from = now.in[k] == FusedInstruction::kLast ? last : registers[now.in[k]];
      return const_cast<Register&>(from);
    };
    const int64_t size = element_size(now.dtype);
    if (now.code == FusedInstruction::kStore) {
      const FusedLoop::Operand& o = loop.operands[now.operand];
      MICA_CHECK(input(0).dtype == o.dtype, "a store of another dtype");
      int64_t place = o.index ? *o.index : 0;
      if (place < 0) place += o.size;
      MICA_CHECK(!o.index || (place >= 0 && place < o.size), "a place that there is not");
      each_element(loop, o.strides, [&](int64_t at, int64_t element) {
        std::memcpy(o.data + place * o.step + at, input(0).bytes.data() + element * size, static_cast<size_t>(size));
      });
      continue;  // the last result stays what it is
    }
    Register made{std::vector<char>(static_cast<size_t>(count * size)), now.dtype};
    if (now.code == FusedInstruction::kLoad) {
      const FusedLoop::Operand& o = loop.operands[now.operand];
      each_element(loop, o.strides, [&](int64_t at, int64_t element) {
        std::memcpy(made.bytes.data() + element * size, o.data + at, static_cast<size_t>(size));
      });
    } else {
      Kind kind;
      Numbers given;
      {
        const std::lock_guard lock(described_mutex);
        kind = kinds()[static_cast<size_t>(now.code)];
        given = numbers()[static_cast<size_t>(now.parameters[0])];
      }
      PointwiseLoop dense{};
      dense.numel = count;
      dense.ndim = 1;
      dense.shape[0] = count;
      dense.noutputs = 1;
      dense.noperands = now.inputs + 1;
      dense.numbers = kind.numbers;
      dense.dtype = kind.dtype;
      dense.result_dtype = kind.result_dtype;
      for (int k = 0; k < dense.noperands; ++k) {
        const bool number = kind.numbers >> k & 1;
        dense.dtypes[k] = kind.dtypes[k];
        dense.strides[0][k] = number ? 0 : element_size(kind.dtypes[k]);
        if (k > 0 && !number) {
          MICA_CHECK(input(k - 1).dtype == kind.dtypes[k], "an instruction got a value of another dtype");
          dense.data[k] = input(k - 1).bytes.data();
        } else {
          dense.data[k] = number ? reinterpret_cast<char*>(given.values[k]) : made.bytes.data();
        }
      }
      kind.invoke(dense, given.arguments);
    }
    last = made;
    if (now.out >= 0) registers[now.out] = std::move(made);
  }
}

bool run(const FusedLoop& loop) {
  if (idle) return true;
  note_kernel();
  follow(loop);
  return true;
}

// ---- norms of float32 rows, which only count where nothing is computed

bool takes_norm(int64_t count) { return count <= 4096; }
void run_norm(const FusedNorm&) {}
void run_norm_gradient(const FusedNormGradient&) {}

const Fusion* fusion() {
  static const Fusion found = [] {
    Fusion f{};
    f.describe = describe;
    f.run = run;
    if (!idle) {
      f.takes_product = takes_product;
      f.takes_tails = takes_tails;
      f.run_products = run_products;
      f.takes_attention = takes_attention;
      f.run_attention = run_attention;
    }
    if (idle) {
      f.takes_norm = takes_norm;
      f.run_norm = run_norm;
      f.run_norm_gradient = run_norm_gradient;
    }
    return f;
  }();
  return &found;
}

void* extension(const char* name) {
  return std::string_view(name) == "fusion" ? const_cast<Fusion*>(fusion()) : nullptr;
}

}  // namespace fusing

extern "C" const mica::Backend* mica_backend() {
  static const mica::KernelTable kernels = [] {
    mica::KernelTable t;
#define MICA_WRAP(slot, written) t.slot = fusing::wrap<&mica::cpu_kernels.slot>(mica::cpu_kernels.slot);
    MICA_KERNEL_SLOTS(MICA_WRAP)
#undef MICA_WRAP
    return t;
  }();
  static const mica::LayerKernelTable layers = [] {
    mica::LayerKernelTable t;
#define MICA_WRAP(slot, written) t.slot = fusing::wrap<&mica::cpu_layer_kernels.slot>(mica::cpu_layer_kernels.slot);
    MICA_LAYER_KERNEL_SLOTS(MICA_WRAP)
#undef MICA_WRAP
    return t;
  }();
  static const mica::Backend backend = [] {
    mica::Backend b;
    b.abi = mica::kBackendAbi;
    b.name = "fusing";
    b.kernels = &kernels;
    b.layer_abi = mica::kLayerKernelTableHash;
    b.layer_kernels = &layers;
    b.device_count = fusing::device_count;
    b.current_device = fusing::current_device;
    b.set_device = fusing::set_device;
    b.allocate = fusing::allocate;
    b.free = fusing::release;
    b.copy_bytes = fusing::copy_bytes;
    b.synchronize = fusing::synchronize;
    b.default_generator = fusing::default_generator;
    b.new_generator = fusing::new_generator;
    b.capabilities.reports_indices = true;  // a call need not wait for its index; tests give none that is outside
    b.extension = fusing::extension;
    return b;
  }();
  return &backend;
}
