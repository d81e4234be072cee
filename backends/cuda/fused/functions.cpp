#include "backends/cuda/fused/functions.h"

#include <algorithm>
#include <vector>

#include "mica/error.h"

namespace mica::cuda {

namespace {

constexpr int kMostLines = 80;  // of a function that is written out

struct Functions {
  std::vector<DeviceFunction> all;
  std::string constants;
};

void replace(std::string& in, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = in.find(from, at)) != std::string::npos; at += to.size()) in.replace(at, from.size(), to);
}

Functions parsed(std::string_view text) {
  Functions f;
  constexpr std::string_view kConstant = "\n.global .align 4", kFunction = "\n.visible .func";
  for (size_t at = 0; (at = text.find(kConstant, at)) != std::string_view::npos; ++at)
    f.constants += std::string(text.substr(at + 1, text.find('\n', at + 1) - at));
  for (size_t at = 0; (at = text.find(kFunction, at)) != std::string_view::npos; ++at) {
    const size_t open = text.find("\n{", at), close = text.find("\n}", open);
    const std::string_view head = text.substr(at + 1, open - at - 1);
    const size_t name = head.find(") ") + 2;
    DeviceFunction one;
    one.name = head.substr(name, head.find('(', name) - name);
    one.body = text.substr(open + 2, close - open - 2);
    one.text = std::string(text.substr(at + 1, close + 2 - at)) + "\n";
    one.arguments = 0;
    while (head.find(one.name + "_param_" + std::to_string(one.arguments)) != std::string_view::npos) ++one.arguments;
    one.called = std::count(one.body.begin(), one.body.end(), '\n') > kMostLines;
    f.all.push_back(std::move(one));
  }
  return f;
}

const Functions& functions() {
  static const auto* found = new Functions(parsed(kFunctionsText));
  return *found;
}

}  // namespace

const DeviceFunction& device_function(std::string_view name) {
  for (const DeviceFunction& f : functions().all)
    if (f.name == name) return f;
  fail(cat("there is no device function ", name));
}

std::string_view device_constants() { return functions().constants; }

std::string written_out(const DeviceFunction& f, const std::string* arguments, const std::string& result,
                        int instance) {
  std::string text;
  if (f.called) {
    text = "{\n.param .b32 r;\n";
    std::string list;
    for (int k = 0; k < f.arguments; ++k) {
      const std::string each = cat("q", k);
      text += cat(".param .b32 ", each, ";\nst.param.f32 [", each, "], ", arguments[k], ";\n");
      list += (k ? ", " : "") + each;
    }
    return text + cat("call.uni (r), ", f.name, ", (", list, ");\nld.param.f32 ", result, ", [r];\n}\n");
  }
  text = f.body;
  for (int k = 0; k < f.arguments; ++k) replace(text, cat("[", f.name, "_param_", k, "]"), arguments[k]);
  replace(text, "ld.param.f32", "mov.f32");
  // The result is stored once, at the end.
  constexpr std::string_view kStore = "st.param.f32 \t[func_retval0+0], ";
  const size_t store = text.find(kStore);
  MICA_CHECK(store != std::string::npos, "a device function has no result");
  text.replace(store, kStore.size(), cat("mov.f32 ", result, ", "));
  replace(text, "\tret;", "");
  replace(text, "$L__BB", cat("$L", instance, "_"));
  return cat("{", text, "}\n");
}

}  // namespace mica::cuda
