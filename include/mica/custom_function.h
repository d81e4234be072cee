// Functions with a backward of their own, in the manner of torch::autograd::Function:
//
//   struct Square : mica::autograd::Function<Square> {
//     static Tensor forward(AutogradContext* ctx, const Tensor& x) { ctx->save_for_backward({x}); return x * x; }
//     static TensorVec backward(AutogradContext* ctx, TensorVec grads) { return {grads[0] * ctx->saved()[0] * 2}; }
//   };
//   Tensor y = Square::apply(x);
#pragma once

#include <any>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "mica/autograd.h"

namespace mica {

// What a custom function of either language has in common: its saved tensors, and how its outputs join the graph.
class CustomNode : public Node {
 public:
  CustomNode() { runs_without_gradients = true; }
  void release_saved() override;

  // Keeps tensors for backward; those among `outputs` are kept without a cycle.
  void save_tensors(TensorList tensors, TensorList outputs);
  TensorVec saved_tensors();  // throws torch's error where they were freed or changed
  std::vector<SavedTensor>& raw_saved_tensors();

  // Replaces missing gradients by zeros of the outputs' shapes, unless the function takes them as they are.
  void materialize(TensorVec& grads) const;

  bool materialize_grads = true;

 private:
  std::vector<SavedTensor> saved_;
  bool released_ = false;
};

// How a forward treated its inputs and outputs.
struct CustomForward {
  TensorVec dirty;               // inputs changed in place
  TensorVec non_differentiable;  // outputs that carry no gradient
};

// Gives the outputs of a custom forward their history. `node` is null when nothing requires grad. Outputs that are
// inputs come back as views of them. Throws torch's errors for dirty inputs that are leaves, that are views, or that
// were not returned.
TensorVec attach_custom_outputs(const Ref<Node>& node, TensorList inputs, TensorVec outputs,
                                const CustomForward& forward);

namespace autograd {

// Whatever backward wants to know beside tensors: a number, a string, a list of integers.
class SavedValue {
 public:
  SavedValue() = default;
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, SavedValue>) SavedValue(T&& value) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, Tensor>) {
      value_ = value;
    } else if constexpr (std::is_integral_v<Plain>) {
      value_ = static_cast<int64_t>(value);
    } else if constexpr (std::is_floating_point_v<Plain>) {
      value_ = static_cast<double>(value);
    } else if constexpr (std::is_convertible_v<T, std::string>) {
      value_ = std::string(std::forward<T>(value));
    } else if constexpr (std::is_same_v<Plain, IntArrayRef>) {
      value_ = value.vec();  // copies the list, which somebody else owns
    } else {
      value_ = std::forward<T>(value);
    }
  }
  // The value in the type in which it was given. Throws where that was another type.
  template <class T>
  T to() const {
    const T* found = std::any_cast<T>(&value_);
    MICA_CHECK(found, "saved_data: the value that was saved has another type than the one asked for");
    return *found;
  }
  bool toBool() const { return to<bool>(); }
  int64_t toInt() const { return to<int64_t>(); }
  double toDouble() const { return to<double>(); }
  std::string toStringRef() const { return to<std::string>(); }
  Tensor toTensor() const { return to<Tensor>(); }
  std::vector<int64_t> toIntVector() const { return to<std::vector<int64_t>>(); }

 private:
  std::any value_;
};

class AutogradContext {
 public:
  void save_for_backward(TensorVec tensors) { to_save_ = std::move(tensors); }
  void mark_dirty(TensorVec inputs) { forward_.dirty = std::move(inputs); }
  void mark_non_differentiable(TensorVec outputs) { forward_.non_differentiable = std::move(outputs); }
  void set_materialize_grads(bool value) { materialize_grads_ = value; }

  TensorVec saved() const { return node_->saved_tensors(); }
  TensorVec get_saved_variables() const { return saved(); }
  bool needs_input_grad(size_t i) const { return node_->needs(i); }  // i counts the tensors among the arguments

  std::map<std::string, SavedValue> saved_data;

 private:
  template <class T>
  friend class Function;
  TensorVec to_save_;
  CustomForward forward_;
  bool materialize_grads_ = true;
  CustomNode* node_ = nullptr;
};

template <class T>
class Function {
 public:
  template <class... Args>
  static auto apply(Args&&... args) {
    auto node = Ref<CppNode>::adopt(new CppNode);
    TensorVec inputs;
    (collect(inputs, node->is_tensor, args), ...);
    const bool needs = compute_requires_grad(TensorList(inputs));
    AutogradContext& context = node->context;
    context.node_ = node.get();
    node->next_edges.reserve(inputs.size());
    for (const Tensor& t : inputs) node->next_edges.push_back(needs ? gradient_edge(t) : Edge{});

    using Result = decltype(T::forward(&context, std::forward<Args>(args)...));
    TensorVec outputs;
    {
      NoGradGuard no_grad;
      if constexpr (std::is_same_v<Result, Tensor>) {
        outputs.push_back(T::forward(&context, std::forward<Args>(args)...));
      } else {
        outputs = T::forward(&context, std::forward<Args>(args)...);
      }
    }
    const Ref<Node> recorded = needs ? Ref<Node>(node.get()) : Ref<Node>();
    outputs = attach_custom_outputs(recorded, inputs, std::move(outputs), context.forward_);
    if (needs) {
      node->materialize_grads = context.materialize_grads_;
      node->save_tensors(context.to_save_, outputs);
    }
    context.to_save_.clear();
    context.forward_ = {};
    if constexpr (std::is_same_v<Result, Tensor>) {
      return outputs[0];
    } else {
      return outputs;
    }
  }

 private:
  struct CppNode final : CustomNode {
    const char* name() const override { return "CppFunctionBackward"; }
    // backward returns one gradient for each argument of forward; the gradients of arguments that are not tensors are
    // dropped.
    void apply(TensorVec& grads, TensorVec& out) override {
      materialize(grads);
      TensorVec all = T::backward(&context, std::move(grads));
      MICA_CHECK(all.size() == is_tensor.size(), "function ", name(),
                 " returned an incorrect number of gradients (expected ", is_tensor.size(), ", got ", all.size(), ")");
      for (size_t i = 0, at = 0; i < all.size(); ++i) {
        if (is_tensor[i]) {
          out[at++] = std::move(all[i]);
        } else {
          MICA_CHECK(!all[i].defined(), "function ", name(), " returned a gradient different from None at position ",
                     i + 1, ", but the corresponding forward input was not a Variable");
        }
      }
    }
    AutogradContext context;
    std::vector<bool> is_tensor;  // one for each argument of forward; a list of tensors counts as that many arguments
  };

  static void collect(TensorVec& inputs, std::vector<bool>& is_tensor, const Tensor& t) {
    inputs.push_back(t);
    is_tensor.push_back(true);
  }
  static void collect(TensorVec& inputs, std::vector<bool>& is_tensor, const std::vector<Tensor>& list) {
    for (const Tensor& t : list) collect(inputs, is_tensor, t);
  }
  template <class Other>
  static void collect(TensorVec&, std::vector<bool>& is_tensor, const Other&) {
    is_tensor.push_back(false);
  }
};

}  // namespace autograd
}  // namespace mica
