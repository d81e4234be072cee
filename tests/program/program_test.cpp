// Programs of .pt2 archives: those that torch wrote compute torch's values, and no file crashes the reader.
#include "mica/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "io/archive.h"
#include "mica/autocast.h"
#include "mica/mica.h"
#include "mica/serialize.h"
#include "program/arithmetic.h"
#include "program/graph_reader.h"
#include "program/input_sizes.h"

namespace {

using mica::Tensor;
namespace program = mica::program;

std::string recorded(const std::string& name) {
  return std::string(MICA_SOURCE_DIRECTORY "/tests/recorded/files/") + name;
}

// (input, what torch computes for it).
std::vector<std::pair<Tensor, mica::Value>> recorded_values() {
  std::vector<std::pair<Tensor, mica::Value>> found;
  const mica::Value file = mica::load(recorded("program_values.pt"));
  for (const mica::Value& pair : file.as_list()) found.emplace_back(pair[0].as_tensor(), pair[1]);
  return found;
}

std::string graph_of(const std::string& name) {
  const mica::io::ArchiveReader archive(std::make_unique<mica::io::FileSource>(recorded(name)), name);
  return archive.read("models/model.json");
}

constexpr mica::io::JsonLimits kLimits{.deepest = 128, .reals = true};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const mica::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Program, ComputesWhatTorchDoes) {
  for (const char* name : {"program.pt2", "program_decomposed.pt2"}) {
    const auto loaded = mica::Program::load(recorded(name));
    EXPECT_EQ(loaded.input_names(), std::vector<std::string>{"input"});
    ASSERT_EQ(loaded.output_names().size(), 3u);
    for (const auto& [input, meant] : recorded_values()) {
      const std::vector<Tensor> results = loaded({input});
      ASSERT_EQ(results.size(), 3u);
      EXPECT_TRUE(mica::allclose(results[0], meant.at("flat").as_tensor(), 1e-5, 1e-6));
      EXPECT_TRUE(mica::allclose(results[1], meant.at("cat").as_tensor(), 1e-5, 1e-6));
      EXPECT_EQ(results[2].item<int64_t>(), meant.at("rows").as_int());
      EXPECT_FALSE(results[0].requires_grad());
    }
  }
}

// What torch computes for the first input: a linear map under autocast, then the same one without.
TEST(Program, HasTheCastsThatItWasExportedWith) {
  const auto program = mica::Program::load(recorded("program_autocast.pt2"));
  const Tensor x = mica::linspace(-1, 1, 8).view({2, 4});
  const std::vector<Tensor> plain = program({x});
  EXPECT_FLOAT_EQ(plain[0].select(0, 0).select(0, 1).item<float>(), -1.2890625F);
  EXPECT_FLOAT_EQ(plain[1].select(0, 0).select(0, 1).item<float>(), -1.2918367F);
  const mica::autocast::Guard on;  // of the caller
  const std::vector<Tensor> within = program({x});
  EXPECT_TRUE(mica::equal(plain[0], within[0]) && mica::equal(plain[1], within[1]));
  EXPECT_TRUE(mica::autocast::is_enabled(mica::DeviceType::CPU));
}

TEST(Program, CallsOperatorsOfOnesOwn) {
  EXPECT_THROW(mica::Program::load(recorded("program_own_operator.pt2")), mica::Error);
  for (const char* wrong : {"scale(Tensor x) -> Tensor", "mylib::scale", "mylib::scale(Thing x) -> Tensor"})
    EXPECT_THROW(mica::define_operator(wrong, [](const auto& a) { return std::vector{a.tensor(0)}; }), mica::Error);
  const char* const schema = "mylib::scale(Tensor x, float factor=2.0, int shift=0) -> Tensor";
  const auto scale = [](const mica::OperatorArguments& a) {
    return std::vector{a.tensor(0) * a.real(1) + a.integer(2)};
  };
  mica::define_operator(schema, scale);
  EXPECT_THROW(mica::define_operator(schema, scale), mica::Error);
  const auto program = mica::Program::load(recorded("program_own_operator.pt2"));
  EXPECT_TRUE(mica::equal(program({mica::arange(4.0)})[0], mica::arange(4.0) * 5 + 1));
}

TEST(Program, MapsAndScansAlongTensors) {
  const mica::Value meant = mica::load(recorded("program_loops_values.pt"));
  const auto program = mica::Program::load(recorded("program_loops.pt2"));
  const std::vector<Tensor> made = program({meant.at("x").as_tensor()});
  ASSERT_EQ(made.size(), 4u);
  const mica::Value& loops = meant.at("loops");
  EXPECT_TRUE(mica::equal(made[0], loops[0].as_tensor()));
  EXPECT_TRUE(mica::equal(made[1], loops[1].as_tensor()));
  EXPECT_TRUE(mica::equal(made[2], loops[2][0].as_tensor()));
  EXPECT_TRUE(mica::equal(made[3], loops[2][1].as_tensor()));
}

// The operators change views of one tensor, by strides and by a slice, and an input of the program.
TEST(Program, CallsOperatorsThatChangeArguments) {
  EXPECT_NE(message_of([] { mica::Program::load(recorded("program_changes.pt2")); }).find("torch.ops.changing.add"),
            std::string::npos);
  mica::define_operator("changing::add(Tensor(a!) x, Tensor y) -> ()", [](const mica::OperatorArguments& a) {
    a.tensor(0).add_(a.tensor(1));
    return std::vector<Tensor>();
  });
  mica::define_operator("changing::multiply(Tensor(a!)[] xs, Tensor(b!)? z, float k=2.0) -> Tensor",
                        [](const mica::OperatorArguments& a) {
                          for (const Tensor& x : a.tensors(0)) x.mul_(a.real(2));
                          EXPECT_FALSE(a.tensor(1).defined());
                          return std::vector{a.tensors(0)[0] + 1};
                        });
  const mica::Value meant = mica::load(recorded("program_loops_values.pt"));
  const auto program = mica::Program::load(recorded("program_changes.pt2"));
  const Tensor x = meant.at("x").as_tensor().clone(), y = meant.at("y").as_tensor().clone();
  const std::vector<Tensor> made = program({x, y});
  ASSERT_EQ(made.size(), 2u);
  EXPECT_TRUE(mica::equal(made[0], meant.at("changes")[0].as_tensor()));
  EXPECT_TRUE(mica::equal(made[1], meant.at("changes")[1].as_tensor()));
  EXPECT_TRUE(mica::equal(y, meant.at("changed").as_tensor()));
  EXPECT_TRUE(mica::equal(x, meant.at("x").as_tensor()));
}

TEST(Program, RunsInSeveralThreads) {
  const auto loaded = mica::Program::load(recorded("program.pt2"));
  const Tensor input = recorded_values()[0].first;
  const Tensor meant = loaded({input})[0];
  std::vector<Tensor> results(8);
  std::vector<std::thread> threads;
  for (Tensor& result : results) threads.emplace_back([&] { result = loaded({input})[0]; });
  for (auto& thread : threads) thread.join();
  for (const Tensor& result : results) EXPECT_TRUE(mica::equal(result, meant));
}

TEST(Program, TensorsAreItsOwn) {
  const auto loaded = mica::Program::load(recorded("program.pt2"));
  const auto copy = loaded.to(mica::kCPU);
  const Tensor input = recorded_values()[0].first;
  const Tensor before = loaded({input})[0];
  ASSERT_EQ(copy.parameters().size(), 4u);
  EXPECT_EQ(copy.parameters()[0].key(), "linear.weight");
  EXPECT_EQ(copy.buffers().back().key(), "shift");
  copy.parameters()[0].value().zero_();
  EXPECT_FALSE(mica::allclose(copy({input})[0], before));
  EXPECT_TRUE(mica::equal(loaded({input})[0], before));
}

TEST(Program, RefusesOtherInputs) {
  const auto loaded = mica::Program::load(recorded("program.pt2"));
  EXPECT_NE(message_of([&] { loaded({}); }).find("takes 1 inputs, and is given 0"), std::string::npos);
  EXPECT_NE(message_of([&] {
              loaded({mica::ones({5, 3})});
            }).find("of size 4 at dimension 1, and this has 3"),
            std::string::npos);
  EXPECT_NE(message_of([&] { loaded({mica::ones({65, 4})}); }).find("with 3 to 64 at dimension 0"), std::string::npos);
  EXPECT_NE(message_of([&] { loaded({Tensor()}); }).find("undefined"), std::string::npos);
  EXPECT_NE(message_of([&] { mica::Program::load(recorded("values.pt")); }).find("holds no graph"), std::string::npos);
  EXPECT_THROW(mica::Program::load("nowhere.pt2"), mica::Error);
}

// A text that was changed anywhere is read, or refused with an error.
TEST(Program, DamagedGraphsAreErrors) {
  const std::string text = graph_of("program.pt2");
  uint64_t state = 1;
  const auto random = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % below;
  };
  const std::string characters = "0123456789.-eE\"{}[]:,abntu\\ ";
  size_t refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string changed = text;
    for (size_t n = 0; n <= random(3); ++n) {
      const size_t at = random(changed.size());
      switch (random(4)) {
        case 0:
          changed.erase(at, 1 + random(40));
          break;
        case 1:
          changed.insert(at, changed.substr(random(changed.size()), random(60)));
          break;
        default:
          changed[at] = characters[random(characters.size())];
      }
    }
    try {
      const auto document = mica::io::parse_json(changed, kLimits);
      const auto& module = program::member(document, "graph_module", mica::io::Json::Kind::Object);
      program::GraphReader().read(program::member(module, "graph", mica::io::Json::Kind::Object));
    } catch (const mica::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Program, JsonHasLimits) {
  EXPECT_DOUBLE_EQ(mica::io::parse_json("-1.5e-3", kLimits).real, -1.5e-3);
  EXPECT_EQ(mica::io::parse_json("9223372036854775807", kLimits).number, INT64_MAX);
  EXPECT_EQ(mica::io::parse_json("9223372036854775808", kLimits).kind, mica::io::Json::Kind::Real);
  EXPECT_EQ(mica::io::parse_json("true", kLimits).number, 1);
  EXPECT_THROW(mica::io::parse_json("1.5"), mica::Error);  // headers of tensor files hold whole numbers
  for (const char* text : {"", "-", "1e", "+1", "1.5.5", "nan", "[1,]", "{\"a\" 1}", "\"\\u12\""})
    EXPECT_THROW(mica::io::parse_json(text, kLimits), mica::Error) << text;
  EXPECT_THROW(mica::io::parse_json(std::string(100000, '['), kLimits), mica::Error);
}

TEST(Program, SizesAreComputedAsPythonDoes) {
  using program::Arithmetic;
  const auto whole = [](Arithmetic what, int64_t a, int64_t b) { return program::compute(what, a, b).to<int64_t>(); };
  EXPECT_EQ(whole(Arithmetic::FloorDiv, -7, 2), -4);
  EXPECT_EQ(whole(Arithmetic::Mod, -7, 2), 1);
  EXPECT_EQ(whole(Arithmetic::Mod, INT64_MIN, -1), 0);
  EXPECT_EQ(whole(Arithmetic::Pow, -1, INT64_MAX), -1);
  EXPECT_THROW(whole(Arithmetic::FloorDiv, 1, 0), mica::Error);
  EXPECT_THROW(whole(Arithmetic::FloorDiv, INT64_MIN, -1), mica::Error);
  EXPECT_THROW(whole(Arithmetic::Mul, INT64_MAX, 2), mica::Error);
  EXPECT_THROW(whole(Arithmetic::Pow, 3, 64), mica::Error);
  EXPECT_TRUE(program::compute(Arithmetic::Lt, 1, 1.5).to<bool>());

  const std::map<std::string, int64_t> symbols = {{"s0", 5}, {"s1", 3}};
  const std::string sum = "Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))";
  EXPECT_EQ(program::evaluate(sum, symbols), 11);
  EXPECT_EQ(program::evaluate("FloorDiv(Symbol('s0'), Integer(-2))", symbols), -3);
  EXPECT_EQ(program::evaluate("Max(s0, s1)", symbols), 5);
  for (const char* text :
       {"", "Symbol('s2')", "Symbol('s0", "Add(", "Add()", "Sin(s0)", "__import__('os')", "Integer(x)"})
    EXPECT_EQ(program::evaluate(text, symbols), std::nullopt) << text;
}

}  // namespace
