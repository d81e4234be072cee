// Programs that torch.export wrote (.pt2 archives), run without Python.
//
//   const auto program = mica::Program::load("model.pt2");
//   const std::vector<Tensor> results = program({x});
//
// A program is a value; copies are the same program. It runs without gradients, from any thread, and several threads
// may run it at once; one that changes its own buffers is run by one thread at a time. Kernels are put off and run
// together, as in a function of torch.compile (docs/compiler.md).
//
// The code is in a library of its own: link mica::program (libmica_program.so).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mica/serialize.h"
#include "mica/tensor.h"

namespace mica {

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
  // Whether kernels are put off; they are, unless this says otherwise.
  void compile(bool on);

 private:
  struct State;
  explicit Program(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace mica
