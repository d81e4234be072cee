#include "composite/library_recurrent.h"

#include <algorithm>
#include <limits>

#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/backend/recurrent_library.h"
#include "mica/custom_function.h"
#include "mica/ops.h"

namespace mica {

namespace {

enum : int64_t { kLstm = 2, kGru = 3 };

const RecurrentLibrary* library_of(Device device) {
  if (device.is_cpu() || device.is_meta()) return nullptr;
  const Backend& b = backend(device.type());
  return b.extension ? static_cast<const RecurrentLibrary*>(b.extension("recurrent_library")) : nullptr;
}

// Describes the layers to the library, where all arguments fit each other.
std::optional<RecurrentStack> described(const RecurrentLayers& layers, const Tensor& data, IntArrayRef batch_sizes,
                                        const Tensor& hx, const Tensor& cx) {
  const DType dtype = data.dtype();
  const auto fits = [&](const Tensor& t, std::initializer_list<int64_t> sizes) {
    return t.defined() && t.dtype() == dtype && t.device() == data.device() && t.sizes() == IntArrayRef(sizes) &&
           !(t.impl()->bits & tensor_bit::kSpecial);
  };
  if (data.dim() != 2 || hx.dim() != 3 || batch_sizes.empty() || data.numel() == 0 || hx.numel() == 0) return {};
  const int64_t runs = layers.layers * layers.directions, groups = layers.mode == kLstm  ? 4
                                                                   : layers.mode == kGru ? 3
                                                                                         : 1;
  const size_t per_run = (layers.has_biases ? 4 : 2) + (layers.has_projection ? 1 : 0);
  if (runs == 0 || layers.parameters.size() != static_cast<size_t>(runs) * per_run) return {};
  const Tensor& w_hh = layers.parameters[1];
  if (!w_hh.defined() || w_hh.dim() != 2 || w_hh.size(0) % groups) return {};
  const int64_t batch = batch_sizes[0], state = hx.size(2), units = w_hh.size(0) / groups, width = groups * units;
  if (units == 0 || (units != state) != layers.has_projection) return {};
  if (!fits(data, {data.size(0), data.size(1)}) || !fits(hx, {runs, batch, state})) return {};
  if (cx.defined() != (layers.mode == kLstm) || (cx.defined() && !fits(cx, {runs, batch, units}))) return {};
  int64_t rows = 0, last = batch;
  for (int64_t size : batch_sizes) {
    if (size <= 0 || size > last) return {};
    rows += last = size;
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (rows != data.size(0) || rows > kMost || data.size(1) > kMost || width > kMost) return {};
  for (int64_t run = 0; run < runs; ++run) {
    const Tensor* w = layers.parameters.data() + static_cast<size_t>(run) * per_run;
    const int64_t input = run < layers.directions ? data.size(1) : state * layers.directions;
    if (!fits(w[0], {width, input}) || !fits(w[1], {width, state})) return {};
    if (layers.has_biases && (!fits(w[2], {width}) || !fits(w[3], {width}))) return {};
    if (layers.has_projection && !fits(w[per_run - 1], {state, units})) return {};
  }
  return RecurrentStack{layers.mode,       data.size(1),      units, state,         layers.layers,
                        layers.directions, layers.has_biases, dtype, data.device(), batch_sizes.vec()};
}

Tensor aligned(const Tensor& t) {
  if (!t.defined()) return t;
  const Tensor dense = t.contiguous();
  return reinterpret_cast<uintptr_t>(dense.view_of().data) % 16 ? dense.clone(MemoryFormat::Contiguous) : dense;
}

// The tensors of a call in one list: data, hx, cx where there is one, then the parameters.
struct Call {
  const RecurrentStack& stack;
  const TensorVec& list;
  const Tensor& data() const { return list[0]; }
  const Tensor& hx() const { return list[1]; }
  Tensor cx() const { return has_cell() ? list[2] : Tensor(); }
  bool has_cell() const { return stack.mode == kLstm; }
  size_t first_parameter() const { return has_cell() ? 3 : 2; }
};

struct DenseParameters {
  TensorVec tensors;
  std::vector<const TensorView*> views;
  explicit DenseParameters(const Call& call) {
    tensors.reserve(call.list.size());
    for (size_t i = call.first_parameter(); i < call.list.size(); ++i) tensors.push_back(call.list[i].contiguous());
    for (const Tensor& t : tensors) views.push_back(&t.view_of());
  }
};

// Runs the forward pass; returns nothing where no plan works.
TensorVec forward(const RecurrentLibrary& library, const Call& call, bool training, RecurrentPlan& plan,
                  Tensor& reserve) {
  const RecurrentStack& s = call.stack;
  const Tensor data = aligned(call.data()), hx = aligned(call.hx()), cx = aligned(call.cx());
  TensorVec made{mica::empty({data.size(0), s.state * s.directions}, data.options()),
                 mica::empty(hx.sizes(), data.options())};
  if (call.has_cell()) made.push_back(mica::empty(cx.sizes(), data.options()));
  const DenseParameters parameters(call);
  do {
    if (training) reserve = mica::empty({plan.reserve}, data.options().dtype(DType::UInt8));
    if (library.forward(s, plan,
                        {made[0].view_of(), made[1].view_of(), call.has_cell() ? made[2].view_of() : TensorView(),
                         view_or_none(reserve), data.view_of(), hx.view_of(), view_or_none(cx), parameters.views}))
      return made;
  } while (library.plan(s, training, &plan));
  return {};
}

// The gradients of the same layers as operations, whose derivative can be differentiated again.
TensorVec unrolled_gradients(const Call& call, const TensorVec& grads, const std::vector<bool>& wanted) {
  const RecurrentStack& s = call.stack;
  TensorVec list = call.list, inputs, outputs, output_grads, result(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!wanted[i]) continue;
    list[i] = list[i].view_as(list[i]);  // so that one tensor given twice gets two gradients
    inputs.push_back(list[i]);
  }
  const auto per_run = static_cast<size_t>(s.parameters_of_run());
  Tensor data = list[0];
  TensorVec hy, cy;
  for (int64_t layer = 0, run = 0; layer < s.layers; ++layer) {
    TensorVec sides;
    for (int64_t direction = 0; direction < s.directions; ++direction, ++run) {
      const Tensor* w = list.data() + call.first_parameter() + static_cast<size_t>(run) * per_run;
      const Tensor none;
      const RecurrentWeights weights{w[0], w[1], s.has_biases ? w[2] : none, s.has_biases ? w[3] : none,
                                     s.has_projection() ? w[per_run - 1] : none};
      const RecurrentResult r =
          unroll_recurrent_layer(data, s.batch_sizes, list[1].select(0, run),
                                 call.has_cell() ? list[2].select(0, run) : none, weights, s.mode, direction == 1);
      sides.push_back(r.output);
      hy.push_back(r.hy);
      cy.push_back(r.cy);
    }
    data = sides.size() == 1 ? sides[0] : mica::cat(sides, 1);
  }
  const TensorVec made{data, mica::stack(hy, 0), call.has_cell() ? mica::stack(cy, 0) : Tensor()};
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    outputs.push_back(made[i]);
    output_grads.push_back(grads[i]);
  }
  const TensorVec found = autograd::grad(outputs, inputs, output_grads, true, true, true);
  for (size_t i = 0, at = 0; i < list.size(); ++i)
    if (wanted[i]) result[i] = found[at++];
  return result;
}

TensorVec backward(const Call& call, const RecurrentPlan& plan, const Tensor& output, const Tensor& reserve,
                   const TensorVec& grads, const std::vector<bool>& wanted) {
  const RecurrentStack& s = call.stack;
  const ModeGuard exact(mode_bit::kAutocast, false);
  const Tensor data = aligned(call.data()), hx = aligned(call.hx()), cx = aligned(call.cx()), y = aligned(output);
  const Tensor grad_y = grads[0].defined() ? aligned(grads[0].to(s.dtype)) : mica::zeros(y.sizes(), y.options());
  const auto given = [&](size_t i) {
    return i < grads.size() && grads[i].defined() ? aligned(grads[i].to(s.dtype)) : Tensor();
  };
  const Tensor grad_hy = given(1), grad_cy = given(2);
  const size_t first = call.first_parameter();
  const bool weights_wanted =
      std::find(wanted.begin() + static_cast<int64_t>(first), wanted.end(), true) != wanted.end();
  const auto room = [&](bool wish, const Tensor& like) {
    return wish ? mica::empty(like.sizes(), like.options()) : Tensor();
  };
  TensorVec result(call.list.size());
  result[0] = room(true, data);
  result[1] = room(wanted[1], hx);
  if (call.has_cell()) result[2] = room(wanted[2], cx);
  const Tensor weights = weights_wanted ? mica::empty({plan.weights}, data.options()) : Tensor();
  // The library writes into the reserve of the forward pass, which another pass may need, so it gets a copy.
  const Tensor changed = autograd::current_graph_task_keeps_graph() ? reserve.clone() : reserve;
  const DenseParameters parameters(call);
  library_of(s.device)->backward(
      s, plan,
      {result[0].view_of(), view_or_none(result[1]), call.has_cell() ? view_or_none(result[2]) : TensorView(),
       view_or_none(weights), grad_y.view_of(), view_or_none(grad_hy), view_or_none(grad_cy), y.view_of(),
       data.view_of(), hx.view_of(), view_or_none(cx), changed.view_of(), parameters.views});
  if (!wanted[0]) result[0] = Tensor();
  for (size_t i = first; i < call.list.size(); ++i) {
    const Tensor& parameter = call.list[i];
    if (wanted[i]) result[i] = weights.narrow(0, plan.offsets[i - first], parameter.numel()).view(parameter.sizes());
  }
  return result;
}

struct LibraryStack : autograd::Function<LibraryStack> {
  static TensorVec forward(autograd::AutogradContext* context, const TensorVec& list, const RecurrentStack& stack,
                           const RecurrentPlan& plan) {
    Tensor reserve;
    RecurrentPlan used = plan;
    TensorVec made = mica::forward(*library_of(stack.device), {stack, list}, true, used, reserve);
    if (made.empty()) return made;
    TensorVec kept = list;
    kept.push_back(made[0]);
    kept.push_back(reserve);
    context->save_for_backward(std::move(kept));
    context->set_materialize_grads(false);
    context->saved_data["stack"] = stack;
    context->saved_data["plan"] = used;
    return made;
  }
  static TensorVec backward(autograd::AutogradContext* context, const TensorVec& grads) {
    const auto stack = context->saved_data["stack"].to<RecurrentStack>();
    const auto plan = context->saved_data["plan"].to<RecurrentPlan>();
    TensorVec list = context->saved();
    const size_t inputs = list.size() - 2;
    TensorVec result(inputs + 2);  // the stack and the plan have no gradient
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& t) { return t.defined(); })) return result;
    const Tensor output = list[inputs], reserve = list[inputs + 1];
    list.resize(inputs);
    std::vector<bool> wanted;
    for (size_t i = 0; i < inputs; ++i) wanted.push_back(context->needs_input_grad(i));
    const Call call{stack, list};
    TensorVec found = grad_enabled() ? unrolled_gradients(call, grads, wanted)
                                     : mica::backward(call, plan, output, reserve, grads, wanted);
    std::move(found.begin(), found.end(), result.begin());
    return result;
  }
};

}  // namespace

std::optional<RecurrentResult> run_recurrent_library(const RecurrentLayers& layers, const Tensor& data,
                                                     IntArrayRef batch_sizes, const Tensor& hx, const Tensor& cx) {
  const RecurrentLibrary* library = library_of(data.device());
  if (!library) return {};
  const std::optional<RecurrentStack> stack = described(layers, data, batch_sizes, hx, cx);
  if (!stack) return {};
  TensorVec list{data, hx};
  if (stack->mode == kLstm) list.push_back(cx);
  list.insert(list.end(), layers.parameters.begin(), layers.parameters.end());
  const bool training = compute_requires_grad(TensorList(list));
  RecurrentPlan plan;
  if (!library->plan(*stack, training, &plan)) return {};
  Tensor none;
  const TensorVec made =
      training ? LibraryStack::apply(list, *stack, plan) : forward(*library, {*stack, list}, false, plan, none);
  if (made.empty()) return {};
  return RecurrentResult{made[0], made[1], stack->mode == kLstm ? made[2] : Tensor()};
}

}  // namespace mica
