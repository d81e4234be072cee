// Tensor's operators. Plain tensors and Python numbers go straight to the engine; whatever overrides __torch_function__
// is asked first; anything else is not ours (NotImplemented), so that Python can ask the other operand.
#include <algorithm>

#include "arguments/torch_function.h"
#include "graph/tensor_autograd.h"
#include "interop/foreign_memory.h"
#include "mica/core/recording.h"
#include "operations/entry.h"
#include "tensor/tensor_new.h"

namespace mica::python {

static bool is_plain_tensor(PyObject* o) {
  return is_exact_tensor(o) || (is_tensor(o) && !overrides_torch_function(o));
}

static bool is_plain_number(PyObject* o) {
  return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || (!is_tensor(o) && is_number_like(o));
}

static bool function_mode() { return thread_modes & mode_bit::kFunctionMode; }

// `method` on `self` through __torch_function__, if an operand or a mode wants that; NotImplemented otherwise.
static PyObject* overridden(const char* method, PyObject* self, PyObject* other) {
  PyObject* overloaded[2];
  int count = 0;
  if (overrides_torch_function(self)) overloaded[count++] = self;
  if (other && overrides_torch_function(other) && (!count || Py_TYPE(other) != Py_TYPE(self)))
    overloaded[count++] = other;
  if (!torch_function_wanted(count)) Py_RETURN_NOTIMPLEMENTED;
  Owned function(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method));
  if (!function) return nullptr;
  PyObject* args[] = {self, other};
  PyObject* answer = call_torch_function(function.get(), overloaded, count, args, other ? 2 : 1);
  if (answer || !other || !PyErr_ExceptionMatches(PyExc_TypeError)) return answer;
  if (std::any_of(overloaded, overloaded + count, has_plain_values))
    return nullptr;  // Mica's own classes raise the error
  PyErr_Clear();     // the other operand may be able to answer
  Py_RETURN_NOTIMPLEMENTED;
}

static bool large(const Tensor& a, const Tensor& b) { return a.numel() + b.numel() > kUnlockElements; }

// One binary operator: for two tensors, a tensor and a number, a number and a tensor.
template <class Op>
static PyObject* binary(PyObject* a, PyObject* b) try {
  if (!function_mode()) [[likely]] {
    if (is_plain_tensor(a)) {
      const Tensor& x = unwrap(a);
      if (is_plain_tensor(b)) {
        const Tensor& y = unwrap(b);
        Unlocked unlocked(large(x, y));
        Tensor result = Op::call(x, y);
        unlocked.lock();
        return wrap(std::move(result));
      }
      if (is_plain_number(b)) {
        Scalar number = scalar_from_object(b);
        Unlocked unlocked(large(x, x));
        Tensor result = Op::call(x, number);
        unlocked.lock();
        return wrap(std::move(result));
      }
    } else if (is_plain_tensor(b) && is_plain_number(a)) {
      const Tensor& y = unwrap(b);
      Scalar number = scalar_from_object(a);
      Unlocked unlocked(large(y, y));
      Tensor result = Op::call(number, y);
      unlocked.lock();
      return wrap(std::move(result));
    }
  }
  if (!is_tensor(a)) return overridden(Op::reflected, b, a);
  PyObject* answer = overridden(Op::name, a, b);
  if (answer != Py_NotImplemented || !is_tensor(b) || Py_TYPE(a) == Py_TYPE(b)) return answer;
  // Classes of tensors share this slot, so that the interpreter does not ask the other operand by itself.
  Py_DECREF(answer);
  return overridden(Op::reflected, b, a);
} catch (...) {
  return raise_current_exception();
}

template <class Op>
static PyObject* in_place(PyObject* a, PyObject* b) try {
  if (!function_mode() && is_plain_tensor(a)) [[likely]] {
    const Tensor& x = unwrap(a);
    if (is_plain_tensor(b)) {
      Unlocked unlocked(large(x, unwrap(b)));
      Op::change(x, unwrap(b));
      unlocked.lock();
      return Py_NewRef(a);
    }
    if (is_plain_number(b)) {
      Scalar number = scalar_from_object(b);
      Unlocked unlocked(large(x, x));
      Op::change(x, number);
      unlocked.lock();
      return Py_NewRef(a);
    }
  }
  return is_tensor(a) ? overridden(Op::in_place_name, a, b) : Py_NewRef(Py_NotImplemented);
} catch (...) {
  return raise_current_exception();
}

// An operator whose forms are all called alike; the names are those of the functions that __torch_function__ gets,
// which are torch's; `reflected_call` is the one for a number on the left.
#define MICA_OPERATOR(Op, function, own_name, reflected_name, reflected_call) \
  struct Op {                                                                 \
    static constexpr const char* name = own_name;                             \
    static constexpr const char* reflected = reflected_name;                  \
    static constexpr const char* in_place_name = #function "_";               \
    template <class B>                                                        \
    static Tensor call(const Tensor& a, const B& b) {                         \
      return function(a, b);                                                  \
    }                                                                         \
    template <class B>                                                        \
    static Tensor call(const Scalar& a, const B& b) {                         \
      return reflected_call;                                                  \
    }                                                                         \
    template <class B>                                                        \
    static void change(const Tensor& a, const B& b) {                         \
      function##_(a, b);                                                      \
    }                                                                         \
  };

MICA_OPERATOR(Add, add, "add", "add", add(b, a))
MICA_OPERATOR(Subtract, sub, "sub", "__rsub__", rsub(b, a))
MICA_OPERATOR(Multiply, mul, "mul", "mul", mul(b, a))
MICA_OPERATOR(Divide, div, "div", "__rtruediv__", mul(reciprocal(b), a))
MICA_OPERATOR(FloorDivide, floor_divide, "__floordiv__", "__rfloordiv__", floor_divide(wrapped_number(a), b))
MICA_OPERATOR(Remainder, remainder, "remainder", "__rmod__", remainder(wrapped_number(a), b))
MICA_OPERATOR(Power, pow, "__pow__", "__rpow__", pow(a, b))
MICA_OPERATOR(And, bitwise_and, "__and__", "bitwise_and", bitwise_and(b, a))
MICA_OPERATOR(Or, bitwise_or, "__or__", "bitwise_or", bitwise_or(b, a))
MICA_OPERATOR(Xor, bitwise_xor, "__xor__", "bitwise_xor", bitwise_xor(b, a))
MICA_OPERATOR(LeftShift, bitwise_left_shift, "__lshift__", "__rlshift__", bitwise_left_shift(wrapped_number(a), b))
MICA_OPERATOR(RightShift, bitwise_right_shift, "__rshift__", "__rrshift__", bitwise_right_shift(wrapped_number(a), b))
MICA_OPERATOR(MatrixMultiply, matmul, "matmul", "__rmatmul__", matmul(a, b))
#undef MICA_OPERATOR

static PyObject* matrix_multiply(PyObject* a, PyObject* b) try {
  if (!function_mode() && is_plain_tensor(a) && is_plain_tensor(b)) [[likely]] {
    Unlocked unlocked(large(unwrap(a), unwrap(b)) || unwrap(a).numel() > 1024);
    Tensor result = MatrixMultiply::call(unwrap(a), unwrap(b));
    unlocked.lock();
    return wrap(std::move(result));
  }
  return is_tensor(a) ? overridden("matmul", a, b) : overridden("__rmatmul__", b, a);
} catch (...) {
  return raise_current_exception();
}

static PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<Power>(a, b);
}
static PyObject* in_place_power(PyObject* a, PyObject* b, PyObject*) { return in_place<Power>(a, b); }

template <class F>
static PyObject* unary(PyObject* self, const char* name, F&& f) try {
  if (function_mode() || !is_plain_tensor(self)) [[unlikely]]
    return overridden(name, self, nullptr);
  const Tensor& x = unwrap(self);
  Unlocked unlocked(x.numel() > kUnlockElements);
  Tensor result = f(x);
  unlocked.lock();
  return wrap(std::move(result));
} catch (...) {
  return raise_current_exception();
}

static PyObject* negative(PyObject* self) {
  return unary(self, "neg", [](const Tensor& x) { return mica::neg(x); });
}
static PyObject* absolute(PyObject* self) {
  return unary(self, "abs", [](const Tensor& x) { return mica::abs(x); });
}
static PyObject* positive(PyObject* self) {
  return unary(self, "positive", [](const Tensor& x) {
    MICA_CHECK(x.dtype() != DType::Bool, "The `+` operator, on a bool tensor is not supported.");
    return x;
  });
}
static PyObject* invert(PyObject* self) {
  return unary(self, "__invert__", [](const Tensor& x) {
    MICA_CHECK_KIND(is_integral(x.dtype()) || x.dtype() == DType::Bool, Type,
                    "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
    return mica::bitwise_not(x);
  });
}

// ---- conversion to Python numbers

static Scalar only_element(PyObject* self) {
  MICA_CHECK_KIND(unwrap(self).numel() == 1, Value, "only one element tensors can be converted to Python scalars");
  return unwrap(self).item();
}

static int truth(PyObject* self) try {
  if (PyObject* given = nullptr; is_answered(self, "__bool__", given)) {
    const Owned answer(given);
    return answer ? PyObject_IsTrue(answer.get()) : -1;
  }
  recording::ask_for_values("__bool__");
  const Tensor& x = unwrap(self);
  MICA_CHECK(x.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  MICA_CHECK(x.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  return x.item().to_bool();
} catch (...) {
  return raise_current_exception_int();
}

static PyObject* to_int(PyObject* self) try {
  if (PyObject* answer = nullptr; is_answered(self, "__int__", answer)) return answer;
  Scalar s = only_element(self);
  if (s.is_floating()) return PyLong_FromDouble(s.to_double());
  if (s.is_bool()) return PyLong_FromLong(s.to_bool());
  if (s.is_complex()) return PyLong_FromLongLong(s.to_int());
  return to_python(s);
} catch (...) {
  return raise_current_exception();
}

static PyObject* to_float(PyObject* self) try {
  if (PyObject* answer = nullptr; is_answered(self, "__float__", answer)) return answer;
  warn_of_number(unwrap(self));
  return PyFloat_FromDouble(only_element(self).to_double());
} catch (...) {
  return raise_current_exception();
}

static PyObject* to_index(PyObject* self) try {
  if (PyObject* answer = nullptr; is_answered(self, "__index__", answer)) return answer;
  const Tensor& x = unwrap(self);
  MICA_CHECK_KIND(x.numel() == 1 && (is_integral(x.dtype()) || x.dtype() == DType::Bool), Type,
                  "only integer tensors of a single element can be converted to an index");
  return to_int(self);
} catch (...) {
  return raise_current_exception();
}

// ---- comparison

#define MICA_COMPARISON(Op, function, reflected_function, own_name, reflected_name)                 \
  struct Op {                                                                                       \
    static constexpr const char* name = own_name;                                                   \
    static constexpr const char* reflected = reflected_name;                                        \
    static Tensor call(const Tensor& a, const Tensor& b) { return mica::function(a, b); }           \
    static Tensor call(const Tensor& a, const Scalar& b) { return mica::function(a, b); }           \
    static Tensor call(const Scalar& a, const Tensor& b) { return mica::reflected_function(b, a); } \
  };
MICA_COMPARISON(Equal, eq, eq, "__eq__", "__eq__")
MICA_COMPARISON(NotEqual, ne, ne, "ne", "ne")
MICA_COMPARISON(Less, lt, gt, "lt", "gt")
MICA_COMPARISON(LessEqual, le, ge, "le", "ge")
MICA_COMPARISON(Greater, gt, lt, "gt", "lt")
MICA_COMPARISON(GreaterEqual, ge, le, "ge", "le")
#undef MICA_COMPARISON

// NumPy leaves the comparison to us, and Python takes objects that nobody compares as unequal. So an array counts as a
// tensor.
template <class Op>
static PyObject* equality(PyObject* a, PyObject* b) try {
  if (is_tensor(b) || !is_numpy_array(b)) return binary<Op>(a, b);
  Owned elements(wrap(tensor_from_data(b, std::nullopt, kCPU)));
  return elements ? binary<Op>(a, elements.get()) : nullptr;
} catch (...) {
  return raise_current_exception();
}

PyObject* tensor_compare(PyObject* a, PyObject* b, int op) {
  switch (op) {
    case Py_EQ:
      return equality<Equal>(a, b);
    case Py_NE:
      return equality<NotEqual>(a, b);
    case Py_LT:
      return binary<Less>(a, b);
    case Py_LE:
      return binary<LessEqual>(a, b);
    case Py_GT:
      return binary<Greater>(a, b);
    default:
      return binary<GreaterEqual>(a, b);
  }
}

// In torch the reflected operators are Python functions: `Tensor.__rpow__(1, x)`, with a number for self, is x ** 1.
// The methods that the type would have under these names refuse anything but a tensor there.
template <binaryfunc kOperator>
static PyObject* reflected(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2) return PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", nargs);
  return kOperator(args[1], args[0]);
}

static PyObject* plain_power(PyObject* a, PyObject* b) { return power(a, b, Py_None); }

bool add_reflected_operators() {
  static PyMethodDef functions[] = {
      {"__rsub__", as_cfunction(reflected<binary<Subtract>>), METH_FASTCALL, nullptr},
      {"__rdiv__", as_cfunction(reflected<binary<Divide>>), METH_FASTCALL, nullptr},
      {"__rtruediv__", as_cfunction(reflected<binary<Divide>>), METH_FASTCALL, nullptr},
      {"__rfloordiv__", as_cfunction(reflected<binary<FloorDivide>>), METH_FASTCALL, nullptr},
      {"__rmod__", as_cfunction(reflected<binary<Remainder>>), METH_FASTCALL, nullptr},
      {"__rpow__", as_cfunction(reflected<plain_power>), METH_FASTCALL, nullptr},
      {"__rmatmul__", as_cfunction(reflected<matrix_multiply>), METH_FASTCALL, nullptr},
      {"__rlshift__", as_cfunction(reflected<binary<LeftShift>>), METH_FASTCALL, nullptr},
      {"__rrshift__", as_cfunction(reflected<binary<RightShift>>), METH_FASTCALL, nullptr},
      {}};
  for (PyMethodDef* method = functions; method->ml_name; ++method) {
    Owned function(PyCFunction_NewEx(method, nullptr, nullptr));
    Owned bindable(function ? PyInstanceMethod_New(function.get()) : nullptr);
    // Into the dict, past the type's setattr, which would put a slower function into the operator's slot.
    if (!bindable || PyDict_SetItemString(tensor_type->tp_base->tp_dict, method->ml_name, bindable.get()) < 0)
      return false;
  }
  return true;
}

template <class F>
static constexpr void* slot(F* f) {
  return reinterpret_cast<void*>(f);
}

PyType_Slot tensor_number_slots[] = {
    {Py_nb_add, slot(binary<Add>)},
    {Py_nb_subtract, slot(binary<Subtract>)},
    {Py_nb_multiply, slot(binary<Multiply>)},
    {Py_nb_true_divide, slot(binary<Divide>)},
    {Py_nb_floor_divide, slot(binary<FloorDivide>)},
    {Py_nb_remainder, slot(binary<Remainder>)},
    {Py_nb_power, slot(power)},
    {Py_nb_matrix_multiply, slot(matrix_multiply)},
    {Py_nb_and, slot(binary<And>)},
    {Py_nb_or, slot(binary<Or>)},
    {Py_nb_xor, slot(binary<Xor>)},
    {Py_nb_lshift, slot(binary<LeftShift>)},
    {Py_nb_rshift, slot(binary<RightShift>)},
    {Py_nb_inplace_add, slot(in_place<Add>)},
    {Py_nb_inplace_subtract, slot(in_place<Subtract>)},
    {Py_nb_inplace_multiply, slot(in_place<Multiply>)},
    {Py_nb_inplace_true_divide, slot(in_place<Divide>)},
    {Py_nb_inplace_floor_divide, slot(in_place<FloorDivide>)},
    {Py_nb_inplace_remainder, slot(in_place<Remainder>)},
    {Py_nb_inplace_power, slot(in_place_power)},
    {Py_nb_inplace_and, slot(in_place<And>)},
    {Py_nb_inplace_or, slot(in_place<Or>)},
    {Py_nb_inplace_xor, slot(in_place<Xor>)},
    {Py_nb_inplace_lshift, slot(in_place<LeftShift>)},
    {Py_nb_inplace_rshift, slot(in_place<RightShift>)},
    {Py_nb_negative, slot(negative)},
    {Py_nb_positive, slot(positive)},
    {Py_nb_absolute, slot(absolute)},
    {Py_nb_invert, slot(invert)},
    {Py_nb_bool, slot(truth)},
    {Py_nb_int, slot(to_int)},
    {Py_nb_float, slot(to_float)},
    {Py_nb_index, slot(to_index)},
    {0, nullptr},
};

}  // namespace mica::python
