// Modes that take operations over: while one is active on a thread, an operation's entry hands its arguments to it,
// below autograd, instead of computing. Python's TorchDispatchMode is built on this.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "mica/core/grad_mode.h"
#include "mica/core/options.h"
#include "mica/generator.h"
#include "mica/tensor.h"

namespace mica::dispatch {

// Whether a mode is active on this thread. mode_bit::kProfile is set as well then, and an entry asks this only where
// that bit is set: a call without modes tests one bit for both.
extern constinit thread_local bool active __attribute__((tls_model("initial-exec")));
void set_active(bool on);
// Whether the program itself calls a factory. A mode sees such calls only, not those that the engine makes for its own
// tensors.
extern constinit thread_local bool direct __attribute__((tls_model("initial-exec")));

// No mode is active in this scope, in which an operation of the engine's own runs.
class Aside {
 public:
  Aside() { set_active(false); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  ~Aside() { set_active(true); }
};

// One argument of an operation, by reference: it lives as long as the call.
class Argument {
 public:
  enum class Kind : uint8_t {
    Tensor,
    Tensors,
    Int,
    Double,
    Bool,
    Text,
    Scalar,
    DType,
    MemoryFormat,
    Layout,
    Device,
    Generator,
    Options,
    Storage,
    Ints,
    Doubles,
    Bools,
    Scalars,
  };
  // clang-format off
  Argument(const mica::Tensor& v) : Argument(Kind::Tensor, &v) {}
  Argument(const TensorList& v) : Argument(Kind::Tensors, &v) {}
  Argument(const int64_t& v) : Argument(Kind::Int, &v) {}
  Argument(const double& v) : Argument(Kind::Double, &v) {}
  Argument(const bool& v) : Argument(Kind::Bool, &v) {}
  Argument(const std::string_view& v) : Argument(Kind::Text, &v) {}
  Argument(const mica::Scalar& v) : Argument(Kind::Scalar, &v) {}
  Argument(const mica::DType& v) : Argument(Kind::DType, &v) {}
  Argument(const mica::MemoryFormat& v) : Argument(Kind::MemoryFormat, &v) {}
  Argument(const mica::Layout& v) : Argument(Kind::Layout, &v) {}
  Argument(const mica::Device& v) : Argument(Kind::Device, &v) {}
  Argument(const mica::Generator& v) : Argument(Kind::Generator, &v) {}
  Argument(const TensorOptions& v) : Argument(Kind::Options, &v) {}
  Argument(const mica::Storage& v) : Argument(Kind::Storage, &v) {}
  Argument(const IntArrayRef& v) : Argument(Kind::Ints, &v) {}
  Argument(const ArrayRef<double>& v) : Argument(Kind::Doubles, &v) {}
  Argument(const ArrayRef<bool>& v) : Argument(Kind::Bools, &v) {}
  Argument(const ArrayRef<mica::Scalar>& v) : Argument(Kind::Scalars, &v) {}
  // clang-format on
  template <class T>
  Argument(const std::optional<T>& v) : Argument(Kind::Int, nullptr) {
    if (v) *this = Argument(*v);
  }

  bool is_none() const { return !value_; }
  Kind kind() const { return kind_; }
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(value_);
  }

 private:
  Argument(Kind kind, const void* value) : value_(value), kind_(kind) {}

  const void* value_;
  Kind kind_;
};

using Arguments = std::initializer_list<Argument>;

inline constexpr int kAnyNumber = -1;
// Set by the Python extension: asks the innermost mode for the results of an operation ("add.Tensor"), `count` tensors
// or any number of them.
extern std::vector<Tensor> (*handler)(const char* name, const Argument* arguments, size_t size, int count);

// Hands a call to the mode. Where the operation records its derivative itself (`recorded`), the results have no
// history.
std::vector<Tensor> call(const char* name, Arguments arguments, int count, bool recorded);
Tensor call_one(const char* name, Arguments arguments, bool recorded);
void call_none(const char* name, Arguments arguments, bool recorded);

bool shares_memory(const Tensor& a, const Tensor& b);

}  // namespace mica::dispatch
