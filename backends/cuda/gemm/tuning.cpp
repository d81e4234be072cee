#include "backends/cuda/gemm/tuning.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/runtime.h"

namespace mica::cuda::tuning {

namespace {

constexpr const char* kSolution = "Gemm_CublasLt_";  // and the numbers of an algorithm's configuration
constexpr const char* kDefault = "Default";          // the heuristic's algorithm
constexpr int kCandidates = 32;

using Name = std::pair<std::string, std::string>;  // operation, parameters
struct Choice {
  std::string solution;
  double milliseconds;
};

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

struct State {
  std::atomic<bool> enabled{number_of("PYTORCH_TUNABLEOP_ENABLED", 0) != 0};
  bool tuning = number_of("PYTORCH_TUNABLEOP_TUNING", 1) != 0;
  bool recording = number_of("PYTORCH_TUNABLEOP_RECORD_UNTUNED", 0) != 0;
  int64_t duration = number_of("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS", 30);
  int64_t iterations = number_of("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS", 100);
  int64_t rotating = number_of("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE", -1);  // MB that are written between runs
  std::string file = [] {
    const char* text = std::getenv("PYTORCH_TUNABLEOP_FILENAME");
    return std::string(text && *text ? text : "tunableop_results%d.csv");
  }();
  bool looked_for_file = false;
  std::string trouble;  // reported when Python asks: a warning runs Python, for which no lock may wait
  std::map<Name, Choice> choices;
  std::map<Name, bool> untuned;
  // Plans that were given their choice, by their description; emptied when choices may have changed.
  std::unordered_map<const void*, lt::Plan> plans;
  std::mutex mutex;
};

State& state() {
  static auto* made = new State;
  return *made;
}

std::string file_of(const State& s, int device, const char* other = nullptr) {
  std::string name = other ? other : s.file;
  const size_t at = name.find("%d");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(device));
}

std::vector<Name> validators(int device) {
  const cudaDeviceProp& p = properties(device);
  return {{"FORMAT", "1"},
          {"CUBLASLT_VERSION", std::to_string(lt::cublas().GetVersion())},
          {"DEVICE", cat(p.name, " sm_", p.major, p.minor, " ", p.multiProcessorCount)}};
}

// ---- an algorithm as text: whole numbers that the library checks when an algorithm is made of them again

template <class F>
bool for_each_setting(const F& f) {
  uint32_t word = 0;
  uint16_t half = 0;
  for (auto attribute :
       {CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION})
    if (!f(attribute, word)) return false;
  for (auto attribute : {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID})
    if (!f(attribute, half)) return false;
  return true;
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t id = -1;
  size_t written = 0;
  MICA_CUBLAS(lt::cublas().MatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written));
  std::string text = cat(kSolution, id);
  for_each_setting([&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    MICA_CUBLAS(lt::cublas().MatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written));
    text += cat("_", value);
    return true;
  });
  return text;
}

// Returns false where the text is not ours, or the library does not take the algorithm for this product.
bool make_algorithm(const std::string& text, const Product& product, cublasLtHandle_t handle, lt::Plan& plan) {
  const std::string_view prefix = kSolution;
  if (text.compare(0, prefix.size(), prefix) != 0) return false;
  const char *at = text.data() + prefix.size(), *const end = text.data() + text.size();
  auto next = [&](auto& value) {
    const auto [after, error] = std::from_chars(at, end, value);
    at = after == end ? end : after + 1;
    return error == std::errc() && (after == end || *after == '_');
  };
  int32_t id = -1;
  cublasLtMatmulAlgo_t algorithm{};
  if (!next(id) ||
      lt::cublas().MatmulAlgoInit(handle, product.compute, product.scale, product.operands, product.operands,
                                  product.out, product.out, id, &algorithm) != CUBLAS_STATUS_SUCCESS)
    return false;
  const bool set = for_each_setting([&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    return next(value) && lt::cublas().MatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof value) ==
                              CUBLAS_STATUS_SUCCESS;
  });
  cublasLtMatmulHeuristicResult_t found{};
  if (!set || lt::cublas().MatmulAlgoCheck(handle, plan.operation, plan.a, plan.b, plan.added, plan.out, &algorithm,
                                           &found) != CUBLAS_STATUS_SUCCESS)
    return false;
  plan.algorithm = algorithm;
  plan.workspace = found.workspaceSize;
  return found.workspaceSize <= lt::kWorkspaceBytes;
}

// ---- the file

bool read_file(State& s, const std::string& path, int device) {
  std::ifstream file(path);
  if (!file) return false;
  std::map<std::string, std::string> wanted;
  for (const auto& [name, value] : validators(device)) wanted.emplace(name, value);
  std::map<Name, Choice> read;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == ',')
        fields.emplace_back();
      else
        fields.back() += c;
    }
    if (fields.size() == 3 && fields[0] == "Validator") {
      const auto known = wanted.find(fields[1]);
      if (known == wanted.end()) continue;
      if (known->second != fields[2]) {
        s.trouble = cat(path, " was tuned elsewhere and is not used: its ", fields[1], " is ", fields[2],
                        ", here it is ", known->second);
        return false;
      }
      wanted.erase(known);
    } else if (fields.size() >= 3 && wanted.empty()) {
      const double time = fields.size() > 3 ? std::strtod(fields[3].c_str(), nullptr) : 0;
      read[{fields[0], fields[1]}] = {fields[2], time};
    }
  }
  if (!wanted.empty()) return false;  // it does not say where it was tuned
  for (auto& [name, choice] : read) s.choices[name] = choice;
  s.plans.clear();
  return true;
}

void append(State& s, const Name& name, const Choice& choice, int device) {
  const std::string path = file_of(s, device);
  const bool is_new = !std::ifstream(path).good();
  std::ofstream file(path, std::ios::app);
  if (is_new)
    for (const auto& [key, value] : validators(device)) file << "Validator," << key << ',' << value << '\n';
  file << name.first << ',' << name.second << ',' << choice.solution << ',' << choice.milliseconds << '\n';
  if (!file.flush()) s.trouble = cat("what was tuned cannot be written to ", path);
}

// ---- timing

struct Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  Events() {
    MICA_CUDA(cudaEventCreate(&begin));
    MICA_CUDA(cudaEventCreate(&end));
  }
  Events(const Events&) = delete;
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
};

// The mean time of a run, in milliseconds: of as many as the settings allow.
template <class F>
double time_of(const State& s, int device, const Events& events, const F& run) {
  const cudaStream_t stream = current_stream(device);
  const size_t between = s.rotating > 0 ? static_cast<size_t>(s.rotating) << 20 : 0;
  const std::optional<Workspace> cold =
      between ? std::optional<Workspace>(std::in_place, between, device) : std::nullopt;
  run();  // warms up
  double total = 0;
  int64_t done = 0;
  do {
    if (cold) MICA_CUDA(cudaMemsetAsync(cold->data(), 0, between, stream));
    MICA_CUDA(cudaEventRecord(events.begin, stream));
    run();
    MICA_CUDA(cudaEventRecord(events.end, stream));
    MICA_CUDA(cudaEventSynchronize(events.end));
    float taken = 0;
    MICA_CUDA(cudaEventElapsedTime(&taken, events.begin, events.end));
    total += taken;
    ++done;
  } while ((s.iterations <= 0 || done < s.iterations) && (s.duration <= 0 || total < static_cast<double>(s.duration)) &&
           done < 10000);
  return total / static_cast<double>(done);
}

Choice fastest(const State& s, const lt::Plan& plan, cublasLtHandle_t handle, const Product& product, int device,
               const std::function<void(const lt::Plan&, void*)>& run) {
  const Workspace out(product.out_bytes, device);
  const Events events;
  Choice best{kDefault, time_of(s, device, events, [&] { run(plan, out.data()); })};
  for (const cublasLtMatmulHeuristicResult_t& candidate : lt::algorithms(plan, handle, 16, kCandidates)) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    lt::Plan other = plan;
    const std::string text = text_of(candidate.algo);
    // The algorithm that is kept must be the one that is timed.
    if (!make_algorithm(text, product, handle, other)) continue;
    try {
      const double taken = time_of(s, device, events, [&] { run(other, out.data()); });
      if (taken < best.milliseconds) best = {text, taken};
    } catch (const Error&) {  // the library does not take it after all
    }
  }
  return best;
}

}  // namespace

bool is_on() { return state().enabled.load(std::memory_order_relaxed); }

lt::Plan chosen(const lt::Plan& plan, cublasLtHandle_t handle, const Product& product, int device,
                const std::function<void(const lt::Plan&, void*)>& run) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const auto known = s.plans.find(plan.operation);
  if (known != s.plans.end()) return known->second;
  if (!s.looked_for_file) {
    s.looked_for_file = true;
    read_file(s, file_of(s, device), device);
  }
  const Name name{product.operation, product.parameters};
  auto choice = s.choices.find(name);
  if (choice == s.choices.end()) {
    if (s.recording && s.untuned.emplace(name, true).second)
      std::ofstream(file_of(s, device, "tunableop_untuned%d.csv"), std::ios::app)
          << name.first << ',' << name.second << '\n';
    if (!s.tuning || is_capturing(current_stream(device))) return plan;
    choice = s.choices.emplace(name, fastest(s, plan, handle, product, device, run)).first;
    append(s, name, choice->second, device);
  }
  lt::Plan found = plan;
  if (!make_algorithm(choice->second.solution, product, handle, found)) found = plan;
  return s.plans[plan.operation] = found;
}

std::string ask(std::string_view text, int device) {
  State& s = state();
  const size_t line = text.find('\n');
  const std::string name(text.substr(0, line));
  const std::string value(line == std::string_view::npos ? "" : text.substr(line + 1));
  std::lock_guard lock(s.mutex);
  auto setting = [&](auto& held) {
    if (!value.empty()) held = static_cast<std::decay_t<decltype(held)>>(std::stoll(value));
    return std::to_string(static_cast<int64_t>(held));
  };
  if (name == "enabled") {
    if (!value.empty()) s.enabled = value == "1";
    return s.enabled ? "1" : "0";
  }
  if (name == "tuning") {
    if (value == "1") s.plans.clear();  // products without a choice are tuned from now on
    return setting(s.tuning);
  }
  if (name == "recording") return setting(s.recording);
  if (name == "duration") return setting(s.duration);
  if (name == "iterations") return setting(s.iterations);
  if (name == "rotating") return setting(s.rotating);
  if (name == "file") {
    if (!value.empty()) s.file = value, s.looked_for_file = false;
    return file_of(s, device);
  }
  if (name == "read")
    return s.looked_for_file = true, read_file(s, value.empty() ? file_of(s, device) : value, device) ? "1" : "0";
  if (name == "trouble") return std::exchange(s.trouble, "");
  std::ostringstream all;
  if (name == "validators") {
    for (const auto& [key, what] : validators(device)) all << key << ',' << what << '\n';
    return all.str();
  }
  if (name == "results") {
    for (const auto& [key, choice] : s.choices)
      all << key.first << ',' << key.second << ',' << choice.solution << ',' << choice.milliseconds << '\n';
    return all.str();
  }
  fail(ErrorKind::Value, cat("tuning knows no '", name, "'"));
}

}  // namespace mica::cuda::tuning
