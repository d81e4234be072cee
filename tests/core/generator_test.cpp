#include "mica/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/random.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica {
namespace {

using Bytes = std::vector<uint8_t>;

uint64_t digest(const Bytes& bytes) {
  uint64_t value = 0xcbf29ce484222325ull;
  for (uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3ull;
  return value;
}

// ---- torch's recorded results ---------------------------------------------------------------------------------

struct Record {
  std::string op;
  DType dtype;
  int64_t size;
  uint64_t seed;
  std::vector<double> arguments;  // NaN for null
  uint64_t result;
  uint64_t state;
};

DType dtype_named(const std::string& wanted) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (wanted == name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw std::runtime_error("no dtype " + wanted);
}

// The build directory lies within the source tree, so the tree is found upwards of the working directory.
std::filesystem::path recorded_file() {
  for (auto at = std::filesystem::current_path(); at != at.root_path(); at = at.parent_path()) {
    if (const auto file = at / "tests" / "recorded" / "random.json"; std::filesystem::exists(file)) return file;
  }
  return {};
}

// One record a line: ["op", "dtype", size, seed, [arguments], "digest", "digest"].
Record parse(std::string line) {
  for (char& c : line) {
    if (std::strchr("[],\"", c) != nullptr) c = ' ';
  }
  std::istringstream in(line);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  Record record{words.at(0), dtype_named(words.at(1)), std::stoll(words.at(2)), std::stoull(words.at(3)), {}, 0, 0};
  for (size_t i = 4; i + 2 < words.size(); ++i) {
    record.arguments.push_back(words[i] == "null" ? std::nan("") : std::stod(words[i]));
  }
  record.result = std::stoull(words.at(words.size() - 2), nullptr, 16);
  record.state = std::stoull(words.back(), nullptr, 16);
  return record;
}

Bytes parameters(DType dtype, int64_t size, double scale) {
  Bytes values(static_cast<size_t>(size * element_size(dtype)));
  cpu::fill_uniform(values.data(), dtype, size, 0, scale, Generator(3));
  return values;
}

Bytes sampled(const Record& record, const Generator& generator) {
  const auto& [op, dtype, n, seed, arguments, result, state] = record;
  const double a = arguments.empty() ? 0 : arguments[0];
  const double b = arguments.size() < 2 ? 0 : arguments[1];
  Bytes bytes(static_cast<size_t>(n * element_size(dtype)));
  void* out = bytes.data();
  if (op == "uniform") {
    cpu::fill_uniform(out, dtype, n, a, b, generator);
  } else if (op == "normal" || op == "strided_normal") {
    cpu::fill_normal(out, dtype, n, a, b, generator, op == "normal");
  } else if (op == "random") {
    cpu::fill_random(out, dtype, n, generator);
  } else if (op == "random_range") {
    const auto to = std::isnan(b) ? std::nullopt : std::optional(static_cast<int64_t>(b));
    cpu::fill_random(out, dtype, n, cpu::random_range(dtype, static_cast<int64_t>(a), to), generator);
  } else if (op == "randperm") {
    cpu::fill_randperm(out, dtype, n, generator);
  } else if (op == "bernoulli") {
    cpu::fill_bernoulli(out, dtype, n, a, generator);
  } else if (op == "bernoulli_each") {
    cpu::fill_bernoulli(out, dtype, n, parameters(dtype, n, 1).data(), dtype, generator);
  } else if (op == "exponential") {
    cpu::fill_exponential(out, dtype, n, a, generator);
  } else if (op == "cauchy") {
    cpu::fill_cauchy(out, dtype, n, a, b, generator);
  } else if (op == "log_normal") {
    cpu::fill_log_normal(out, dtype, n, a, b, generator);
  } else if (op == "geometric") {
    cpu::fill_geometric(out, dtype, n, a, generator);
  } else if (op == "poisson") {
    cpu::sample_poisson(out, parameters(dtype, n, a).data(), dtype, n, generator);
  } else if (op == "binomial") {
    Bytes counts(bytes.size());
    for (int64_t i = 0; i < n; ++i) {
      if (dtype == DType::Float32) {
        reinterpret_cast<float*>(counts.data())[i] = static_cast<float>(a);
      } else {
        reinterpret_cast<double*>(counts.data())[i] = a;
      }
    }
    cpu::sample_binomial(out, counts.data(), parameters(dtype, n, 1).data(), dtype, n, generator);
  } else if (op == "standard_gamma") {
    cpu::sample_standard_gamma(out, parameters(dtype, n, a).data(), dtype, n, generator);
  } else if (op == "multinomial") {
    const auto samples = static_cast<int64_t>(a);
    bytes.resize(static_cast<size_t>(3 * samples) * sizeof(int64_t));
    cpu::sample_multinomial(reinterpret_cast<int64_t*>(bytes.data()), parameters(dtype, 3 * n, 1).data(), dtype, 3, n,
                            samples, b != 0, generator);
  } else {
    ADD_FAILURE() << "unknown op " << op;
  }
  return bytes;
}

TEST(RandomStream, IsTorchsBitForBit) {
  const auto path = recorded_file();
  ASSERT_FALSE(path.empty()) << "tests/recorded/random.json is not above " << std::filesystem::current_path();
  std::ifstream file(path);
  int records = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 3) continue;
    const Record record = parse(line);
    ++records;
#if !defined(__x86_64__)
    // The recorded floats come from torch's vector kernel for x86; elsewhere torch calls the C library.
    if (record.op == "normal" && record.dtype != DType::Float64 && record.dtype != DType::Complex128) continue;
#endif
    Generator generator(record.seed);
    EXPECT_EQ(digest(sampled(record, generator)), record.result) << line;
    EXPECT_EQ(digest(generator.get_state()), record.state) << line;
  }
  EXPECT_GT(records, 600);
}

TEST(RandomStream, DoesNotDependOnTheNumberOfThreads) {
  const int threads = get_num_threads();
  for (const char* op : {"normal", "strided_normal", "exponential", "log_normal"}) {
    const Record record{op, DType::Float32, 300007, 5, {1.0, 2.0}, 0, 0};
    set_num_threads(1);
    const Bytes alone = sampled(record, Generator(5));
    set_num_threads(4);
    EXPECT_EQ(sampled(record, Generator(5)), alone) << op;
  }
  set_num_threads(threads);
}

TEST(RandomStream, BlocksAreTheWordsDrawnOneByOne) {
  Mt19937 blocks(9);
  Mt19937 words(9);
  for (int64_t count : {1, 7, 623, 1, 624, 625, 2000, 0, 3}) {
    std::vector<uint32_t> drawn(static_cast<size_t>(count));
    cpu::draw_words(blocks, drawn.data(), count);
    for (uint32_t word : drawn) ASSERT_EQ(word, words.draw());
    std::vector<uint64_t> drawn64(static_cast<size_t>(count));
    cpu::draw_words(blocks, drawn64.data(), count);
    for (uint64_t word : drawn64) ASSERT_EQ(word, words.draw64());
    ASSERT_EQ(blocks.next, words.next);
    ASSERT_EQ(blocks.left, words.left);
  }
}

// ---- the generator --------------------------------------------------------------------------------------------

TEST(Generator, DrawsTheMersenneTwister) {
  // The 10,000th word for the seed 5489 is part of the C++ standard.
  Generator generator(5489);
  for (int i = 1; i < 10000; ++i) generator.random();
  EXPECT_EQ(generator.random(), 4123659995u);
  Generator halves(1);
  Generator whole(1);
  const uint64_t high = halves.random();
  EXPECT_EQ(whole.random64(), high << 32 | halves.random());
}

TEST(Generator, CopiesShareAStreamAndClonesDoNot) {
  Generator generator(4);
  Generator copy = generator;
  Generator clone = generator.clone();
  EXPECT_TRUE(copy == generator);
  EXPECT_FALSE(clone == generator);
  const uint32_t first = generator.random();
  EXPECT_NE(copy.random(), first);
  EXPECT_EQ(clone.random(), first);
}

TEST(Generator, SeedsAsTorchDoes) {
  EXPECT_EQ(Generator().initial_seed(), 67280421310721u);
  Generator generator(3);
  EXPECT_EQ(generator.initial_seed(), 3u);
  const uint64_t chosen = generator.seed();
  EXPECT_EQ(generator.initial_seed(), chosen);
  EXPECT_NE(generator.seed(), chosen);
  EXPECT_TRUE(default_generator() == default_generator());
}

TEST(Generator, SeedingDropsTheWaitingNormal) {
  Generator generator(8);
  double one;
  cpu::fill_normal(&one, DType::Float64, 1, 0, 1, generator);
  generator.manual_seed(8);
  double again;
  cpu::fill_normal(&again, DType::Float64, 1, 0, 1, generator);
  EXPECT_EQ(one, again);
}

TEST(Generator, StateRestoresTheStreamWithItsWaitingNormals) {
  Generator generator(8);
  double values[4];
  cpu::fill_normal(values, DType::Float64, 3, 0, 1, generator);  // the fourth waits
  Bytes state = generator.get_state();
  ASSERT_EQ(state.size(), 5056u);
  const float waiting = 0.5f;
  std::memcpy(&state[5048], &waiting, sizeof waiting);
  state[5052] = 1;

  Generator other;
  other.set_state(state.data(), state.size());
  EXPECT_EQ(other.get_state(), state);
  EXPECT_EQ(other.clone().get_state(), state);
  double expected;
  cpu::fill_normal(&expected, DType::Float64, 1, 0, 1, generator);
  cpu::fill_normal(values, DType::Float64, 1, 0, 1, other);
  EXPECT_EQ(values[0], expected);
  EXPECT_EQ(other.random(), generator.random());
}

TEST(Generator, RefusesStatesThatAreNone) {
  Generator generator(8);
  for (int i = 0; i < 100; ++i) generator.random();
  const Bytes before = generator.get_state();
  EXPECT_THROW(generator.set_state(before.data(), 5), Error);
  const auto refuses = [&](size_t offset, int32_t value) {
    Bytes state = before;
    std::memcpy(&state[offset], &value, sizeof value);
    EXPECT_THROW(generator.set_state(state.data(), state.size()), Error) << offset << " " << value;
  };
  constexpr size_t left = 8, seeded = 12, next = 16;
  refuses(left, 0);
  refuses(left, -1);
  refuses(left, 624);  // with `next` at 100 these would read past the words
  refuses(left, 625);
  refuses(next, 624);
  refuses(next, -1);
  refuses(seeded, 0);
  EXPECT_EQ(generator.get_state(), before);
  EXPECT_THROW(generator.get_offset(), Error);
  EXPECT_THROW(generator.set_offset(1), Error);
}

// ---- arguments ------------------------------------------------------------------------------------------------

template <class F>
void expect_error(const F& call, const std::string& beginning, ErrorKind kind = ErrorKind::Runtime) {
  try {
    call();
    ADD_FAILURE() << "no error: " << beginning;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, beginning.size()), beginning);
    EXPECT_EQ(error.kind(), kind) << beginning;
  }
}

TEST(RandomArguments, AreCheckedInTorchsWordsBeforeAnythingIsDrawn) {
  Generator g(1);
  const Bytes before = g.get_state();
  std::vector<double> memory(8);
  void* d = memory.data();
  const double nan = std::nan("");
  expect_error([&] { cpu::fill_uniform(d, DType::Float32, 4, 2, 1, g); },
               "uniform_ expects to return a [from, to) range, but found from=2 > to=1");
  expect_error([&] { cpu::fill_uniform(d, DType::Float16, 4, 0, 1e6, g); }, "to is out of bounds for c10::Half");
  expect_error([&] { cpu::fill_uniform(d, DType::Float32, 4, nan, 1, g); }, "from is out of bounds for float");
  expect_error([&] { cpu::fill_uniform(d, DType::Int64, 4, 0, 1, g); },
               "\"check_uniform_bounds\" not implemented for 'Long'", ErrorKind::NotImplemented);
  expect_error([&] { cpu::fill_normal(d, DType::Float32, 0, 0, -1, g); },
               "normal expects std >= 0.0, but found std -1");
  expect_error([&] { cpu::fill_normal(d, DType::Int32, 4, 0, 1, g); },
               "\"normal_kernel_cpu\" not implemented for 'Int'", ErrorKind::NotImplemented);
  expect_error([&] { cpu::fill_exponential(d, DType::Float32, 4, 0, g); },
               "exponential_ expects lambda > 0.0, but found lambda=0");
  expect_error([&] { cpu::fill_cauchy(d, DType::Float32, 4, 0, 0, g); },
               "cauchy_ expects sigma > 0.0, but found sigma=0");
  expect_error([&] { cpu::fill_log_normal(d, DType::Float32, 4, 0, 0, g); },
               "log_normal_ expects std > 0.0, but found std=0");
  expect_error([&] { cpu::fill_geometric(d, DType::Float32, 4, 1, g); },
               "geometric_ expects p to be in (0, 1), but got p=1");
  expect_error([&] { cpu::fill_bernoulli(d, DType::Float32, 4, 1.5, g); },
               "bernoulli_ expects p to be in [0, 1], but got p=1.5");
  memory = {0.5, 1.5, nan, -1};
  expect_error([&] { cpu::fill_bernoulli(d, DType::Float64, 4, d, DType::Float64, g); },
               "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  expect_error([&] { cpu::sample_poisson(d, d, DType::Float64, 4, g); },
               "invalid Poisson rate, expected rate to be non-negative");
  expect_error([&] { cpu::sample_binomial(d, d, d, DType::Float16, 4, g); },
               "\"binomial_cpu\" not implemented for 'Half'", ErrorKind::NotImplemented);
  expect_error([&] { cpu::random_range(DType::UInt8, 0, 257); }, "to - 1 is out of bounds for unsigned char");
  expect_error([&] { cpu::random_range(DType::UInt64, 3, std::nullopt); },
               "to - 1 is out of bounds for long unsigned int");
  expect_error([&] { cpu::random_range(DType::Float32, 5, 5); },
               "random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
  expect_error([&] { cpu::fill_randperm(d, DType::Float16, 2050, g); }, "n cannot be greater than 2049 for Half type.");
  expect_error([&] { cpu::fill_randperm(d, DType::UInt8, 257, g); },
               "value cannot be converted to type uint8_t without overflow");
  EXPECT_EQ(g.get_state(), before);
  EXPECT_EQ(cpu::random_range(DType::Float32, 0, 1 << 24).warning, "");
  EXPECT_EQ(cpu::random_range(DType::Float32, 0, 1 << 30).warning.substr(0, 42),
            "to - 1 is out of bounds [-(2^24), 2^24]. D");
}

TEST(RandomArguments, OfMultinomialAreChecked) {
  Generator g(1);
  int64_t out[4];
  const auto sample = [&](std::vector<float> weights, int64_t samples, bool replacement) {
    cpu::sample_multinomial(out, weights.data(), DType::Float32, 1, static_cast<int64_t>(weights.size()), samples,
                            replacement, g);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (bool replacement : {false, true}) {
    expect_error(
        [&] {
          sample({0, 0}, 1, replacement);
        },
        "invalid multinomial distribution (sum of probabilities <= 0)");
    expect_error(
        [&] {
          sample({1, -1}, 2, replacement);
        },
        "probability tensor contains either `inf`, `nan` or element < 0");
    expect_error(
        [&] {
          sample({1, infinity}, 1, replacement);
        },
        "probability tensor contains either `inf`, `nan` or element < 0");
    expect_error([&] { sample({1, 2}, 0, replacement); }, "cannot sample n_sample <= 0 samples");
    expect_error([&] { sample({}, 1, replacement); }, replacement ? "multinomial" : "cannot sample n_sample >");
  }
  sample({0, 3, 0}, 4, true);
  for (int64_t category : out) EXPECT_EQ(category, 1);
}

TEST(RandomArguments, ABinomialOfNaNIsNaN) {
  const double nan = std::nan("");
  const double counts[] = {nan, 5, 5, -1};
  const double probs[] = {0.5, nan, 2, 0.5};
  double out[4];
  cpu::sample_binomial(out, counts, probs, DType::Float64, 4, Generator(1));
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_EQ(out[2], 5);
  EXPECT_EQ(out[3], 0);
}

}  // namespace
}  // namespace mica
