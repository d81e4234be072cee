// Programs of simple operations as machine code: random ones give what computing step by step gives.
#include "compiler/code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace mica::recording::code_test {

bool is_truth(Op op) { return op == Op::Less || op == Op::LessEqual || op == Op::Equal; }

float apply(const Step& s, const float* v) {
  const float a = v[s.a], b = v[s.b], c = v[s.c];
  switch (s.op) {
    case Op::Add:
      return a + b;
    case Op::Sub:
      return a - b;
    case Op::Mul:
      return a * b;
    case Op::Div:
      return a / b;
    case Op::MulAdd:
      return std::fma(a, b, c);
    case Op::NegMulAdd:
      return std::fma(-a, b, c);
    case Op::Neg:
      return -a;
    case Op::Abs:
      return std::fabs(a);
    case Op::Sqrt:
      return std::sqrt(a);
    case Op::Max:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case Op::Min:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case Op::Relu:
      return std::isnan(a) ? a : std::max(a, 0.0f);
    case Op::Less:
      return a < b;
    case Op::LessEqual:
      return a <= b;
    case Op::Equal:
      return a == b;
    case Op::Select:
      return a != 0 ? b : c;
  }
  return 0;
}

class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed) {
    p.streams = 1 + below(Program::kStreams);
    p.constants = 1 + below(5);
    p.steps = 1 + below(seed % 2 ? 8 : 40);
    for (int s = 0; s < p.streams; ++s) {
      p.kinds[s] = s == 0 || below(2) ? Program::kDense : below(2) ? Program::kOneValue : Program::kTruth;
      (p.kinds[s] == Program::kTruth ? truths_ : numbers_).push_back(Program::stream(s));
    }
    for (int i = 0; i < p.constants; ++i) numbers_.push_back(Program::constant(i));
    const size_t given = numbers_.size();
    for (int i = 0; i < p.steps; ++i) {
      auto op = static_cast<Op>(below(16));
      if (op == Op::Select && truths_.empty()) op = Op::Less;
      const uint8_t first =
          op == Op::Select ? truths_[truths_.size() - 1 - below(std::min<int>(3, truths_.size()))] : recent(given);
      p.code[i] = {op, Program::result(i), first, recent(given), recent(given)};
      (is_truth(op) ? truths_ : numbers_).push_back(Program::result(i));
    }
    for (int s = 0; s < p.streams; ++s) {
      if (p.kinds[s] != Program::kDense || (s > 0 && below(3))) continue;
      const int step = below(p.steps);
      const uint8_t value =
          is_truth(p.code[step].op) ? numbers_[below(static_cast<int>(given))] : Program::result(step);
      p.stored[p.stores++] = {static_cast<uint8_t>(step), value, static_cast<uint8_t>(s), below(2) != 0};
    }
    if (kSumLanes > 0 && p.streams < Program::kStreams && below(3) == 0) {
      sum = p.streams++;
      p.kinds[sum] = Program::kRowSum;
      const int step = below(p.steps);
      const uint8_t value = is_truth(p.code[step].op) ? Program::stream(0) : Program::result(step);
      p.stored[p.stores++] = {static_cast<uint8_t>(step), value, static_cast<uint8_t>(sum), false};
    }
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Program p;
  int sum = -1;  // a stream

 private:
  uint8_t recent(size_t given) {  // mostly what was computed last
    const int made = static_cast<int>(numbers_.size() - given);
    return made > 0 && below(2) ? numbers_[numbers_.size() - 1 - below(std::min(made, 4))]
                                : numbers_[below(static_cast<int>(numbers_.size()))];
  }
  std::mt19937 random_;
  std::vector<uint8_t> numbers_, truths_;
};

// A row's sum as the kernel has it: eight vectors side by side that meet after at most 16 steps, then single vectors.
float sum_of_row(const std::vector<float>& row, double divisor) {
  constexpr size_t kLanes = kSumLanes > 0 ? kSumLanes : 1, kStep = 8 * kLanes;
  double total[kLanes] = {};
  size_t i = 0;
  while (row.size() - i >= kStep) {
    float sums[8][kLanes] = {};
    for (const size_t end = i + std::min<size_t>((row.size() - i) / kStep, 16) * kStep; i < end; i += kStep)
      for (size_t k = 0; k < kStep; ++k) sums[k / kLanes][k % kLanes] += row[i + k];
    for (size_t l = 0; l < kLanes; ++l) {
      const float left = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
      total[l] += left + ((sums[4][l] + sums[5][l]) + (sums[6][l] + sums[7][l]));
    }
  }
  float rest[kLanes] = {};
  for (; i < row.size(); ++i) rest[i % kLanes] += row[i];
  for (size_t l = 0; l < kLanes; ++l) total[l] += rest[l];
  double lanes[kLanes / 2 + 1] = {};
  for (size_t l = 0; l < kLanes / 2; ++l) lanes[l] = total[l] + total[l + kLanes / 2];
  return static_cast<float>((lanes[0] + lanes[1]) / divisor);
}

// Runs both ways on random memory; false where there is no code.
bool check(unsigned seed) {
  RandomProgram made(seed);
  const Program& p = made.p;
  const Code code = code_of(p);
  if (!code) return false;
  constexpr int kBefore = 2;
  const int elements = made.sum < 0 ? 400 : 5000;
  std::vector<std::vector<float>> memory(p.streams, std::vector<float>(elements));
  std::vector<std::vector<uint8_t>> truths(p.streams, std::vector<uint8_t>(elements));
  float constants[Program::kConstants];
  for (float& c : constants) c = static_cast<float>(made.below(100) - 50) / 10;
  CodeArguments arguments;
  arguments.count = made.sum < 0 ? 1 + made.below(70) : 4 * (2 + made.below(seed % 3 ? 30 : 290));
  arguments.divisor = made.below(2) ? 1.0 : static_cast<double>(arguments.count);
  arguments.rows = 1 + made.below(4);
  arguments.constants = constants;
  for (int s = 0; s < p.streams; ++s) {
    for (float& x : memory[s]) x = made.below(50) ? static_cast<float>(made.below(2000) - 900) / 100 : NAN;
    for (uint8_t& x : truths[s]) x = static_cast<uint8_t>(made.below(3));
    const bool truth = p.kinds[s] == Program::kTruth;
    arguments.streams[s] = truth ? reinterpret_cast<char*>(truths[s].data() + kBefore)
                                 : reinterpret_cast<char*>(memory[s].data() + kBefore);
    arguments.skips[s] = truth ? made.below(3) : p.kinds[s] == Program::kDense ? 4 * made.below(3) : 4;
  }
  auto expected = memory;
  std::vector<int64_t> at(p.streams, kBefore);
  for (int64_t row = 0; row < arguments.rows; ++row) {
    std::vector<float> summands;
    for (int64_t i = 0; i < arguments.count; ++i) {
      float v[Program::kValues] = {};
      for (int s = 0; s < p.streams; ++s)
        v[s] = p.kinds[s] == Program::kTruth ? truths[s][at[s] + i]
                                             : expected[s][at[s] + (p.kinds[s] == Program::kDense ? i : 0)];
      for (int c = 0; c < p.constants; ++c) v[Program::constant(c)] = constants[c];
      for (int k = 0; k < p.steps; ++k) v[p.code[k].result] = apply(p.code[k], v);
      for (int k = 0; k < p.stores; ++k)
        if (p.stored[k].stream == made.sum) {
          summands.push_back(v[p.stored[k].value]);
        } else {
          expected[p.stored[k].stream][at[p.stored[k].stream] + i] = v[p.stored[k].value];
        }
    }
    if (made.sum >= 0) expected[made.sum][at[made.sum]] = sum_of_row(summands, arguments.divisor);
    for (int s = 0; s < p.streams; ++s)
      at[s] +=
          Program::bytes_of(p.kinds[s]) == 0 ? 1 : arguments.count + arguments.skips[s] / Program::bytes_of(p.kinds[s]);
  }
  code(&arguments);
  for (int s = 0; s < p.streams; ++s)
    for (int i = 0; i < elements; ++i) {
      const float a = memory[s][i], b = expected[s][i];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << "program " << seed << ", stream " << s << ", " << i;
      if (testing::Test::HasFailure()) return true;
    }
  return true;
}

TEST(Code, RandomProgramsGiveWhatTheirStepsGive) {
  int made = 0;
  for (unsigned seed = 0; seed < 600 && !HasFailure(); ++seed) made += check(seed);
#if defined(__aarch64__) && defined(__linux__)
  EXPECT_GT(made, 500);
#elif defined(__x86_64__) && defined(__linux__)  // half as many registers
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_GT(made, 400);
  }
#endif
}

}  // namespace mica::recording::code_test
