// A call of a kernel that is put off: its kernel, and the parts of storages on which it runs. The core fills it in;
// src/compiler plans and runs it.
#pragma once

#include <cstring>
#include <new>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "mica/backend/fusion.h"
#include "mica/backend/pointwise_loop.h"
#include "mica/backend/tensor_view.h"
#include "mica/core/storage.h"

namespace mica::recording {

inline constexpr int kDims = 8;      // of more, a call is not put off
inline constexpr int kOperands = 8;  // the gradients of a norm have most
static_assert(kOperands >= PointwiseLoop::kMaxOperands);
inline constexpr int64_t kLeastElements = 4096;  // of fewer, only where an operand is still to be computed

struct Operand {
  StorageImpl* storage;  // null: a number
  int64_t offset;        // in bytes, as the strides are
  int64_t strides[kDims];
  int64_t sizes[kDims];  // of a call on rows; operands of a pointwise call all have the call's shape
  int32_t ndim;
  DType dtype;
  alignas(16) unsigned char number[16];
  int32_t slot;  // its number in the recording, which fills it in
};

struct Call {
  // What it is to a backend that fuses calls. Rows: nothing.
  enum class Form : uint8_t { Loop, Indexed, Rows, Product, Sum, Norm, Attention };

  const char* name;  // the name of the kernel
  Form form;
  // Runs the kernel on a piece of the call. A pointwise kernel gets a loop. A kernel on rows gets views, from which
  // `dropped` leading dimensions were taken away.
  void (*run_loop)(const Call& call, const PointwiseLoop& loop);
  void (*run_rows)(const Call& call, const TensorView* views, int dropped);
  void (*kernel)();
  alignas(16) unsigned char arguments[112];
  Device device;
  FusedInstruction step;  // for devices other than the CPU
  DType dtype, result_dtype;
  int32_t noutputs, noperands;
  int32_t ndim;  // the dimensions of the shape; of a call on rows, the leading dimensions along which it can be cut
  int64_t shape[kDims];  // slowest dimension of the output first
  Operand operands[kOperands];
};

// The argument of an Indexed call: a copy whose last operand is a number that says where its output lies, `step` bytes
// further for each place of dimension `dim`.
struct IndexedPlace {
  int64_t step, size;
  int32_t dim;
  friend bool operator==(const IndexedPlace&, const IndexedPlace&) = default;
};

// The arguments of a Norm call, layer_norm or rms_norm or their gradients: which of its operands is what, -1 where
// there is none. Of gradients `out` is that of the input.
struct NormArguments {
  int64_t rows, count;
  double eps;
  bool centred, backward;
  int8_t out = -1, mean = -1, rstd = -1, grad_weight = -1, grad_bias = -1;
  int8_t grad = -1, input = -1, weight = -1, bias = -1;
};

// The argument of an Attention call, whose operands are the result, logsumexp, query, key, value and perhaps the mask.
struct AttentionArguments {
  double scale;
  bool is_causal;
};

// Whether all elements of an operand of a pointwise call lie one after the other, in the order of the call.
inline bool lies_dense(const Call& call, const Operand& o) {
  int64_t step = element_size(o.dtype);
  for (int d = call.ndim - 1; d >= 0; --d) {
    if (call.shape[d] != 1 && o.strides[d] != step) return false;
    step *= call.shape[d];
  }
  return o.storage != nullptr;
}

// The call to fill in, and its end: nothing is known of it before. False where it cannot be put off after all.
Call& begin_call();
bool end_call();

// The functions by which a device's backend fuses calls, or null: then its calls are not put off.
const Fusion* fusion_of(Device device);

template <class T>
T stored(const T& value) {
  return value;
}
inline FusedText stored(std::string_view value) {
  FusedText text{{}, static_cast<uint32_t>(value.size() < sizeof(text.data) ? value.size() : sizeof(text.data))};
  std::memcpy(text.data, value.data(), text.size);
  return text;
}

// Puts a kernel of pointwise loops and its further arguments into a call.
template <class... P, class... A>
void set_kernel(Call& call, void (*kernel)(const PointwiseLoop&, P...), const A&... arguments) {
  using Arguments = std::tuple<decltype(stored(static_cast<P>(arguments)))...>;
  static_assert(sizeof(Arguments) <= sizeof(call.arguments) && std::is_trivially_destructible_v<Arguments>);
  new (call.arguments) Arguments(stored(static_cast<P>(arguments))...);
  call.form = Call::Form::Loop;
  call.kernel = reinterpret_cast<void (*)()>(kernel);
  call.run_rows = nullptr;
  call.run_loop = [](const Call& c, const PointwiseLoop& loop) {
    std::apply(
        [&](const auto&... each) { reinterpret_cast<void (*)(const PointwiseLoop&, P...)>(c.kernel)(loop, each...); },
        *reinterpret_cast<const Arguments*>(c.arguments));
  };
}

// The same for a kernel on rows: `body(views, dropped)` calls it, and is copied.
template <class Body>
void set_rows(Call& call, const Body& body) {
  static_assert(sizeof(Body) <= sizeof(call.arguments) && std::is_trivially_copyable_v<Body>);
  new (call.arguments) Body(body);
  call.form = Call::Form::Rows;
  call.run_loop = nullptr;
  call.run_rows = [](const Call& c, const TensorView* views, int dropped) {
    (*reinterpret_cast<const Body*>(c.arguments))(views, dropped);
  };
}

}  // namespace mica::recording
