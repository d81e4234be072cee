// Operators of an extension: TORCH_LIBRARY(name, m) { m.def("scale(Tensor x, float by) -> Tensor", &scale); } makes
// torch.ops.name.scale. They are registered with torch.library, in Python, as the extension is loaded.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "torch/python.h"

namespace torch {

namespace detail {

// ---- the schema of a C++ function

template <class T>
struct SchemaName;
#define MICA_SCHEMA_NAME(T, text)              \
  template <>                                  \
  struct SchemaName<T> {                       \
    static std::string name() { return text; } \
  };
MICA_SCHEMA_NAME(mica::Tensor, "Tensor")
MICA_SCHEMA_NAME(int64_t, "int")
MICA_SCHEMA_NAME(double, "float")
MICA_SCHEMA_NAME(bool, "bool")
MICA_SCHEMA_NAME(std::string, "str")
MICA_SCHEMA_NAME(std::string_view, "str")
MICA_SCHEMA_NAME(mica::Scalar, "Scalar")
MICA_SCHEMA_NAME(mica::DType, "ScalarType")
MICA_SCHEMA_NAME(mica::Device, "Device")
MICA_SCHEMA_NAME(mica::IntArrayRef, "int[]")
MICA_SCHEMA_NAME(mica::TensorList, "Tensor[]")
#undef MICA_SCHEMA_NAME
template <class T>
struct SchemaName<std::optional<T>> {
  static std::string name() { return SchemaName<T>::name() + "?"; }
};
template <class T>
struct SchemaName<std::vector<T>> {
  static std::string name() { return SchemaName<T>::name() + "[]"; }
};

template <class T>
struct SchemaReturn {
  static std::string name() { return SchemaName<T>::name(); }
};
template <>
struct SchemaReturn<void> {
  static std::string name() { return "()"; }
};
template <class... Ts>
struct SchemaReturn<std::tuple<Ts...>> {
  static std::string name() {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + SchemaName<Ts>::name()), ...);
    return "(" + text + ")";
  }
};

template <class R, class... Args>
std::string schema_of(std::string name, R (*)(Args...)) {
  int count = 0;
  std::string arguments;
  ((arguments += (count ? ", " : "") + SchemaName<std::remove_cvref_t<Args>>::name() + " _" + std::to_string(count),
    ++count),
   ...);
  return name + "(" + arguments + ") -> " + SchemaReturn<std::remove_cvref_t<R>>::name();
}

inline const char* key_name(c10::DispatchKey key) {
  static constexpr const char* names[] = {"CPU",
                                          "CUDA",
                                          "Meta",
                                          "Autograd",
                                          "AutogradCPU",
                                          "AutogradCUDA",
                                          "CompositeImplicitAutograd",
                                          "CompositeExplicitAutograd"};
  return names[static_cast<int>(key)];
}

template <class Function>
struct KeyedFunction {
  const char* key;
  Function* function;
};

}  // namespace detail

// A function for one key: m.impl("scale", torch::dispatch(c10::DispatchKey::CPU, &scale)).
template <class Function>
detail::KeyedFunction<Function> dispatch(c10::DispatchKey key, Function* function) {
  return {detail::key_name(key), function};
}

class __attribute__((visibility("hidden"))) Library {
 public:
  Library(const char* kind, const char* name_space, const char* key)
      : library_(pybind11::module_::import("mica.library").attr("Library")(name_space, kind, key)) {
    library_.inc_ref();  // what is registered stays, as the extension does
  }

  // An operator by its schema, which may also be implemented at once; or by its name, with the schema of the function.
  Library& def(const std::string& schema) {
    library_.attr("define")(schema);
    return *this;
  }
  template <class Function>
  Library& def(const std::string& schema, Function function) {
    const auto [key, plain] = keyed(function);
    const std::string whole = schema.find('(') == std::string::npos ? detail::schema_of(schema, plain) : schema;
    library_.attr("define")(whole);
    library_.attr("impl")(whole.substr(0, whole.find('(')), pybind11::cpp_function(plain), key);
    return *this;
  }
  template <class Function>
  Library& impl(const char* name, Function function) {
    const auto [key, plain] = keyed(function);
    library_.attr("impl")(name, pybind11::cpp_function(plain), key);
    return *this;
  }

 private:
  template <class Function>
  static std::pair<const char*, Function*> keyed(Function* function) {
    return {"", function};
  }
  template <class Function>
  static std::pair<const char*, Function*> keyed(const detail::KeyedFunction<Function>& function) {
    return {function.key, function.function};
  }

  pybind11::object library_;
};

namespace detail {

struct LibraryInit {
  LibraryInit(const char* kind, const char* name_space, const char* key, void (*fill)(Library&)) {
    const pybind11::gil_scoped_acquire lock;
    Library library(kind, name_space, key);
    fill(library);
  }
};

}  // namespace detail
}  // namespace torch

#define TORCH_FN(function) (&(function))

// One level of macros more than it seems to need: a name with __COUNTER__ in it is made before it is used.
#define MICA_LIBRARY(kind, ns, key, unique, m) MICA_LIBRARY_NAMED(kind, ns, key, unique, m)
#define MICA_LIBRARY_NAMED(kind, ns, key, unique, m)                                        \
  static void unique(::torch::Library&);                                                    \
  static const ::torch::detail::LibraryInit unique##_registration(kind, #ns, key, &unique); \
  void unique(::torch::Library& m)
#define MICA_JOINED(a, b) MICA_JOINED_NAMES(a, b)
#define MICA_JOINED_NAMES(a, b) a##b

#define TORCH_LIBRARY(ns, m) MICA_LIBRARY("DEF", ns, "", torch_library_##ns, m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) \
  MICA_LIBRARY("FRAGMENT", ns, "", MICA_JOINED(torch_library_fragment_##ns##_, __COUNTER__), m)
#define TORCH_LIBRARY_IMPL(ns, key, m) \
  MICA_LIBRARY("IMPL", ns, #key, MICA_JOINED(torch_library_impl_##ns##_##key##_, __COUNTER__), m)
