// What a model holds in memory, by arithmetic: shared by "does it fit" and the planner.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "describe.h"

namespace mica::lab {

// A transformer has layers of a width; of any other model, what its layers put out for one sample is known.
struct ModelShape {
  std::string name;
  double parameters = 0;
  int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, length = 0;
  double outputs = 0, widest = 0;
  bool derived = false;  // layers and width follow from the number of parameters
  bool is_transformer() const { return layers > 0; }
};
ModelShape model_shape(const Json& question);  // throws for one that makes no sense

struct MemorySetting {
  double bits = 32;  // of a weight
  bool training = false;
  int optimizer_numbers = 2;   // that the optimizer keeps for each parameter
  double optimizer_bytes = 4;  // of each of them
  bool master = true;          // a float32 copy of weights that are smaller
  double batch = 1, length = 1;
  bool fused_attention = true;
  bool checkpointing = false;  // only the input of each layer is kept, the rest is computed again
  int shards = 1;              // devices that share the state of the optimizer
  bool autocast = false;       // weights of 32 bits, products in 16: casts of the weights are kept beside them
  bool extras = true;          // caches and activations
};
std::vector<std::pair<std::string, double>> memory_parts(const ModelShape& model, const MemorySetting& s);
double sum_of(const std::vector<std::pair<std::string, double>>& parts);

struct WeightFormat {
  const char* name;
  double bits;
};
inline constexpr WeightFormat kWeightFormats[] = {{"float32", 32}, {"bfloat16", 16}, {"float16", 16},
                                                  {"float8", 8},   {"int8", 8},      {"int4", 4}};
int optimizer_numbers(const std::string& optimizer);  // throws for one that is not known
Json optimizers_json();

}  // namespace mica::lab
