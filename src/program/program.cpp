#include "mica/program.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "amp/off.h"
#include "io/archive.h"
#include "io/storage_view.h"
#include "mica/core/recording.h"
#include "mica/error.h"
#include "mica/ops.h"
#include "program/graph_reader.h"
#include "program/input_sizes.h"

namespace mica {

using program::damaged;
using program::Json;
using program::member;
using program::member_if;
using program::only;
using program::text_member;
using program::Value;

namespace {

constexpr io::JsonLimits kGraphs{.deepest = 128, .reals = true};
constexpr int64_t kSchemaVersion = 8;

// ---- what lies in the archive

struct Weight {
  std::string name;
  Tensor tensor;
  bool is_parameter;
};

using Weights = std::vector<Weight>;

Json read_json(const io::ArchiveReader& archive, const std::string& name) {
  MICA_CHECK(archive.record(name).method == io::Record::kStored, "the record ", name, " of ", archive.file(),
             " is compressed, which torch's archives are not");
  return io::parse_json(archive.read(name), kGraphs);
}

std::vector<int64_t> numbers_of(const Json& list) {
  std::vector<int64_t> numbers;
  for (const Json& each : list.items) {
    const auto [kind, value] = only(each);
    if (kind != "as_int") damaged("a weight has an open size");
    numbers.push_back(program::whole_number(value));
  }
  return numbers;
}

void read_weights(const io::ArchiveReader& archive, const std::string& folder, const std::string& config,
                  Weights& into) {
  if (!archive.has(folder + config)) return;
  std::unordered_map<std::string, Storage> storages;
  const Json document = read_json(archive, folder + config);
  for (const auto& [name, entry] : member(document, "config", Json::Kind::Object).entries) {
    const Json* const pickled = member_if(entry, "use_pickle");
    const Json* const meta = member_if(entry, "tensor_meta");
    MICA_CHECK_KIND(meta && !(pickled && program::truth(*pickled)), NotImplemented, name,
                    " is pickled in the archive, and Mica runs no code of files");
    const std::string& file = text_member(entry, "path_name");
    Storage& storage = storages[file];
    if (!storage) {
      const io::Record& record = archive.record(folder + file);
      MICA_CHECK(record.method == io::Record::kStored, "the record ", file, " of ", archive.file(), " is compressed");
      storage = StorageImpl::allocate(record.nbytes, kCPU);
      if (record.nbytes) archive.read(folder + file, storage->data());
    }
    const auto offset = only(member(*meta, "storage_offset", Json::Kind::Object));
    const Tensor tensor =
        io::view_storage(storage, program::dtype_of_number(member(*meta, "dtype", Json::Kind::Number)),
                         program::whole_number(offset.value), numbers_of(member(*meta, "sizes", Json::Kind::Array)),
                         numbers_of(member(*meta, "strides", Json::Kind::Array)));
    const Json* const parameter = member_if(entry, "is_param");
    into.push_back({name, tensor, parameter && program::truth(*parameter)});
  }
}

// ---- what goes in and comes out

struct Input {
  enum class Kind : uint8_t { Tensor, Number, Weight, Constant };
  Kind kind;
  size_t weight = 0;  // which parameter, buffer or constant
  program::InputSizes sizes;
  std::string name;
};

struct Output {
  int64_t written_to = -1;  // the input that the value is written to; -1: it is a result
  std::string name;
};

Tensor tensor_of(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return *tensor;
  if (const auto* number = std::get_if<int64_t>(&value)) return scalar_tensor(*number, DType::Int64);
  if (const auto* number = std::get_if<double>(&value)) return scalar_tensor(*number, DType::Float64);
  if (const auto* truth = std::get_if<bool>(&value)) return scalar_tensor(*truth, DType::Bool);
  return {};
}

}  // namespace

// ---- running

namespace program {

std::vector<Value> run(const Graph& graph, std::vector<Value> inputs, std::optional<Device> device) {
  MICA_CHECK(inputs.size() == graph.inputs.size(), "a graph of the program takes ", graph.inputs.size(),
             " values, and is given ", inputs.size());
  std::vector<Value> values(graph.slots);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (graph.inputs[i] != kNone) values[static_cast<size_t>(graph.inputs[i])] = std::move(inputs[i]);
  for (const Step& step : graph.steps) {
    try {
      Call call(step, values, device);
      step.op->function(call);
      call.finish();
    } catch (const Error& error) {
      fail(error.kind(), cat(error.what(), "\n(in the program's call of ", step.target, ")"));
    }
    for (const int32_t slot : step.last_used_here) values[static_cast<size_t>(slot)] = Value();
  }
  Step last;
  last.target = "its outputs";
  last.operands = graph.outputs;
  std::vector<Value> results;
  Call call(last, values, device);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (std::holds_alternative<std::monostate>(graph.outputs[i])) {
      results.emplace_back();
      continue;
    }
    for (Value& value : call.values(i)) results.push_back(std::move(value));
  }
  return results;
}

}  // namespace program

struct Program::State {
  program::Graph graph;
  std::vector<Input> inputs;  // the inputs of the graph
  std::vector<Output> outputs;
  Weights weights;
  std::map<std::string, program::Range> ranges;
  std::vector<std::string> input_names, output_names;
  std::optional<Device> device;
  bool changes_state = false;
  std::atomic<bool> compiled = true;
  std::mutex running;  // held while a program runs that changes something that outlives a call

  void read(const Json& document);
  void read_inputs(const Json& module, std::unordered_set<std::string>& of_state);
  void read_outputs(const Json& module);
  size_t weight_called(const std::string& name) const;
  size_t input_called(const std::string& name, Input::Kind kind) const;
  std::vector<Value> values(const std::vector<Tensor>& given) const;
};

size_t Program::State::weight_called(const std::string& name) const {
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i].name == name) return i;
  damaged(cat("it has no tensor ", name));
}

size_t Program::State::input_called(const std::string& name, Input::Kind kind) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].kind == kind &&
        (kind == Input::Kind::Weight ? weights[inputs[i].weight].name : inputs[i].name) == name)
      return i;
  damaged(cat("a result is written to ", name, ", which is no input"));
}

void Program::State::read_inputs(const Json& module, std::unordered_set<std::string>& of_state) {
  const Json& tensors = member(member(module, "graph", Json::Kind::Object), "tensor_values", Json::Kind::Object);
  const Json& signature = member(module, "signature", Json::Kind::Object);
  for (const Json& spec : member(signature, "input_specs", Json::Kind::Array).items) {
    const auto [kind, value] = only(spec);
    Input input{Input::Kind::Constant, 0, {}, {}};
    if (kind == "parameter" || kind == "buffer" || kind == "tensor_constant") {
      input.kind = Input::Kind::Weight;
      input.weight = weight_called(text_member(value, kind + "_name"));
      input.name = text_member(member(value, "arg", Json::Kind::Object), "name");
      of_state.insert(input.name);
    } else if (kind == "user_input") {
      const auto [inner, argument] = only(member(value, "arg", Json::Kind::Object));
      if (inner == "as_tensor") {
        input.kind = Input::Kind::Tensor;
        input.name = text_member(argument, "name");
        input.sizes = program::InputSizes(input.name, member(tensors, input.name, Json::Kind::Object));
      } else if (inner.starts_with("as_sym_") && member_if(argument, "as_name")) {
        input.kind = Input::Kind::Number;
        input.name = text_member(argument, "as_name");
      }
      if (input.kind != Input::Kind::Constant) input_names.push_back(input.name);
    } else if (kind != "constant_input") {
      fail(ErrorKind::NotImplemented, cat("Mica reads no inputs of the kind ", kind, " from .pt2 archives"));
    }
    inputs.push_back(std::move(input));
  }
}

void Program::State::read_outputs(const Json& module) {
  const Json& signature = member(module, "signature", Json::Kind::Object);
  for (const Json& spec : member(signature, "output_specs", Json::Kind::Array).items) {
    const auto [kind, value] = only(spec);
    const auto& argument = member(value, "arg", Json::Kind::Object);
    Output output;
    if (kind == "user_output") {
      const auto [inner, what] = only(argument);
      MICA_CHECK_KIND(inner != "as_string", NotImplemented, "a program that returns a string is not run from C++");
      const Json* const name =
          what.kind == Json::Kind::Object ? what.find(inner == "as_tensor" ? "name" : "as_name") : nullptr;
      output.name = name ? name->text : "";
      output_names.push_back(output.name);
    } else if (kind == "buffer_mutation" || kind == "parameter_mutation") {
      const std::string& name = text_member(value, kind == "buffer_mutation" ? "buffer_name" : "parameter_name");
      output.written_to = static_cast<int64_t>(input_called(name, Input::Kind::Weight));
      changes_state = true;
    } else if (kind == "user_input_mutation") {
      output.written_to =
          static_cast<int64_t>(input_called(text_member(value, "user_input_name"), Input::Kind::Tensor));
    } else {
      fail(ErrorKind::NotImplemented, cat("Mica reads no outputs of the kind ", kind, " from .pt2 archives"));
    }
    outputs.push_back(std::move(output));
  }
}

void Program::State::read(const Json& document) {
  const auto& version = member(document, "schema_version", Json::Kind::Object);
  const int64_t major = program::whole_number(member(version, "major", Json::Kind::Number));
  MICA_CHECK(major == kSchemaVersion, "the archive's schema is ", major, ", and Mica reads ", kSchemaVersion);
  const Json& module = member(document, "graph_module", Json::Kind::Object);
  std::unordered_set<std::string> of_state;
  read_inputs(module, of_state);
  read_outputs(module);
  ranges = program::read_ranges(document);
  program::GraphReader reader(std::move(of_state));
  graph = reader.read(member(module, "graph", Json::Kind::Object));
  changes_state |= reader.changes_state();
  if (inputs.size() != graph.inputs.size() || outputs.size() != graph.outputs.size())
    damaged("its signature is not its graph's");
}

Program Program::load(const std::string& path, Device device) {
  auto state = std::make_shared<State>();
  const io::ArchiveReader archive(std::make_unique<io::FileSource>(path), path);
  std::string model;
  for (const std::string& name : archive.names()) {
    if (!name.starts_with("models/") || !name.ends_with(".json")) continue;
    if (model.empty() || name == "models/model.json") model = name.substr(7, name.size() - 7 - 5);
  }
  MICA_CHECK(!model.empty(), path,
             " holds no graph: it is no .pt2 archive of torch.export, or a package of machine code "
             "for torch (AOTInductor), which Mica does not run");
  try {
    read_weights(archive, "data/weights/", model + "_weights_config.json", state->weights);
    read_weights(archive, "data/constants/", model + "_constants_config.json", state->weights);
    state->read(read_json(archive, cat("models/", model, ".json")));
  } catch (const Error& error) {
    fail(error.kind(), cat(path, ": ", error.what()));
  }
  const Program program(std::move(state));
  return device == kCPU ? program : program.to(device);
}

std::vector<Value> Program::State::values(const std::vector<Tensor>& given) const {
  MICA_CHECK(given.size() == input_names.size(), "the program takes ", input_names.size(), " inputs, and is given ",
             given.size());
  std::map<std::string, int64_t> symbols;
  std::vector<Value> made;
  made.reserve(inputs.size());
  size_t next = 0;
  for (const Input& input : inputs) {
    switch (input.kind) {
      case Input::Kind::Weight:
        made.emplace_back(weights[input.weight].tensor);
        break;
      case Input::Kind::Constant:
        made.emplace_back();
        break;
      case Input::Kind::Tensor:
        input.sizes.check(given[next], symbols, ranges);
        made.emplace_back(given[next++]);
        break;
      case Input::Kind::Number: {
        const Tensor& number = given[next++];
        MICA_CHECK(number.defined() && number.numel() == 1, "the input ", input.name, " of the program is a number");
        const Scalar value = number.item();
        if (value.is_bool()) {
          made.emplace_back(value.to<bool>());
        } else {
          made.push_back(value.is_floating() ? Value(value.to<double>()) : Value(value.to<int64_t>()));
        }
        break;
      }
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].kind == Input::Kind::Tensor) inputs[i].sizes.check_expressions(std::get<Tensor>(made[i]), symbols);
  return made;
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& given) const {
  State& state = *state_;
  const NoGradGuard without_gradients;
  // The program has the casts with which it was exported; those of the caller are off.
  const autocast::Off of_the_caller;
  std::unique_lock<std::mutex> alone(state.running, std::defer_lock);
  if (state.changes_state) alone.lock();
  const std::vector<Value> inputs = state.values(given);
  recording::Scope scope(state.compiled);
  const std::vector<Value> made = program::run(state.graph, inputs, state.device);
  std::vector<Tensor> results;
  MICA_CHECK(made.size() == state.outputs.size(), "the program returns ", made.size(), " values instead of ",
             state.outputs.size());
  for (size_t i = 0; i < made.size(); ++i) {
    const int64_t target = state.outputs[i].written_to;
    if (target < 0) {
      results.push_back(tensor_of(made[i]));
      continue;
    }
    const auto* const value = std::get_if<Tensor>(&made[i]);
    MICA_CHECK(value, "the program writes a value that is not a tensor to one of its inputs");
    const Tensor& changed = std::get<Tensor>(inputs[static_cast<size_t>(target)]);
    if (!changed.is_same(*value)) changed.copy_(*value);
  }
  scope.end();
  return results;
}

const std::vector<std::string>& Program::input_names() const { return state_->input_names; }
const std::vector<std::string>& Program::output_names() const { return state_->output_names; }
void Program::compile(bool on) { state_->compiled = on; }

NamedTensors Program::parameters() const {
  NamedTensors found;
  for (const Weight& weight : state_->weights)
    if (weight.is_parameter) found.emplace_back(weight.name, weight.tensor);
  return found;
}

NamedTensors Program::buffers() const {
  NamedTensors found;
  for (const Weight& weight : state_->weights)
    if (!weight.is_parameter) found.emplace_back(weight.name, weight.tensor);
  return found;
}

Program Program::to(Device device) const {
  auto moved = std::make_shared<State>();
  moved->graph = state_->graph;
  moved->inputs = state_->inputs;
  moved->outputs = state_->outputs;
  moved->ranges = state_->ranges;
  moved->input_names = state_->input_names;
  moved->output_names = state_->output_names;
  moved->changes_state = state_->changes_state;
  moved->compiled = state_->compiled.load();
  moved->device = device;
  std::unordered_map<const void*, Tensor> copies;  // tensors that were one stay one
  for (const Weight& weight : state_->weights) {
    Tensor& copy = copies[weight.tensor.impl()];
    if (!copy.defined()) copy = mica::to(weight.tensor, TensorOptions(device), false, true);
    moved->weights.push_back({weight.name, copy, weight.is_parameter});
  }
  return Program(std::move(moved));
}

}  // namespace mica
