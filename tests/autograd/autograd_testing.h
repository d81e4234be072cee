// What the autograd tests share: small tensors, their values, and the text of an error.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mica/autograd.h"
#include "mica/custom_function.h"
#include "mica/ops.h"

namespace mica::testing {

inline Tensor values(std::vector<double> data, bool requires_grad = false) {
  Tensor t = empty({static_cast<int64_t>(data.size())}, DType::Float64);
  std::copy(data.begin(), data.end(), t.data_ptr<double>());
  if (requires_grad) t.requires_grad_();
  return t;
}

inline Tensor leaf(std::vector<double> data) { return values(std::move(data), true); }

inline std::vector<double> list(const Tensor& t) {
  if (!t.defined()) return {};
  NoGradGuard no_grad;
  const Tensor c = t.contiguous();
  return {c.data_ptr<double>(), c.data_ptr<double>() + c.numel()};
}

// The message of what `body` throws, or "" if it throws nothing.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

using Values = std::vector<double>;

// y = x * factor for gradients, with whatever the test wants to happen in its backward.
struct TestNode : Node {
  std::function<void(TensorVec&, TensorVec&)> body;
  const char* name() const override { return "TestBackward0"; }
  void apply(TensorVec& grads, TensorVec& out) override { body(grads, out); }
};

// A tensor equal to x whose backward is `body`.
inline Tensor through(const Tensor& x, std::function<void(TensorVec&, TensorVec&)> body) {
  Tensor y;
  {
    NoGradGuard no_grad;
    y = clone(x);
  }
  auto* node = new TestNode;
  auto ref = Ref<Node>::adopt(node);
  node->body = std::move(body);
  node->next_edges.push_back(gradient_edge(x));
  set_history(y, ref);
  return y;
}

#define EXPECT_STARTS_WITH(text, prefix) EXPECT_EQ((text).substr(0, std::string(prefix).size()), prefix)

}  // namespace mica::testing
