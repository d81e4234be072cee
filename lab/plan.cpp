// The planner: searches precision, checkpointing, batch and sharding until a model fits, and writes the code for it.
#include <algorithm>
#include <cmath>

#include "instruments.h"
#include "model_memory.h"

namespace mica::lab {

namespace {

struct Precision {
  const char* name;
  double bits, state_bytes;
  bool autocast, training;
  int cost;  // what it gives up, for the order
};
constexpr Precision kPrecisions[] = {{"float32", 32, 4, false, true, 0},
                                     {"autocast to bfloat16", 32, 4, true, true, 4},
                                     {"bfloat16 throughout", 16, 2, false, true, 12},
                                     {"float32", 32, 0, false, false, 0},
                                     {"bfloat16", 16, 0, false, false, 4},
                                     {"int8", 8, 0, false, false, 12}};

struct Way {
  MemorySetting setting;
  const Precision* precision;
  double bytes;
  int cost;
};

std::string code_of(const Way& w, const std::string& optimizer) {
  const MemorySetting& s = w.setting;
  const bool throughout = w.precision->bits == 16;
  std::string text = "import torch\n";
  if (!s.training) {
    text += "\nmodel = Model()\n";
    if (w.precision->bits == 8)
      text += "model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)\n";
    if (throughout) text += "model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)\n";
    return text + "with torch.inference_mode():\n    y = model(x)\n";
  }
  const std::string rule = optimizer == "SGD with momentum" ? "SGD" : optimizer;
  const std::string momentum = optimizer == "SGD with momentum" ? ", momentum=0.9" : "";
  if (s.shards > 1)
    text += cat("import torch.distributed as dist  # torchrun --nproc-per-node ", s.shards,
                " train.py\nfrom torch.distributed.optim import ZeroRedundancyOptimizer\n"
                "from torch.nn.parallel import DistributedDataParallel\n");
  if (s.checkpointing) text += "from torch.utils.checkpoint import checkpoint\n";
  text += s.shards > 1 ? "\ndist.init_process_group()\nmodel = Model()\n" : "\nmodel = Model()\n";
  if (throughout) text += "model = model.to(torch.bfloat16)\n";
  if (s.shards > 1) {
    text += "model = DistributedDataParallel(model, gradient_as_bucket_view=True)\n";
    text +=
        cat("optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.", rule, ", lr=1e-4", momentum, ")\n");
  } else {
    text += cat("optimizer = torch.optim.", rule, "(model.parameters(), lr=1e-4", momentum, ")\n");
  }
  text += cat("loader = torch.utils.data.DataLoader(data, batch_size=", static_cast<int64_t>(s.batch), ")",
              s.shards > 1 ? "  # of each process\n" : "\n");
  if (s.checkpointing)
    text += "# in the model's forward, for each layer:  x = checkpoint(layer, x, use_reentrant=False)\n";
  text += "for x, y in loader:\n";
  if (w.precision->autocast) {
    text += "    with torch.autocast(x.device.type, dtype=torch.bfloat16):\n        loss = criterion(model(x), y)\n";
  } else {
    text +=
        throughout ? "    loss = criterion(model(x.to(torch.bfloat16)), y)\n" : "    loss = criterion(model(x), y)\n";
  }
  return text + "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n";
}

Json way_json(const ModelShape& model, const Way& w, const std::string& optimizer) {
  Json parts = Json::array();
  for (const auto& [name, bytes] : memory_parts(model, w.setting)) parts.push_back({{"name", name}, {"bytes", bytes}});
  return {{"precision", w.precision->name}, {"batch", w.setting.batch}, {"checkpointing", w.setting.checkpointing},
          {"shards", w.setting.shards},     {"bytes", w.bytes},         {"parts", parts},
          {"code", code_of(w, optimizer)}};
}

}  // namespace

Json plan(const Json& question) {
  const ModelShape model = model_shape(question);
  const bool training = question.value("training", true);
  const std::string optimizer = question.value("optimizer", "AdamW");
  const double memory = question.value("memory", 24e9), wanted = question.value("batch", 8.0);
  const auto devices = question.value("devices", int64_t{1});
  MemorySetting s;
  s.training = training;
  s.optimizer_numbers = optimizer_numbers(optimizer);
  s.length = question.value("length", 2048.0);
  s.fused_attention = question.value("fused_attention", true);
  s.master = false;  // weights of 16 bits throughout have none; autocast keeps weights of 32
  MICA_CHECK(memory > 0 && s.length >= 0, "memory is positive and the length is not negative");
  MICA_CHECK(wanted >= 1 && wanted <= 1 << 20, "the batch is between 1 and 2^20");
  MICA_CHECK(devices >= 1 && devices <= 1024, "there are 1 to 1024 devices");
  std::vector<Way> ways;
  int64_t tried = 0;
  double nearest = INFINITY;  // of those that do not fit
  for (const Precision& p : kPrecisions) {
    if (p.training != training) continue;
    s.bits = p.bits;
    s.autocast = p.autocast;
    s.optimizer_bytes = p.state_bytes;
    for (s.shards = 1; s.shards <= (training ? devices : 1); s.shards *= 2)
      for (const bool checkpointing : {false, true}) {
        if (checkpointing && !(training && model.is_transformer())) continue;
        s.checkpointing = checkpointing;
        // The batch is shared out among the devices, and halved until it fits.
        int halved = 0;
        for (s.batch = std::ceil(wanted / s.shards);; s.batch = std::floor(s.batch / 2), ++halved) {
          ++tried;
          const double bytes = sum_of(memory_parts(model, s));
          if (bytes <= memory) {
            // What is given up: devices count most, then the batch, then the time of computing again, then digits.
            const int cost = 1000 * static_cast<int>(std::log2(s.shards)) + 100 * halved + 30 * checkpointing + p.cost;
            ways.push_back({s, &p, bytes, cost});
            break;
          }
          nearest = std::min(nearest, bytes);
          if (s.batch <= 1) break;
        }
      }
  }
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.cost < b.cost; });
  Json list = Json::array();
  for (size_t i = 0; i < ways.size() && i < 5; ++i) list.push_back(way_json(model, ways[i], optimizer));
  return {{"ways", list},
          {"tried", tried},
          {"memory", memory},
          {"nearest", std::isfinite(nearest) ? Json(nearest) : Json(nullptr)}};
}

}  // namespace mica::lab
