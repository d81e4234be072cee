// Mica's tensors and operations under torch's names: namespaces torch, at and c10.
#pragma once

#include <complex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mica/mica.h"
#include "torch/check.h"
#include "torch/dispatch.h"

namespace c10 {

using namespace mica;  // NOLINT: the names of torch's library are Mica's
using std::nullopt;
using std::optional;
template <class T>
using complex = std::complex<T>;
using string_view = std::string_view;
enum class DispatchKey : uint8_t {
  CPU,
  CUDA,
  Meta,
  Autograd,
  AutogradCPU,
  AutogradCUDA,
  CompositeImplicitAutograd,
  CompositeExplicitAutograd
};

// For a scope, `device` is the current one of its type.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) : previous_(device.is_cpu() ? device : with_index(Device(device.type()))) {
    set(device);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() { set(previous_); }

 private:
  static void set(Device device) {
    if (device.is_cpu() || device.is_meta() || !device.has_index()) return;
    MICA_HOOK(backend(device.type()), set_device)(device.index());
  }
  Device previous_;
};

}  // namespace c10

namespace at {

using namespace mica;  // NOLINT
using c10::DeviceGuard;
using c10::nullopt;
using c10::optional;

// The type that sums of Ts are taken in.
template <class T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<mica::Half> {
  using type = float;
};
template <>
struct OpMathType<mica::BFloat16> {
  using type = float;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;
template <class T, bool is_cuda>
using acc_type = std::conditional_t<std::is_integral_v<T>, int64_t,
                                    std::conditional_t<!is_cuda && std::is_same_v<T, float>, double, opmath_type<T>>>;

inline std::optional<Device> device_of(const Tensor& t) {
  return t.defined() ? std::optional(t.device()) : std::nullopt;
}

}  // namespace at

namespace torch {

using namespace mica;  // NOLINT
using c10::DispatchKey;
using c10::nullopt;
using c10::optional;

inline TensorOptions dtype(DType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions layout(Layout l) { return TensorOptions(l); }
inline TensorOptions requires_grad(bool value = true) { return TensorOptions().requires_grad(value); }

inline constexpr Layout kStrided = Layout::Strided, kSparse = Layout::SparseCoo, kSparseCsr = Layout::SparseCsr;

using AutoGradMode = EnableGradGuard;
using InferenceMode = InferenceModeGuard;

namespace cuda {
inline int64_t device_count() { return mica::device_count(DeviceType::CUDA); }
inline bool is_available() { return device_count() > 0; }
}  // namespace cuda

namespace autograd {
using namespace mica::autograd;  // NOLINT
using variable_list = std::vector<Tensor>;
using tensor_list = std::vector<Tensor>;
using Variable = Tensor;
}  // namespace autograd

}  // namespace torch
