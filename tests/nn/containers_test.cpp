// Modules that hold modules, and copies of them.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "mica/nn.h"
#include "mica/values.h"
#include "tests/nn/names_of.h"

namespace mica::testing {
namespace {

TEST(Containers, Handles) {
  nn::Sequential s(nn::Linear(3, 3), nn::ReLU());
  nn::Sequential same(s);  // a handle in one argument is copied, not wrapped
  EXPECT_EQ(same.shared(), s.shared());
  same->push_back("last", nn::Linear(3, 1));
  EXPECT_EQ(s->size(), 3u);
  EXPECT_EQ(names_of(s->named_parameters()), (Names{"0.weight", "0.bias", "last.weight", "last.bias"}));
  const nn::Sequential nested(s, nn::Flatten(0));
  EXPECT_EQ(nested(ones({2, 3})).sizes().vec(), (std::vector<int64_t>{2}));
  EXPECT_FALSE(nn::Linear(nullptr));
}

TEST(Containers, Sequences) {
  const nn::Sequential named({{"project", nn::Linear(3, 2)}, {"bend", nn::ReLU()}});
  EXPECT_EQ(names_of(named->named_parameters()), (Names{"project.weight", "project.bias"}));
  const nn::Sequential all{nn::Flatten(), nn::Functional(relu),
                           nn::Functional([](const Tensor& x) { return x.mean(1); })};
  EXPECT_TRUE(equal(all(tensor({-1.0, 3.0}).view({1, 2, 1})), tensor({1.5})));
  const nn::Sequential both;
  EXPECT_TRUE(both->is_empty());
  both->extend(*named);
  both->extend(*nn::Sequential{nn::Linear(2, 1)});
  both->push_back(std::make_shared<nn::TanhImpl>());
  EXPECT_EQ(names_of(both->named_parameters()), (Names{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_EQ(both->at<nn::Linear>(2).in_features, 2);
  EXPECT_THROW(both->at<nn::Linear>(1), Error);
  EXPECT_EQ(both(ones({4, 3})).sizes().vec(), (std::vector<int64_t>{4, 1}));
}

TEST(Containers, ListsAndDicts) {
  const nn::ModuleList<nn::Linear> list(std::vector{nn::Linear(2, 3), nn::Linear(3, 1)});
  Tensor x = ones({1, 2});
  for (const nn::Linear& layer : list) x = layer(x);
  EXPECT_EQ(x.numel(), 1);
  EXPECT_EQ(list[1]->in_features, 3);
  EXPECT_THROW(list[2], std::out_of_range);

  const nn::ModuleDict<nn::Linear> dict;
  dict->insert("left", nn::Linear(2, 3));
  dict->insert("right", nn::Linear(2, 1));
  EXPECT_EQ(dict["right"](ones({2})).numel(), 1);
  EXPECT_TRUE(dict->contains("left"));
  EXPECT_THROW(dict["middle"], Error);
  EXPECT_THROW(dict->insert("left", nn::Linear(2, 3)), Error);
  EXPECT_EQ(names_of(dict->state_dict()), (Names{"left.weight", "left.bias", "right.weight", "right.bias"}));

  const nn::ParameterDict parameters(NamedTensors{{"a", zeros({2})}, {"b", ones({3})}});
  EXPECT_EQ(names_of(parameters->named_parameters()), (Names{"a", "b"}));
  EXPECT_TRUE(parameters["b"].requires_grad());
  EXPECT_THROW(parameters["c"], Error);
}

// ---- clones

TEST(Clones, OfContainers) {
  nn::Sequential s(nn::Linear(3, 3));
  s->push_back(nn::BatchNorm1d(3));
  s->push_back("inner", nn::Sequential(nn::Dropout(0.5)));
  s->eval();
  s->parameters()[0].requires_grad_(false);
  const nn::Sequential copy = nn::clone(s);
  EXPECT_EQ(copy->repr(), s->repr());
  EXPECT_EQ(names_of(copy->state_dict()), names_of(s->state_dict()));
  EXPECT_FALSE(copy->is_training());
  EXPECT_FALSE((*copy)[2]->children()[0]->is_training());
  EXPECT_FALSE(copy->parameters()[0].requires_grad());
  EXPECT_TRUE(copy->parameters()[1].requires_grad());
  const Tensor x = randn({4, 3});
  EXPECT_TRUE(equal(copy(x), s(x)));
  nn::init::zeros_(copy->parameters()[0]);
  EXPECT_FALSE(equal(copy->parameters()[0], s->parameters()[0]));

  const nn::ParameterList list(std::vector{ones({2})});
  const nn::ParameterList other = nn::clone(list);
  nn::init::zeros_(list[0]);
  EXPECT_TRUE(equal(other[0], ones({2})));
}

class ResidualImpl : public nn::Module {
 public:
  ResidualImpl(const nn::Sequential& inner, double factor, const std::string& name)
      : Module(name), factor(factor), inner(register_module("inner", inner)) {}
  Tensor forward(const Tensor& x) { return x + factor * inner(x); }
  const double factor;
  nn::Sequential inner;
};
MICA_MODULE(Residual);

struct WithoutHandle : nn::Module {};

TEST(Clones, OfOnesOwn) {
  const Residual one(nn::Sequential(nn::Linear(3, 3), nn::Tanh()), 0.5, "Residual");
  one->to(DType::Float64);
  const Residual two = nn::clone(one);
  EXPECT_EQ(two->factor, 0.5);
  EXPECT_NE(two->inner.shared(), one->inner.shared());
  const Tensor x = randn({2, 3}).to(DType::Float64);
  EXPECT_TRUE(equal(two(x), one(x)));
  const Residual three = nn::clone(two);
  EXPECT_TRUE(equal(three(x), one(x)));
  EXPECT_FALSE(nn::clone(Residual(nullptr)));
  EXPECT_THROW(WithoutHandle().clone(), Error);  // was not made through a handle
  one->register_parameter("late", ones({1}));
  EXPECT_THROW(one->clone(), Error);
}

}  // namespace
}  // namespace mica::testing
