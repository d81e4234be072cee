// Training on a GPU from C++: batches travel on a stream of their own while the last one is computed, and the step
// itself is a graph that is recorded once and queued as a whole. Exits with 0 if it has learned, or if there is no GPU.
#include <mica/cuda.h>
#include <mica/mica.h>
#include <mica/nn.h>
#include <mica/optim.h>

#include <chrono>
#include <iostream>

#include "arguments.h"

namespace nn = mica::nn;
namespace cuda = mica::cuda;
using mica::Tensor;

// Points in a plane, and whether each lies on the light or the dark squares of a chessboard.
Tensor points(int64_t count) { return mica::rand({count, 2}) * 4; }
Tensor squares(const Tensor& xy) { return xy.floor().sum(1).remainder(2).to(mica::DType::Int64); }

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char** argv) {
  const Arguments options(argc, argv, {{"steps", "2000"}, {"batch", "1024"}, {"seed", "0"}});
  if (!cuda::is_available()) {
    std::cout << "there is no GPU here\n";
    return 0;
  }
  const int64_t steps = options.number("steps"), batch = options.number("batch");
  mica::manual_seed(static_cast<uint64_t>(options.number("seed")));
  const mica::Device gpu = cuda::device();

  nn::Sequential model{nn::Linear(2, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(), nn::Linear(128, 2)};
  model->to(gpu);
  mica::optim::AdamW optimizer(model->parameters(), {.lr = 3e-3, .capturable = true});

  // The tensors that the graph reads, and those into which the next batch is copied meanwhile.
  const mica::TensorOptions numbers(gpu), classes = numbers.dtype(mica::DType::Int64);
  const Tensor x = mica::zeros({batch, 2}, numbers), next_x = mica::zeros({batch, 2}, numbers);
  const Tensor y = mica::zeros({batch}, classes), next_y = mica::zeros({batch}, classes);
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    loss = nn::functional::cross_entropy(model(x), y);
    loss.backward();
    optimizer.step();
  };

  const auto host_x = cuda::pin_memory(points(batch)), host_y = cuda::pin_memory(squares(host_x));
  const cuda::Stream copies;
  cuda::Event arrived, taken;
  const auto fetch = [&] {  // the next batch: drawn on the CPU and copied, beside what the GPU does
    arrived.synchronize();  // the last copy has read the pinned memory
    const Tensor drawn = points(batch);
    host_x.copy_(drawn);
    host_y.copy_(squares(drawn));
    const cuda::StreamGuard guard(copies);
    copies.wait(taken);
    next_x.copy_(host_x, true);
    next_y.copy_(host_y, true);
    arrived.record(copies);
  };
  const auto train = [&](int64_t count, const auto& run) {
    const double start = seconds();
    for (int64_t i = 0; i < count; ++i) {
      fetch();
      cuda::Stream::current().wait(arrived);
      x.copy_(next_x);
      y.copy_(next_y);
      taken.record();
      run();
    }
    cuda::synchronize();
    return (seconds() - start) / static_cast<double>(std::max<int64_t>(count, 1)) * 1e6;
  };

  const int64_t warm = std::min<int64_t>(steps, 100);
  const double eager = train(warm, step);
  const double first = loss.item<double>();
  cuda::Graph graph;
  optimizer.zero_grad();
  graph.capture(step);
  const double replayed = train(steps - warm, [&] { graph.replay(); });
  const double last = loss.item<double>();

  const Tensor unseen = points(4096);
  const Tensor told = model(unseen.to(gpu)).argmax(1).cpu();
  const double right = (told == squares(unseen)).to(mica::DType::Float32).mean().item<double>();
  std::cout << "a step takes " << eager << " us, as a graph " << replayed << " us\n"
            << "loss " << first << " after " << warm << " steps, " << last << " after " << steps << "; " << 100 * right
            << "% of unseen points are right\n";
  return steps < 1000 || right > 0.9 ? 0 : 1;
}
