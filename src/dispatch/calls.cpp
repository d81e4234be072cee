// Calls that a mode takes over, and the checks of its answers.
#include "mica/core/dispatch.h"

#include "core/observe.h"
#include "dispatch/passes.h"
#include "mica/autograd.h"
#include "mica/core/class_alias.h"
#include "mica/error.h"
#include "mica/ops.h"

namespace mica::dispatch {

constinit thread_local bool active = false;
constinit thread_local bool direct = false;
constinit thread_local bool in_parts = false;
constinit thread_local bool in_formula = false;
constinit thread_local bool asked_by_formula = false;
std::vector<Tensor> (*handler)(const char*, const Argument*, size_t, int) = nullptr;

void set_active(bool on) {
  active = on;
  inspect::update_recording_modes();
}

static bool is_among(const Tensor& t, Arguments arguments) {
  for (const Argument& a : arguments) {
    if (a.is_none()) continue;
    if (a.kind() == Argument::Kind::Tensor && a.as<Tensor>().is_same(t)) return true;
    if (a.kind() == Argument::Kind::Tensors)
      for (const Tensor& each : a.as<TensorList>())
        if (each.is_same(t)) return true;
  }
  return false;
}

// A view that was made while nothing was recorded requires grad with its base, but has no node.
static bool is_recorded(const Tensor& t) { return t.requires_grad() && (t.grad_fn() || !t.is_view()); }

std::vector<Tensor> call(const char* name, Arguments arguments, int count, bool recorded) {
  std::vector<Tensor> results;
  asked_by_formula = in_formula;
  {
    const FormulaGuard program(false);
    const ModeGuard below(recorded ? mode_bit::kNoGrad : 0, true);
    results = handler(name, arguments.begin(), arguments.size(), count);
  }
  direct = in_formula;
  if (recorded) {
    // The operation's node is attached to a new tensor, not to an argument, nor to an answer that the mode has recorded
    // itself.
    const NoGradGuard unrecorded;
    for (Tensor& each : results)
      if (each.defined() && (is_among(each, arguments) || is_recorded(each))) each = each.detach();
  }
  return results;
}

// The engine reads the memory of copies that it makes for itself, so the mode's answer must be such a copy.
static void check_copy(const char* name, const Tensor& self, const Tensor& copy) {
  const std::string_view called(name);
  if (called != "clone" && called != "_to_copy") return;
  MICA_CHECK(copy.defined() && copy.sizes() == self.sizes() && (called != "clone" || copy.device() == self.device()),
             "aten::", called, ": a mode's __torch_dispatch__ answered for ", self, " with ", copy,
             ", which is no copy of it");
}

Tensor call_one(const char* name, Arguments arguments, bool recorded) {
  Tensor result = std::move(call(name, arguments, 1, recorded)[0]);
  if (arguments.size() && arguments.begin()->kind() == Argument::Kind::Tensor)
    check_copy(name, arguments.begin()->as<Tensor>(), result);
  return result;
}

static bool requires_grad(Arguments arguments) {
  for (const Argument& a : arguments)
    if (!a.is_none() && a.kind() == Argument::Kind::Tensor && a.as<Tensor>().requires_grad()) return true;
  return false;
}

void call_none(const char* name, Arguments arguments, bool recorded) {
  MICA_CHECK_KIND(recorded || !in_parts || !grad_enabled() || !requires_grad(arguments), NotImplemented, "aten::", name,
                  " changes a tensor whose class has a __torch_dispatch__ and that requires grad, which is not "
                  "recorded. Use the form that returns a new tensor");
  call(name, arguments, 0, recorded);
}

bool shares_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && !a.is_same(b) && a.impl()->storage == b.impl()->storage;
}

}  // namespace mica::dispatch
