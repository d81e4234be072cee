#include "backends/cuda/recurrent/stacks.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "backends/cuda/allocator.h"
#include "backends/cuda/cudnn/recurrent.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/recurrent/weights.h"

namespace mica::cuda::recurrent {

namespace {

using cudnn::check;

constexpr int64_t kLstm = 2, kGru = 3;
constexpr size_t kMostPlans = 512;

std::atomic<int64_t> forwards, backwards;
std::atomic<int> given_algorithm{-1};  // set for measurements; -1 where the backend chooses
std::string last_refusal;              // guarded by cudnn::lock()

// What the forward has decided, as one number.
int64_t choice_of(int algorithm, int math) { return algorithm | math << 8; }
int algorithm_of(int64_t choice) { return static_cast<int>(choice & 0xff); }
int math_of(int64_t choice) { return static_cast<int>(choice >> 8); }

int type_of(DType dtype) {
  return dtype == DType::Float16 ? cudnn::kHalf : dtype == DType::BFloat16 ? cudnn::kBFloat16 : cudnn::kFloat;
}

bool has_equal_lengths(const RecurrentStack& s) { return s.batch_sizes.back() == s.batch(); }

// The descriptors of a stack, the sizes of its memory, and where its parameters lie.
class Descriptors {
 public:
  Descriptors(const RecurrentStack& stack, int64_t choice, cudnn::Handle handle);
  Descriptors(const Descriptors&) = delete;
  ~Descriptors();

  cudnn::RecurrentDescriptor layers = nullptr;
  cudnn::SequenceDescriptor x = nullptr, y = nullptr;
  cudnn::TensorDescriptor h = nullptr, c = nullptr;
  size_t weight_bytes = 0, inference_workspace = 0, training_workspace = 0, reserve = 0;
  std::vector<int64_t> offsets;  // of the parameters, in elements
  bool has_gaps = false;         // some of the memory of the weights belongs to no parameter

 private:
  void describe(const RecurrentStack& stack, int64_t choice, cudnn::Handle handle);
  void find_parameters(const RecurrentStack& stack, cudnn::Handle handle);
  void destroy();
  cudnn::DropoutDescriptor no_dropout_ = nullptr;
};

Descriptors::Descriptors(const RecurrentStack& stack, int64_t choice, cudnn::Handle handle) {
  try {
    describe(stack, choice, handle);
    find_parameters(stack, handle);
  } catch (...) {
    destroy();
    throw;
  }
}

Descriptors::~Descriptors() { destroy(); }

void Descriptors::destroy() {
  const cudnn::RecurrentApi& api = cudnn::recurrent_api();
  if (layers) api.destroy(layers);
  if (x) api.destroy_sequence(x);
  if (y) api.destroy_sequence(y);
  if (h) api.destroy_tensor(h);
  if (c) api.destroy_tensor(c);
  if (no_dropout_) api.destroy_dropout(no_dropout_);
}

void Descriptors::describe(const RecurrentStack& s, int64_t choice, cudnn::Handle handle) {
  const cudnn::RecurrentApi& api = cudnn::recurrent_api();
  const int type = type_of(s.dtype), steps = static_cast<int>(s.batch_sizes.size()),
            batch = static_cast<int>(s.batch()), runs = static_cast<int>(s.layers * s.directions),
            units = static_cast<int>(s.units), state = static_cast<int>(s.state);
  const bool equal = has_equal_lengths(s);
  check(api.create_dropout(&no_dropout_), "cudnnCreateDropoutDescriptor");
  check(api.set_dropout(no_dropout_, handle, 0, nullptr, 0, 0), "cudnnSetDropoutDescriptor");
  check(api.create(&layers), "cudnnCreateRNNDescriptor");
  // Without biases the two of cuDNN are zeros, which all of its algorithms take.
  check(api.set(layers, algorithm_of(choice), static_cast<int>(s.mode), cudnn::kDoubleBias, s.directions == 2,
                cudnn::kLinearInput, type, cudnn::kFloat, math_of(choice), static_cast<int32_t>(s.input), units, state,
                static_cast<int32_t>(s.layers), no_dropout_, equal ? 1 : 0),
        "cudnnSetRNNDescriptor_v8");
  std::vector<int> lengths(static_cast<size_t>(batch), 0);
  for (int64_t size : s.batch_sizes)
    for (int64_t i = 0; i < size; ++i) ++lengths[static_cast<size_t>(i)];
  double padding = 0;
  const int layout = equal ? cudnn::kPadded : cudnn::kPacked;
  check(api.create_sequence(&x), "cudnnCreateRNNDataDescriptor");
  check(api.set_sequence(x, type, layout, steps, batch, static_cast<int>(s.input), lengths.data(), &padding),
        "cudnnSetRNNDataDescriptor");
  check(api.create_sequence(&y), "cudnnCreateRNNDataDescriptor");
  check(
      api.set_sequence(y, type, layout, steps, batch, state * static_cast<int>(s.directions), lengths.data(), &padding),
      "cudnnSetRNNDataDescriptor");
  const auto states = [&](cudnn::TensorDescriptor& made, int width) {
    const int sizes[] = {runs, batch, width}, strides[] = {batch * width, width, 1};
    check(api.create_tensor(&made), "cudnnCreateTensorDescriptor");
    check(api.set_tensor(made, type, 3, sizes, strides), "cudnnSetTensorNdDescriptor");
  };
  states(h, state);
  if (s.mode == kLstm) states(c, units);
  check(api.weight_bytes(handle, layers, &weight_bytes), "cudnnGetRNNWeightSpaceSize");
  check(api.temporary_bytes(handle, layers, cudnn::kTraining, x, &training_workspace, &reserve),
        "cudnnGetRNNTempSpaceSizes");
  size_t none = 0;
  check(api.temporary_bytes(handle, layers, cudnn::kInference, x, &inference_workspace, &none),
        "cudnnGetRNNTempSpaceSizes");
}

// The gates of one parameter must lie one after the other, which makes it one piece.
void Descriptors::find_parameters(const RecurrentStack& s, cudnn::Handle handle) {
  const cudnn::RecurrentApi& api = cudnn::recurrent_api();
  const int64_t width = static_cast<int64_t>(element_size(s.dtype)), gates = s.mode == kLstm  ? 4
                                                                             : s.mode == kGru ? 3
                                                                                              : 1;
  const Workspace memory(weight_bytes + 16, s.device.index());
  const auto* const base = static_cast<const unsigned char*>(memory.data());
  struct Tensors {
    cudnn::TensorDescriptor matrix = nullptr, bias = nullptr;
    ~Tensors() {
      if (matrix) cudnn::recurrent_api().destroy_tensor(matrix);
      if (bias) cudnn::recurrent_api().destroy_tensor(bias);
    }
  } is;
  check(api.create_tensor(&is.matrix), "cudnnCreateTensorDescriptor");
  check(api.create_tensor(&is.bias), "cudnnCreateTensorDescriptor");
  const auto elements = [&](cudnn::TensorDescriptor t) {
    int type = 0, dims = 0, sizes[4] = {}, strides[4] = {};
    check(api.get_tensor(t, 3, &type, &dims, sizes, strides), "cudnnGetTensorNdDescriptor");
    int64_t count = 1;
    for (int d = 0; d < std::min(dims, 3); ++d) count *= sizes[d];
    return count;
  };
  struct Found {
    int64_t matrix, bias;
  };
  // Of gates [first, first + count), each with a matrix of so many elements.
  const auto find = [&](int64_t run, int64_t first, int64_t count, int64_t each, bool biased) {
    Found found{-1, -1};
    for (int64_t g = 0; g < count; ++g) {
      void *matrix = nullptr, *bias = nullptr;
      check(api.weight_places(handle, layers, static_cast<int32_t>(run), weight_bytes, base,
                              static_cast<int32_t>(first + g), is.matrix, &matrix, is.bias, &bias),
            "cudnnGetRNNWeightParams");
      MICA_CHECK(matrix && (bias || !biased), "cuDNN has no weights for gate ", first + g, " of run ", run);
      const int64_t at = (static_cast<unsigned char*>(matrix) - base) / width,
                    bias_at = biased ? (static_cast<unsigned char*>(bias) - base) / width : 0;
      if (g == 0) found = {at, bias_at};
      MICA_CHECK(elements(is.matrix) == each && at == found.matrix + g * each,
                 "cuDNN lays the gates of a weight apart: gate ", first + g, " of run ", run);
      MICA_CHECK(!biased || (elements(is.bias) == s.units && bias_at == found.bias + g * s.units),
                 "cuDNN lays the gates of a bias apart: gate ", first + g, " of run ", run);
    }
    return found;
  };
  int64_t covered = 0;
  const auto add = [&](int64_t at, int64_t count) {
    offsets.push_back(at);
    covered += count;
  };
  for (int64_t run = 0; run < s.layers * s.directions; ++run) {
    const int64_t input = run < s.directions ? s.input : s.state * s.directions;
    const Found from_input = find(run, 0, gates, s.units * input, true);
    const Found from_state = find(run, gates, gates, s.units * s.state, true);
    add(from_input.matrix, gates * s.units * input);
    add(from_state.matrix, gates * s.units * s.state);
    if (s.has_biases) {
      add(from_input.bias, gates * s.units);
      add(from_state.bias, gates * s.units);
    }
    if (s.has_projection()) add(find(run, 2 * gates, 1, s.state * s.units, false).matrix, s.state * s.units);
  }
  has_gaps = covered * width != static_cast<int64_t>(weight_bytes);
}

struct Entry {
  std::shared_ptr<const Descriptors> made;  // null where cuDNN turned the stack down
};

// Under cudnn::lock(), with the device current.
Entry& entry_of(const RecurrentStack& s, int64_t choice, cudnn::Handle handle) {
  std::vector<int64_t> key{s.device.index(), static_cast<int64_t>(s.dtype),
                           s.mode,           s.input,
                           s.units,          s.state,
                           s.layers,         s.directions,
                           s.has_biases,     choice,
                           s.batch(),        static_cast<int64_t>(s.batch_sizes.size())};
  if (!has_equal_lengths(s)) key.insert(key.end(), s.batch_sizes.begin(), s.batch_sizes.end());
  static auto* entries = new std::map<std::vector<int64_t>, Entry>;
  if (const auto found = entries->find(key); found != entries->end()) return found->second;
  Entry entry;
  try {
    entry.made = std::make_shared<const Descriptors>(s, choice, handle);
  } catch (const Error& e) {
    last_refusal = e.what();
  }
  if (entries->size() >= kMostPlans) entries->clear();
  return entries->emplace(std::move(key), entry).first->second;
}

// The algorithm for a stack. Those that keep the weights in the multiprocessors take sequences of one length. That for
// few units takes fewer where gradients follow, and its sigmoid and tanh are right to 6e-6 only: it is for whoever
// allows TF32.
int algorithm_for(const RecurrentStack& s, bool training) {
  if (const int given = given_algorithm; given >= 0) return given;
  if (s.has_projection() || !has_equal_lengths(s)) return cudnn::kStandard;
  const bool has_gates = s.mode >= kLstm;
  if (s.dtype == DType::Float32)
    return flag(Flag::ConvolutionTf32) && s.units <= (has_gates  ? training ? 128 : 192
                                                      : training ? 256
                                                                 : 384)
               ? cudnn::kPersistStaticSmall
               : cudnn::kStandard;
  const bool even = s.units % 128 == 0 && s.input % 128 == 0 && s.batch() % 8 == 0;
  if (s.dtype == DType::Float16 && even && s.mode != kGru && s.layers == 1 && s.directions == 1 && s.units <= 1024 &&
      s.batch() <= 128 && (has_gates || s.batch() < 96 || s.units < 896) &&
      properties(s.device.index()).multiProcessorCount >= 98)
    return cudnn::kPersistStatic;
  return cudnn::kStandard;
}

// Whether cuDNN was measured to be faster than our kernels: by a persistent algorithm, and where the steps of 16-bit
// layers are large. Otherwise the host's time decides, of which our kernels take less.
bool is_worth_it(const RecurrentStack& s, bool training) {
  const int algorithm = algorithm_for(s, training);
  if (algorithm == cudnn::kPersistStaticSmall) return true;
  if (algorithm == cudnn::kPersistStatic) return s.mode == kLstm;
  return s.dtype != DType::Float32 && s.mode >= kLstm && has_equal_lengths(s) && s.batch() * s.units >= 128 * 1024;
}

bool plan(const RecurrentStack& s, bool training, RecurrentPlan* plan) {
  if (!flag(Flag::CudnnRecurrent) || flag(Flag::Deterministic)) return false;
  if (s.dtype != DType::Float32 && s.dtype != DType::Float16 && s.dtype != DType::BFloat16) return false;
  if (!flag(Flag::CudnnRecurrentAlways) && !is_worth_it(s, training)) return false;
  if (!cudnn::available()) return false;
  const int device = s.device.index();
  DeviceGuard guard(device);
  const std::lock_guard lock(cudnn::lock());
  const int math = s.dtype != DType::Float32     ? cudnn::kTensorMath
                   : flag(Flag::ConvolutionTf32) ? cudnn::kDefaultMath
                                                 : cudnn::kFmaMath;
  const cudnn::Handle handle = cudnn::handle(device, current_stream(device));
  std::shared_ptr<const Descriptors> made;
  // A stack that is turned down is tried in the plainest way. 16-bit floats are multiplied without conversion in any
  // case.
  for (const int64_t choice : {choice_of(algorithm_for(s, training), math), choice_of(cudnn::kStandard, math),
                               choice_of(cudnn::kStandard, s.dtype == DType::Float32 ? math : cudnn::kDefaultMath)}) {
    plan->choice = choice;
    made = entry_of(s, choice, handle).made;
    if (made) break;
  }
  if (!made) return false;
  plan->weights = static_cast<int64_t>(made->weight_bytes / element_size(s.dtype));
  plan->reserve = training ? static_cast<int64_t>(made->reserve) : 0;
  plan->offsets = made->offsets;
  return true;
}

void* or_null(const TensorView& t) { return t.defined() ? t.data : nullptr; }

// All parameters in cuDNN's order, for one call.
class Weights {
 public:
  Weights(const Descriptors& d, TensorViewList parameters, int device, cudaStream_t stream)
      : memory_(d.weight_bytes + 16, device) {
    if (d.has_gaps) MICA_CUDA(cudaMemsetAsync(memory_.data(), 0, d.weight_bytes, stream));
    gather_weights(memory_.data(), parameters, d.offsets, device);
  }
  const void* data() const { return memory_.data(); }

 private:
  Workspace memory_;
};

bool forward(const RecurrentStack& s, const RecurrentPlan& plan, const RecurrentForward& call) {
  const int device = s.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  const std::lock_guard lock(cudnn::lock());
  const cudnn::Handle handle = cudnn::handle(device, stream);
  Entry& entry = entry_of(s, plan.choice, handle);
  const std::shared_ptr<const Descriptors> d = entry.made;
  if (!d) return false;
  const bool training = call.reserve.defined();
  const size_t bytes = training ? d->training_workspace : d->inference_workspace;
  const Weights weights(*d, call.parameters, device, stream);
  const Workspace workspace(bytes + 16, device);
  const int status = cudnn::recurrent_api().forward(
      handle, d->layers, training ? cudnn::kTraining : cudnn::kInference, nullptr, d->x, call.data.data, d->y,
      call.output.data, d->h, call.hx.data, call.hy.data, d->c, or_null(call.cx), or_null(call.cy), d->weight_bytes,
      weights.data(), bytes, workspace.data(), training ? d->reserve : 0, or_null(call.reserve));
  if (status / 1000 * 1000 == cudnn::kNotSupported) {
    last_refusal = cat("cudnnRNNForward does not support algorithm ", algorithm_of(plan.choice));
    entry.made = nullptr;
    return false;
  }
  check(status, "cudnnRNNForward");
  ++forwards;
  return true;
}

void backward(const RecurrentStack& s, const RecurrentPlan& plan, const RecurrentBackward& call) {
  const int device = s.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  const std::lock_guard lock(cudnn::lock());
  const cudnn::Handle handle = cudnn::handle(device, stream);
  const std::shared_ptr<const Descriptors> d = entry_of(s, plan.choice, handle).made;
  MICA_CHECK(d, "cuDNN turns down the gradients of a recurrent layer that it has run: ", last_refusal);
  const cudnn::RecurrentApi& api = cudnn::recurrent_api();
  const Weights weights(*d, call.parameters, device, stream);
  const Workspace workspace(d->training_workspace + 16, device);
  // The gradients of the gates, which those of the weights are made of, go from the first call to the second.
  check(api.backward_data(handle, d->layers, nullptr, d->y, call.output.data, call.grad_output.data, d->x,
                          call.grad_data.data, d->h, call.hx.data, or_null(call.grad_hy), or_null(call.grad_hx), d->c,
                          or_null(call.cx), or_null(call.grad_cy), or_null(call.grad_cx), d->weight_bytes,
                          weights.data(), d->training_workspace, workspace.data(), d->reserve, call.reserve.data),
        "cudnnRNNBackwardData_v8");
  if (call.grad_weights.defined()) {
    MICA_CUDA(cudaMemsetAsync(call.grad_weights.data, 0, d->weight_bytes, stream));
    check(api.backward_weights(handle, d->layers, cudnn::kAddGradient, nullptr, d->x, call.data.data, d->h,
                               call.hx.data, d->y, call.output.data, d->weight_bytes, call.grad_weights.data,
                               d->training_workspace, workspace.data(), d->reserve, call.reserve.data),
          "cudnnRNNBackwardWeights_v8");
  }
  ++backwards;
}

}  // namespace

const RecurrentLibrary& library() {
  static constexpr RecurrentLibrary table{plan, forward, backward};
  return table;
}

void give_algorithm(int algorithm) { given_algorithm = algorithm; }

std::string library_facts() {
  const std::lock_guard lock(cudnn::lock());
  std::string why;
  for (char c : last_refusal) why += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return cat("{\"forward\": ", forwards.load(), ", \"backward\": ", backwards.load(), ", \"refused\": \"", why, "\"}");
}

}  // namespace mica::cuda::recurrent
