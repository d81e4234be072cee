// Derivatives of functions, on the engine's graph; the templates of mica/func.h lead here.
#include "mica/func.h"

#include <algorithm>
#include <unordered_set>

#include "mica/error.h"
#include "mica/ops.h"

namespace mica::func {

// A new input of a graph, attached to the old one for derivatives of derivatives.
static Tensor fresh(const Tensor& x) {
  if (x.requires_grad()) return x.view_as(x);
  Tensor leaf = x.detach();
  leaf.requires_grad_();
  return leaf;
}

namespace {

TensorVec filled(TensorVec found, const TensorVec& like) {
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].defined()) found[i] = zeros_like(like[i]);
  return found;
}

TensorVec gradients(const TensorVec& outputs, const TensorVec& inputs, const TensorVec& weights, bool retain,
                    bool create) {
  return autograd::grad(outputs, inputs, weights, retain || create, create, /*allow_unused=*/true);
}

// Element i of a tensor of zeros of this form is one.
Tensor one_hot_like(const Tensor& t, int64_t i) {
  const NoGradGuard no_grad;
  Tensor unit = zeros(t.sizes(), t.options());
  unit.reshape({-1}).select(0, i).fill_(1);
  return unit;
}

TensorVec zeros_of(const TensorVec& tensors) {
  TensorVec result;
  for (const Tensor& t : tensors) result.push_back(zeros_like(t.detach()));
  return result;
}

DimVector joined_sizes(const Tensor& output, const Tensor& leaf) {
  DimVector sizes(output.sizes());
  for (int64_t size : leaf.sizes()) sizes.push_back(size);
  return sizes;
}

}  // namespace

bool reaches_other_leaves(TensorList outputs, TensorList leaves) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> waiting;
  const auto visit = [&](const Ref<Node>& node) {
    if (node && seen.insert(node.get()).second) waiting.push_back(node.get());
  };
  std::vector<Edge> own;  // keeps the leaves' accumulators, which are borrowed elsewhere
  for (const Tensor& leaf : leaves) {
    if (!leaf.requires_grad() || !leaf.is_leaf()) continue;
    own.push_back(gradient_edge(leaf));
    seen.insert(own.back().function.get());
  }
  for (const Tensor& output : outputs)
    if (output.requires_grad()) visit(gradient_edge(output).function);
  while (!waiting.empty()) {
    const Node* const node = waiting.back();
    waiting.pop_back();
    if (node->is_accumulator) return true;
    for (const Edge& edge : node->next_edges) visit(edge.function);
  }
  return false;
}

TensorVec detached(const TensorVec& tensors) {
  TensorVec result;
  for (const Tensor& t : tensors) result.push_back(t.detach());
  return result;
}

Recorded record(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums) {
  const bool recorded_outside = grad_enabled();
  const EnableGradGuard recording;
  Recorded result{{}, {}, false};
  const auto count = static_cast<int64_t>(args.size());
  for (int64_t n : argnums) {
    MICA_CHECK(n >= -count && n < count, "Got argnum=", n, ", but only ", count, " positional inputs");
    Tensor& arg = args[static_cast<size_t>(n < 0 ? n + count : n)];
    MICA_CHECK(is_floating(arg.dtype()) || is_complex(arg.dtype()),
               "only Tensors of floating point dtype can require gradients: argument ", n, " is of ",
               info(arg.dtype()).name);
    arg = fresh(arg);
    result.leaves.push_back(arg);
  }
  result.outputs = f(args);
  result.nested = recorded_outside && reaches_other_leaves(result.outputs, result.leaves);
  return result;
}

TensorVec pull(const Recorded& recorded, const TensorVec& vectors, bool retain_graph, bool create_graph) {
  MICA_CHECK(vectors.size() == recorded.outputs.size(), "Expected one vector for each of ", recorded.outputs.size(),
             " outputs, got ", vectors.size());
  TensorVec outputs, weights;
  for (size_t i = 0; i < vectors.size(); ++i) {
    MICA_CHECK(vectors[i].sizes() == recorded.outputs[i].sizes(), "Mismatch in shape: grad_output[", i,
               "] has a shape of ", vectors[i].sizes(), " and output[", i, "] has a shape of ",
               recorded.outputs[i].sizes(), ".");
    if (!recorded.outputs[i].requires_grad()) continue;
    outputs.push_back(recorded.outputs[i]);
    weights.push_back(vectors[i]);
  }
  TensorVec found(recorded.leaves.size());
  if (!outputs.empty()) found = gradients(outputs, recorded.leaves, weights, retain_graph, create_graph);
  return filled(std::move(found), recorded.leaves);
}

Pusher::Pusher(const Recorded& recorded) : outputs_(recorded.outputs), leaves_(recorded.leaves) {
  const EnableGradGuard recording;
  TensorVec reached;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].requires_grad()) continue;
    places_.push_back(i);
    reached.push_back(outputs_[i]);
    Tensor vector = zeros_like(outputs_[i].detach());
    vector.requires_grad_();
    vectors_.push_back(vector);
  }
  if (!places_.empty()) pulled_ = gradients(reached, leaves_, vectors_, true, true);
}

bool Pusher::reaches() const {
  for (const Tensor& product : pulled_)
    if (product.defined()) return true;
  return false;
}

TensorVec Pusher::operator()(const TensorVec& tangents, bool keep, bool create_graph) const {
  TensorVec result = zeros_of(outputs_), products, weights;
  for (size_t i = 0; i < pulled_.size(); ++i) {
    if (!pulled_[i].defined() || !pulled_[i].requires_grad()) continue;
    products.push_back(pulled_[i]);
    weights.push_back(tangents[i]);
  }
  if (products.empty()) return result;
  const EnableGradGuard recording;
  TensorVec found = gradients(products, vectors_, weights, keep, create_graph);
  for (size_t i = 0; i < places_.size(); ++i)
    if (found[i].defined()) result[places_[i]] = found[i];
  return result;
}

GradientAndValue gradient_and_value(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums) {
  const Recorded recorded = record(f, std::move(args), argnums);
  MICA_CHECK(recorded.outputs.size() == 1 && recorded.outputs[0].dim() == 0,
             "Expected the function given to grad to return a scalar tensor (of 0 dimensions)");
  const Tensor& value = recorded.outputs[0];
  const TensorVec one{ones({}, value.options())};
  return {pull(recorded, one, false, recorded.nested), recorded.nested ? value : value.detach()};
}

void check_tangents(const char* name, const TensorVec& primals, const TensorVec& tangents) {
  MICA_CHECK(primals.size() == tangents.size(), name, "(f, primals, tangents): Expected a tangent for each of ",
             primals.size(), " primals, got ", tangents.size());
  for (size_t i = 0; i < primals.size(); ++i)
    MICA_CHECK(primals[i].sizes() == tangents[i].sizes(), name,
               "(f, primals, tangents): Expected tensor `tangent` to have the same shape as `primal`: got ",
               tangents[i].sizes(), " and ", primals[i].sizes());
}

std::pair<TensorVec, TensorVec> value_and_tangents(const ListFunction& f, TensorVec primals,
                                                   const TensorVec& tangents) {
  check_tangents("jvp", primals, tangents);
  std::vector<int64_t> all(primals.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const bool create = grad_enabled() && any_requires_grad(TensorList(tangents));
  const Recorded recorded = record(f, std::move(primals), all);
  const bool nested = recorded.nested || create;
  TensorVec pushed = Pusher(recorded)(tangents, nested, nested);
  return {nested ? recorded.outputs : detached(recorded.outputs), std::move(pushed)};
}

std::vector<TensorVec> jacobian(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums, bool forwards) {
  const Recorded recorded = record(f, std::move(args), argnums);
  // parts[output][leaf]: the rows of an output, or the columns of a leaf, one after the other.
  std::vector<std::vector<TensorVec>> parts(recorded.outputs.size(), std::vector<TensorVec>(recorded.leaves.size()));
  if (forwards) {
    const Pusher push(recorded);
    for (size_t leaf = 0; leaf < recorded.leaves.size(); ++leaf) {
      TensorVec tangents = zeros_of(recorded.leaves);
      for (int64_t i = 0; i < recorded.leaves[leaf].numel(); ++i) {
        tangents[leaf] = one_hot_like(recorded.leaves[leaf], i);
        const TensorVec pushed = push(tangents, true, recorded.nested);
        for (size_t output = 0; output < pushed.size(); ++output) parts[output][leaf].push_back(pushed[output]);
      }
    }
  } else {
    for (size_t output = 0; output < recorded.outputs.size(); ++output) {
      TensorVec vectors = zeros_of(recorded.outputs);
      for (int64_t i = 0; i < recorded.outputs[output].numel(); ++i) {
        vectors[output] = one_hot_like(recorded.outputs[output], i);
        const TensorVec pulled = pull(recorded, vectors, true, recorded.nested);
        for (size_t leaf = 0; leaf < pulled.size(); ++leaf) parts[output][leaf].push_back(pulled[leaf]);
      }
    }
  }
  std::vector<TensorVec> result(parts.size());
  for (size_t output = 0; output < parts.size(); ++output) {
    for (size_t leaf = 0; leaf < recorded.leaves.size(); ++leaf) {
      const Tensor &y = recorded.outputs[output], &x = recorded.leaves[leaf];
      const DimVector sizes = joined_sizes(y, x);
      const TensorVec& slices = parts[output][leaf];
      Tensor whole = slices.empty() ? zeros(sizes, y.options()) : stack(slices, forwards ? -1 : 0).reshape(sizes);
      result[output].push_back(std::move(whole));
    }
  }
  return result;
}

TensorVec map_examples(const ListFunction& f, const TensorVec& args, ArrayRef<std::optional<int64_t>> in_dims,
                       int64_t out_dim) {
  MICA_CHECK_KIND(in_dims.size() == args.size(), Value, "vmap: in_dims has ", in_dims.size(), " entries for ",
                  args.size(), " arguments");
  std::optional<int64_t> count;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!in_dims[i]) continue;
    MICA_CHECK_KIND(*in_dims[i] >= -args[i].dim() && *in_dims[i] < args[i].dim(), Value,
                    "vmap: Got in_dim=", *in_dims[i], " for an input, but the input has only ", args[i].dim(),
                    " dimensions");
    const int64_t size = args[i].size(*in_dims[i]);
    MICA_CHECK_KIND(!count || *count == size, Value, "vmap: Expected all tensors to have the same size in the mapped ",
                    "dimension, got sizes ", count.value_or(0), " and ", size, " for the mapped dimension");
    count = size;
  }
  MICA_CHECK_KIND(count, Value, "vmap: all in_dims are None; at least one must be a dimension to map over");
  std::vector<TensorVec> results;  // [output][example]
  // Without examples, a run on zeros tells the shapes of the results.
  for (int64_t example = 0; example < std::max<int64_t>(*count, 1); ++example) {
    TensorVec given;
    for (size_t i = 0; i < args.size(); ++i) {
      if (!in_dims[i]) {
        given.push_back(args[i]);
      } else if (*count == 0) {
        given.push_back(zeros_like(args[i].sum(*in_dims[i])).to(args[i].dtype()));
      } else {
        given.push_back(args[i].select(*in_dims[i], example));
      }
    }
    TensorVec outputs = f(given);
    if (results.empty()) results.resize(outputs.size());
    MICA_CHECK(outputs.size() == results.size(), "vmap: the function returned ", outputs.size(),
               " tensors for an example and ", results.size(), " for the one before");
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(std::move(outputs[i]));
  }
  TensorVec stacked;
  for (const TensorVec& outputs : results) {
    const Tensor whole = stack(outputs, out_dim);
    stacked.push_back(*count == 0 ? whole.narrow(out_dim, 0, 0) : whole);
  }
  return stacked;
}

}  // namespace mica::func

namespace mica::forward_ad {
namespace {
thread_local DualLevel* open_level = nullptr;
}

DualLevel::DualLevel() {
  MICA_CHECK(!open_level, "Nested forward mode AD is not supported at the moment");
  open_level = this;
}

DualLevel::~DualLevel() { open_level = nullptr; }

Tensor make_dual(const Tensor& primal, const Tensor& tangent) {
  MICA_CHECK(open_level, "Trying to create a dual Tensor for forward AD but no level exists, make sure to ",
             "enter_dual_level() first.");
  for (const Tensor* given : {&primal, &tangent})
    MICA_CHECK_KIND(is_floating(given->dtype()) || is_complex(given->dtype()), Value, "Expected ",
                    given == &primal ? "primal" : "tangent", " to be floating point or complex, but got: torch.",
                    info(given->dtype()).name);
  MICA_CHECK(primal.sizes() == tangent.sizes(),
             "Trying to set a forward gradient that has a different size than that of the original Tensor, this is ",
             "not supported. Tensor is of size ", primal.sizes(), " while the given forward gradient is of size ",
             tangent.sizes(), ".");
  MICA_CHECK(primal.dtype() == tangent.dtype(), "Trying to set a forward gradient of dtype ",
             info(tangent.dtype()).name, " on a tensor of dtype ", info(primal.dtype()).name, ": they differ");
  const EnableGradGuard recording;
  Tensor dual = func::fresh(primal);
  open_level->duals_.push_back(dual);
  open_level->tangents_.push_back(tangent);
  return dual;
}

Unpacked unpack_dual(const Tensor& t) {
  if (!open_level || open_level->duals_.empty() || !t.requires_grad()) return {t, Tensor()};
  const DualLevel& level = *open_level;
  const bool attached = level.history_wanted_ && (any_requires_grad(TensorList(level.tangents_)) ||
                                                  func::reaches_other_leaves(TensorList(&t, 1), level.duals_));
  const func::Pusher push(func::Recorded{level.duals_, {t}, attached});
  if (!push.reaches()) return {t, Tensor()};
  TensorVec pushed = push(level.tangents_, true, attached);
  return {attached ? t : t.detach(), pushed[0]};
}

}  // namespace mica::forward_ad
