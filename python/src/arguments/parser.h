// Argument parsing for every operation: torch's signatures, conversions and error texts.
//
// A signature is kept as text until the operation is first called; then it is read once into a Signature. A call picks
// the first signature that fits and leaves the arguments in an Arguments object, whose accessors convert them.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mica/core/scalar.h"
#include "tensor/tensor_object.h"
#include "types/generator_object.h"
#include "types/objects.h"

namespace mica::python {

enum class Kind : uint8_t {
  Tensor,
  Scalar,
  Int,
  Double,
  Bool,
  String,
  Ints,
  Doubles,
  Bools,
  Scalars,
  Tensors,          // a list or tuple of tensors
  OptionalTensors,  // one whose elements may be None
  DType,
  Layout,
  Device,
  MemoryFormat,
  Generator,
  Outs,  // out= of an operation with several results
};

struct Param {
  Kind kind = Kind::Tensor;
  bool optional = false;
  bool keyword_only = false;
  bool allow_none = false;
  bool allow_numbers = false;  // a tensor for which a number may stand
  bool plain_numbers = false;  // a number for which no tensor may stand
  bool function_only = false;  // out=: methods do not have it
  uint8_t list_size = 0;       // int[N]: one integer stands for N equal ones
  bool has_value = false;      // a default other than None
  PyObject* name = nullptr;    // interned, kept for ever, like the signature
  const char* const* numpy_names = nullptr;
  std::string default_text;  // as torch prints it
  int64_t default_int = 0;   // also Bool, DType, MemoryFormat
  Scalar default_scalar;     // also Double
  std::vector<int64_t> default_ints;
  std::string default_string;
};

inline constexpr int kMaxParams = 24;

// The callers that may use a signature, and how.
inline constexpr uint8_t kFunction = 1, kMethod = 2, kBoth = 3;
inline constexpr uint8_t kHidden = 4;       // not mentioned in error messages
inline constexpr uint8_t kNumbers = 8;      // numbers may stand for tensors
inline constexpr uint8_t kDeprecated = 16;  // as hidden, and whoever uses it is warned

struct SignatureText {
  uint8_t flags;
  const char* text;  // "Tensor self, int[1]? dim=None, *, bool keepdim=False, Tensor out=None"
};

// The part of a parameter that a call reads while it looks for a signature that fits.
struct Slot {
  PyObject* name;
  Kind kind;
  uint8_t index;  // of the parameter
  uint8_t list_size;
  bool optional : 1, allow_none : 1, allow_numbers : 1, plain_numbers : 1;
  const char* const* numpy_names;
};

// A signature in the form of a function, or of a method, in which self and out= are not parameters.
struct Form {
  std::vector<Slot> slots;  // positional ones first
  int max_positional = 0;
  int min_args = 0;
  int max_args = 0;
  int required = 0;      // no slot from here on has to be filled
  bool varargs = false;  // f(2, 3) for f((2, 3))
};

struct Signature {
  std::vector<Param> params;
  int num_params = 0;
  int self_index = -1;
  uint8_t flags = 0;
  Form forms[2];                       // of functions, of methods
  void derive();                       // computes the forms from the parameters
  std::string str(bool method) const;  // "(Tensor input, Tensor other, *, Number alpha = 1)"
};

Signature parse_signature(const SignatureText& text);
std::string type_text(const Param& param);  // "tuple of ints"

// The dimension list of an optional argument, alive while it is passed on.
class OptionalInts {
 public:
  OptionalInts() = default;
  explicit OptionalInts(DimVector values) : values_(std::move(values)), given_(true) {}
  operator std::optional<IntArrayRef>() const {
    return given_ ? std::optional<IntArrayRef>(values_.ref()) : std::nullopt;
  }

 private:
  DimVector values_;
  bool given_ = false;
};

class Bools {
 public:
  void push_back(bool b) { values_[size_++] = b; }
  size_t size() const { return size_; }
  operator ArrayRef<bool>() const { return ArrayRef<bool>(values_, size_); }
  static constexpr size_t kMax = 16;

 private:
  bool values_[kMax];
  size_t size_ = 0;
};

class Parser;

// The reason why one signature does not fit a call.
struct Failure {
  enum Reason : uint8_t { TooManyPositional, Missing, WrongType, WrongElement, UnexpectedKeyword } reason;
  int param = 0;
  int position = -1;  // of a positional argument, self not counted
  PyObject* object = nullptr;
  Py_ssize_t element = 0;
};

// The arguments of one call, by position in the signature that was chosen. The objects are borrowed from the caller.
class Arguments {
 public:
  bool has(int i) const { return values_[i] != nullptr; }  // given, and not None
  PyObject* object(int i) const { return values_[i]; }

  const Tensor& tensor(int i) {
    PyObject* o = values_[i];
    if (o && is_exact_tensor(o)) [[likely]]
      return unwrap(o);
    return tensor_slow(o);
  }
  Scalar scalar(int i) const;
  int64_t integer(int i) const;
  double number(int i) const;
  bool flag(int i) const { return values_[i] ? truth(values_[i]) : param(i).default_int != 0; }
  std::string_view text(int i) const;
  DimVector ints(int i) const;
  std::vector<double> numbers(int i) const;
  Bools flags(int i) const;
  std::vector<Scalar> scalars(int i) const;
  std::vector<Tensor> tensors(int i) const;
  DType dtype(int i) const;
  DType any_dtype(int i) const;  // for a quantized dtype, that of its integers
  Layout layout(int i) const { return layout_of_object(values_[i]); }
  Device device(int i) const { return device_from_object(values_[i]); }
  MemoryFormat memory_format(int i) const {
    return values_[i] ? memory_format_of_object(values_[i]) : static_cast<MemoryFormat>(param(i).default_int);
  }
  // Five arguments in a row: dtype, layout, device, pin_memory, requires_grad.
  TensorOptions options(int i) const;

  std::optional<Scalar> optional_scalar(int i) const {
    return given_or_default(i) ? std::optional(scalar(i)) : std::nullopt;
  }
  std::optional<int64_t> optional_integer(int i) const {
    return given_or_default(i) ? std::optional(integer(i)) : std::nullopt;
  }
  std::optional<double> optional_number(int i) const {
    return given_or_default(i) ? std::optional(number(i)) : std::nullopt;
  }
  std::optional<bool> optional_flag(int i) const { return given_or_default(i) ? std::optional(flag(i)) : std::nullopt; }
  std::optional<std::string_view> optional_text(int i) const {
    return given_or_default(i) ? std::optional(text(i)) : std::nullopt;
  }
  OptionalInts optional_ints(int i) const { return given_or_default(i) ? OptionalInts(ints(i)) : OptionalInts(); }
  std::optional<DType> optional_any_dtype(int i) const { return has(i) ? std::optional(any_dtype(i)) : std::nullopt; }
  std::optional<DType> optional_dtype(int i) const { return has(i) ? std::optional(dtype(i)) : std::nullopt; }
  std::optional<Layout> optional_layout(int i) const { return has(i) ? std::optional(layout(i)) : std::nullopt; }
  std::optional<Device> optional_device(int i) const { return has(i) ? std::optional(device(i)) : std::nullopt; }
  std::optional<MemoryFormat> optional_memory_format(int i) const {
    return given_or_default(i) ? std::optional(memory_format(i)) : std::nullopt;
  }
  std::optional<Generator> optional_generator(int i) const {
    return has(i) ? std::optional(generator_of_object(values_[i])) : std::nullopt;
  }
  const Tensor& out(int i, int which) const { return unwrap(PyTuple_GET_ITEM(values_[i], which)); }

  // Whether the tensors are large enough for the interpreter lock to be released.
  bool large() const { return elements_ > kUnlockElements; }

  PyObject* result = nullptr;  // what to return when no signature was chosen

 private:
  friend class Parser;
  friend struct Matcher;
  const Param& param(int i) const { return signature_->params[static_cast<size_t>(i)]; }
  bool given_or_default(int i) const { return values_[i] || param(i).has_value; }
  static bool truth(PyObject* o) { return o == Py_True || (o != Py_False && PyObject_IsTrue(o)); }
  // Clears the first `count` arguments, and perhaps some more: eight are cleared as fast as one.
  void clear_values(int count) {
    static_assert(kMaxParams % 8 == 0);
    for (int i = 0; i < count; i += 8) std::memset(values_ + i, 0, 8 * sizeof(PyObject*));
  }
  const Tensor& tensor_slow(PyObject* o);
  int64_t element(int i, PyObject* item, Py_ssize_t position) const;  // of a list of integers

  const Signature* signature_;
  const Parser* parser_;
  int64_t elements_;
  PyObject* const* varargs_;  // when varargs_index_ >= 0: the integers of that parameter
  Py_ssize_t num_varargs_;
  int varargs_index_;
  int num_overloaded_;
  bool numbers_used_;                  // a number stands for a tensor
  PyObject* overloaded_[8];            // arguments with a __torch_function__ of their own
  std::unique_ptr<Tensor[]> numbers_;  // numbers that were turned into tensors; made when there is one
  int num_numbers_ = 0;
  PyObject* values_[kMaxParams];
};

// The signatures of one Python function, method, or both. Constant-initialised; nothing happens before the first call.
class Parser {
 public:
  template <size_t N>
  constexpr Parser(const char* name, const SignatureText (&texts)[N], const char* space = "")
      : name_(name), space_(space), texts_(texts), count_(N) {}

  // The index of the signature that fits, or -1. Then a.result is what to return, null after a Python error. `self` is
  // null for a call of the function.
  int parse(Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  int parse(Arguments& a, PyObject* args, PyObject* kwargs);  // of a constructor: a tuple, and a dict or null

  const char* name() const { return name_; }
  const char* space() const { return space_; }  // "" is torch, "nn.functional"...
  const Signature& signature(size_t i) const { return signatures_[i]; }
  size_t size() const { return count_; }

 private:
  void build();
  int choose_number(int chosen, Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) const;
  void warn_deprecated(const Signature& used, bool method) const;
  const char* name_;
  const char* space_;
  const SignatureText* texts_;
  size_t count_;
  Signature* signatures_ = nullptr;
};

bool match(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments& a,
           Failure& failure);

// Sets torch's TypeError for a call that no signature fits.
void raise_mismatch(const Parser& parser, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Conversions that other files share.
// The value of a Python integer that is one digit long, as nearly all are.
inline bool small_int(PyObject* o, int64_t& value) {
  if (!PyLong_CheckExact(o)) return false;
#if PY_VERSION_HEX >= 0x030C0000
  auto* number = reinterpret_cast<PyLongObject*>(o);
  if (!PyUnstable_Long_IsCompact(number)) return false;
  value = PyUnstable_Long_CompactValue(number);
#else
  const Py_ssize_t digits = Py_SIZE(o);
  if (digits < -1 || digits > 1) return false;
  value = digits * static_cast<int64_t>(reinterpret_cast<PyLongObject*>(o)->ob_digit[0]);
#endif
  return true;
}
bool is_int_like(PyObject* o);     // an integer, __index__, or an integral 0-dim tensor; not a bool
bool is_size_like(PyObject* o);    // that, or an integral tensor of one element
bool is_number_like(PyObject* o);  // any number, a NumPy scalar, a 0-dim tensor
bool is_numpy_scalar(PyObject* o);
Scalar scalar_from_object(PyObject* o);
int64_t int_from_object(PyObject* o);
double double_from_object(PyObject* o);
bool is_dtype_like(PyObject* o);  // a dtype, or Python's float, int, bool, complex
DType dtype_from_object(PyObject* o);

}  // namespace mica::python
