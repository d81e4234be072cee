#include "mica/autocast.h"

#include <array>
#include <unordered_map>

#include "amp/off.h"
#include "core/device_names.h"
#include "mica/ops.h"

namespace mica::autocast {

namespace {

struct State {
  bool enabled = false;
  DType dtype = DType::BFloat16;
};
struct Kept {
  Tensor source;  // keeps the key's memory from being used again
  Tensor cast;
};
struct ThreadState {
  std::array<State, kNumDeviceTypes> devices;
  std::unordered_map<const TensorImpl*, Kept> cache;
  bool cache_enabled = true;
  int nesting = 0;

  ThreadState() { devices[static_cast<size_t>(DeviceType::CUDA)].dtype = DType::Float16; }
};
thread_local ThreadState thread_state;

State& state(DeviceType type) { return thread_state.devices[static_cast<size_t>(type)]; }

bool is_eligible(const Tensor& t, DeviceType device) {
  return t.defined() && t.device().type() == device && is_floating(t.dtype()) && t.dtype() != DType::Float64;
}

Tensor cached_cast(const Tensor& t, DType target) {
  // A cast that was cached without a graph would cut the gradient of a later use, so only recorded casts are kept.
  const bool keeps = thread_state.cache_enabled && t.dtype() == DType::Float32 && target != DType::Float32 &&
                     t.requires_grad() && t.is_leaf() && !t.is_view() && grad_enabled();
  if (!keeps) return t.to(target);
  auto [place, is_new] = thread_state.cache.try_emplace(t.impl());
  if (is_new || place->second.cast.dtype() != target) place->second = {t, t.to(target)};
  return place->second.cast;
}

}  // namespace

bool is_enabled(DeviceType type) { return state(type).enabled; }

void set_enabled(DeviceType type, bool enabled) {
  state(type).enabled = enabled;
  bool any = false;
  for (const State& s : thread_state.devices) any |= s.enabled;
  set_modes(mode_bit::kAutocast, any);
}

DType dtype(DeviceType type) { return state(type).dtype; }
void set_dtype(DeviceType type, DType dtype) { state(type).dtype = dtype; }
bool is_cache_enabled() { return thread_state.cache_enabled; }
void set_cache_enabled(bool enabled) { thread_state.cache_enabled = enabled; }
void clear_cache() { thread_state.cache.clear(); }
int increment_nesting() { return ++thread_state.nesting; }
int decrement_nesting() {
  const int left = --thread_state.nesting;
  if (left == 0) clear_cache();
  return left;
}

Guard::Guard(DeviceType type, std::optional<DType> dtype, bool enabled)
    : type_(type), dtype_(autocast::dtype(type)), enabled_(is_enabled(type)) {
  increment_nesting();
  if (dtype) set_dtype(type, *dtype);
  set_enabled(type, enabled);
}

Guard::~Guard() {
  set_dtype(type_, dtype_);
  set_enabled(type_, enabled_);
  decrement_nesting();
}

static_assert(kNumDeviceTypes <= 32);

Off::Off() {
  for (size_t i = 0; i < kNumDeviceTypes; ++i)
    if (thread_state.devices[i].enabled) before_ |= 1u << i;
  increment_nesting();
  for (size_t i = 0; i < kNumDeviceTypes; ++i) set_enabled(static_cast<DeviceType>(i), false);
}

Off::~Off() {
  for (size_t i = 0; i < kNumDeviceTypes; ++i) set_enabled(static_cast<DeviceType>(i), before_ >> i & 1);
  decrement_nesting();
}

void Cast::see(const Tensor& input) {
  if (!device_ && input.defined()) device_ = input.device().type();
}
void Cast::see(TensorList inputs) {
  for (const Tensor& t : inputs) see(t);
}

void Cast::choose(Policy cpu, Policy cuda) {
  if (!device_ || !is_enabled(*device_)) return;
  // Fake tensors lie on meta and stand for others: while they are computed, autocast is on there as it is for those.
  const bool for_cpu = *device_ == DeviceType::CPU || (*device_ == DeviceType::Meta && is_enabled(DeviceType::CPU));
  policy_ = for_cpu ? cpu : cuda;
  if (policy_ == Policy::None) return;
  target_ = policy_ == Policy::Float32 ? DType::Float32 : dtype(*device_);
  set_modes(mode_bit::kAutocast, false);
}

void Cast::widen(const Tensor& input) {
  if (is_eligible(input, *device_) && input.dtype() != target_) target_ = DType::Float32;
}
void Cast::widen(TensorList inputs) {
  for (const Tensor& t : inputs) widen(t);
}

Tensor Cast::operator()(const Tensor& input) const {
  if (!is_eligible(input, *device_) || input.dtype() == target_) return input;
  return cached_cast(input, target_);
}
std::vector<Tensor> Cast::operator()(TensorList inputs) const {
  std::vector<Tensor> cast;
  cast.reserve(inputs.size());
  for (const Tensor& t : inputs) cast.push_back((*this)(t));
  return cast;
}

}  // namespace mica::autocast
