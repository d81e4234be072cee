// The modes of a thread: one word, so that an operation's entry asks about all of them with one test.
#pragma once

#include <cstdint>

namespace mica {

namespace mode_bit {
inline constexpr uint32_t kNoGrad = 1u << 0;  // true when gradients are off, so that the usual word is zero
inline constexpr uint32_t kInference = 1u << 1;
inline constexpr uint32_t kAnomaly = 1u << 2;
inline constexpr uint32_t kSavedTensorHooks = 1u << 3;
inline constexpr uint32_t kAutocast = 1u << 4;
inline constexpr uint32_t kProfile = 1u << 5;
inline constexpr uint32_t kObserve = 1u << 6;         // inspection of copies and allocations
inline constexpr uint32_t kFunctionMode = 1u << 7;    // a Python TorchFunctionMode is active
inline constexpr uint32_t kAnomalySkipNan = 1u << 8;  // detect_anomaly(check_nan=False)
inline constexpr uint32_t kRecord = 1u << 9;  // kernels may be put off, to run with others: mica/core/recording.h
// Bits for which an operation's entry calls the hooks in src/core/entry.cpp.
inline constexpr uint32_t kHooked = kAutocast | kProfile | kObserve;
}  // namespace mode_bit

extern constinit thread_local uint32_t thread_modes __attribute__((tls_model("initial-exec")));

inline bool grad_enabled() { return !(thread_modes & (mode_bit::kNoGrad | mode_bit::kInference)); }
inline bool inference_mode_enabled() { return thread_modes & mode_bit::kInference; }
inline bool anomaly_enabled() { return thread_modes & mode_bit::kAnomaly; }
inline void set_modes(uint32_t bits, bool on) { thread_modes = on ? thread_modes | bits : thread_modes & ~bits; }

// Sets or clears bits for a scope; other bits changed within the scope are restored too.
class ModeGuard {
 public:
  ModeGuard(uint32_t bits, bool on) : saved_(thread_modes) { set_modes(bits, on); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;
  ~ModeGuard() { thread_modes = saved_; }

 private:
  uint32_t saved_;
};
struct NoGradGuard : ModeGuard {
  NoGradGuard() : ModeGuard(mode_bit::kNoGrad, true) {}
};
struct EnableGradGuard : ModeGuard {
  explicit EnableGradGuard(bool enabled = true) : ModeGuard(mode_bit::kNoGrad, !enabled) {}
};
struct InferenceModeGuard : ModeGuard {
  explicit InferenceModeGuard(bool enabled = true) : ModeGuard(mode_bit::kInference, enabled) {}
};
class AnomalyGuard : ModeGuard {
 public:
  explicit AnomalyGuard(bool enabled = true, bool check_nan = true) : ModeGuard(mode_bit::kAnomaly, enabled) {
    set_modes(mode_bit::kAnomalySkipNan, !check_nan);
  }
};

}  // namespace mica
