// Programs that torch.export wrote (.pt2 archives), run without Python.
//
//   const auto program = mica::Program::load("model.pt2");
//   const std::vector<Tensor> results = program({x});
//
// A program is a value; copies are the same program. It runs without gradients, from any thread, and several threads
// may run it at once; one that changes its own buffers is run by one thread at a time. Kernels are put off and run
// together, as in a function of torch.compile (docs/compiler_kernels.md).
//
// The code is in a library of its own: link mica::program (libmica_program.so).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mica/serialize.h"
#include "mica/tensor.h"

namespace mica {

// The arguments of an operator that a program defines, by their places in its schema. An argument that a call leaves
// out has its default.
class OperatorArguments {
 public:
  explicit OperatorArguments(void* call) : call_(call) {}
  Tensor tensor(size_t i) const;  // undefined where it is None
  std::vector<Tensor> tensors(size_t i) const;
  int64_t integer(size_t i) const;
  std::vector<int64_t> integers(size_t i) const;
  double real(size_t i) const;
  bool boolean(size_t i) const;
  std::string text(size_t i) const;

 private:
  void* call_;
};

// Lets programs that are loaded from now on call an operator of torch.library, which is a function of C++ here:
//   define_operator("mylib::scale(Tensor x, float factor=2.0) -> Tensor",
//                   [](const OperatorArguments& a) { return std::vector{a.tensor(0) * a.real(1)}; });
// The function returns the results in their order; it may be called by several threads at once. Throws Error if the
// schema cannot be read or the name is defined already.
using OperatorFunction = std::function<std::vector<Tensor>(const OperatorArguments&)>;
void define_operator(const std::string& schema, OperatorFunction function);

class Program {
 public:
  // Reads an archive. Nothing in it is run. Throws Error if it is damaged, and names the first operator in it that Mica
  // does not have.
  static Program load(const std::string& path, Device device = kCPU);

  // Inputs in the order of input_names(); a number is a tensor of no dimensions. Throws Error if an input is not of the
  // dtype and sizes that the program was exported for. A number among the results is a tensor of no dimensions, and
  // None is an undefined one.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const { return run(inputs); }

  const std::vector<std::string>& input_names() const;
  const std::vector<std::string>& output_names() const;
  NamedTensors parameters() const;  // the tensors themselves: what is written to them counts from the next run on
  NamedTensors buffers() const;     // constants of the program too

  // The program with its own copies of tensors on another device. What it makes, it makes there.
  Program to(Device device) const;
  // Whether kernels are put off and run together; on by default.
  void compile(bool on);

 private:
  struct State;
  explicit Program(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace mica
