#include "recorded_modules.h"

#include "mica/backend.h"
#include "mica/ops.h"

namespace mica::testing {

static const Value& recordings() {
  static const Value file = load(MICA_SOURCE_DIRECTORY "/tests/recorded/files/cpp_modules.pt");
  return file;
}
static void expect_close(const Tensor& ours, const Tensor& theirs, const std::string& what) {
  ASSERT_EQ(ours.sizes().vec(), theirs.sizes().vec()) << what;
  EXPECT_EQ(ours.dtype(), theirs.dtype()) << what;
  EXPECT_TRUE(allclose(ours, theirs, 2e-5, 2e-6, true)) << what << "\n" << ours.str() << "\n" << theirs.str();
}

static void expect_same_state(const NamedTensors& ours, const NamedTensors& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].first, theirs[i].first);
    EXPECT_TRUE(equal(ours[i].second, theirs[i].second)) << ours[i].first << "\n"
                                                         << ours[i].second.str() << "\n"
                                                         << theirs[i].second.str();
  }
}

static void expect_independent_clone(const nn::Module& module) {
  manual_seed(3);
  const std::shared_ptr<nn::Module> copy = module.clone();
  const Tensor next = rand({2});
  manual_seed(3);
  EXPECT_TRUE(equal(next, rand({2}))) << "the clone has drawn random numbers";
  EXPECT_EQ(copy->repr(), module.repr());
  expect_same_state(copy->state_dict(), module.state_dict());
  const auto ours = module.state_dict(), theirs = copy->state_dict();
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NE(ours[i].second.data_ptr(), theirs[i].second.data_ptr()) << ours[i].first;
}

void expect_as_recorded(const std::string& name, const std::function<Runnable()>& make) {
  SCOPED_TRACE(name);
  const Value& recorded = recordings().at(name);
  manual_seed(0);
  const Runnable made = make();
  const Tensor next = rand({2});
  EXPECT_EQ(made.module->repr(), recorded.at("repr").as_string());
  expect_same_state(made.module->state_dict(), recorded.at("state").as_named_tensors());
  EXPECT_TRUE(equal(next, recorded.at("next").as_tensor())) << "the stream of random numbers is elsewhere";
  expect_independent_clone(*made.module);

  Tensors inputs;
  for (const Tensor& t : recorded.at("inputs").as_tensors()) inputs.push_back(t.clone());
  const bool differentiable = inputs[0].is_floating_point();
  if (differentiable) inputs[0].requires_grad_();
  manual_seed(1);
  const Tensors outputs = made.run(inputs), expected = recorded.at("outputs").as_tensors();
  ASSERT_EQ(outputs.size(), expected.size());
  Tensor loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    expect_close(outputs[i].detach(), expected[i], "output " + std::to_string(i));
    if (!outputs[i].requires_grad()) continue;
    const Tensor part = outputs[i].sin().sum();
    loss = loss.defined() ? loss + part : part;
  }
  const Tensors gradients = recorded.at("gradients").as_tensors();
  ASSERT_EQ(loss.defined(), !gradients.empty());
  if (!loss.defined()) return;
  loss.backward();
  Tensors leaves = differentiable ? Tensors{inputs[0]} : Tensors{};
  for (const Tensor& p : made.module->parameters()) leaves.push_back(p);
  ASSERT_EQ(leaves.size(), gradients.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor gradient = leaves[i].grad();
    expect_close(gradient.defined() ? gradient : zeros_like(leaves[i]), gradients[i], "gradient " + std::to_string(i));
  }
}

}  // namespace mica::testing
