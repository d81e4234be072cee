// Mixed precision: while autocast is on, operations that gain from a short dtype get their inputs in it, and those that
// need the range of float32 get theirs in that. ops/modes/autocast.toml says which are which.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mica/core/grad_mode.h"
#include "mica/tensor.h"

namespace mica::autocast {

// The state of the calling thread, for each type of device.
bool is_enabled(DeviceType type);
void set_enabled(DeviceType type, bool enabled);
DType dtype(DeviceType type);  // bfloat16 on the CPU and float16 on CUDA unless set
void set_dtype(DeviceType type, DType dtype);

// Casts of parameters are kept until the outermost scope ends, so that a weight used twice is cast once.
bool is_cache_enabled();
void set_cache_enabled(bool enabled);
void clear_cache();
int increment_nesting();
int decrement_nesting();  // clears the cache when it comes to zero

// Turns autocast on or off for a scope.
class Guard {
 public:
  explicit Guard(DeviceType type = DeviceType::CPU, std::optional<DType> dtype = std::nullopt, bool enabled = true);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

 private:
  DeviceType type_;
  DType dtype_;
  bool enabled_;
};

enum class Policy : uint8_t { None, Lower, Float32, Widest };

// Casts the inputs of an operation, for its entry. While a Cast that is active lives, autocast is off on this thread.
class Cast {
 public:
  template <class... Ts>
  Cast(Policy cpu, Policy cuda, const Ts&... inputs) {
    (see(inputs), ...);
    choose(cpu, cuda);
    if (policy_ == Policy::Widest) (widen(inputs), ...);
  }
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;
  ~Cast() {
    if (active()) set_modes(mode_bit::kAutocast, true);
  }

  bool active() const { return policy_ != Policy::None; }
  Tensor operator()(const Tensor& input) const;
  std::vector<Tensor> operator()(TensorList inputs) const;

 private:
  void see(const Tensor& input);
  void see(TensorList inputs);
  void choose(Policy cpu, Policy cuda);
  void widen(const Tensor& input);
  void widen(TensorList inputs);

  std::optional<DeviceType> device_;  // of the first tensor
  Policy policy_ = Policy::None;
  DType target_ = DType::Float32;
};

}  // namespace mica::autocast
