// Runs a program that torch.export wrote, without Python:
//
//   run_program --program model.pt2 --inputs inputs.pt --save results.pt
//
// where Python had made the first two: torch.export.save(torch.export.export(model, (x,)), "model.pt2") and
// torch.save([x], "inputs.pt"). With --threads, so many threads run it at once and have to agree.
#include <mica/mica.h>
#include <mica/program.h>
#include <mica/serialize.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "arguments.h"

// Whether two results are equal, NaN included.
static bool same(const mica::Tensor& a, const mica::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return mica::equal(a, b) || (a.is_floating_point() && mica::allclose(a, b, 0, 0, true));
}

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {{"program", "model.pt2"},
                             {"inputs", "inputs.pt"},
                             {"save", ""},
                             {"device", "cpu"},
                             {"runs", "1"},
                             {"threads", "1"},
                             {"compile", "1"}});
  try {
    mica::Program program = mica::Program::load(arguments.text("program"), mica::Device(arguments.text("device")));
    program.compile(arguments.number("compile") != 0);
    const std::vector<mica::Tensor> inputs = mica::load(arguments.text("inputs")).as_tensors();
    std::vector<mica::Tensor> results;
    double best = 1e30;
    for (int64_t i = 0; i < arguments.number("runs"); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      results = program(inputs);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::vector<std::thread> threads;
    std::vector<std::vector<mica::Tensor>> others(static_cast<size_t>(arguments.number("threads") - 1));
    for (auto& other : others) threads.emplace_back([&] { other = program(inputs); });
    for (auto& thread : threads) thread.join();
    for (const auto& other : others)
      for (size_t i = 0; i < results.size(); ++i)
        if (!same(other[i], results[i])) throw mica::Error(mica::ErrorKind::Runtime, "the threads disagree");

    for (size_t i = 0; i < results.size(); ++i) {
      std::cout << program.output_names()[i] << ":";
      if (results[i].defined())
        for (const int64_t size : results[i].sizes()) std::cout << " " << size;
      else
        std::cout << " None";
      std::cout << "\n";
    }
    std::cout << "the fastest of " << arguments.text("runs") << " runs took " << best * 1e3 << " ms\n";
    if (!arguments.text("save").empty()) {
      std::vector<mica::Tensor> defined;
      for (const auto& result : results)
        if (result.defined()) defined.push_back(result);
      mica::save(defined, arguments.text("save"));
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
