// A program carried out step by step, and everything worth showing of each step.
#pragma once

#include <map>

#include "operations.h"

namespace mica::lab {

struct Evaluation {
  std::vector<Step> steps;
  std::vector<Tensor> results;  // as many as went well
  std::vector<Json> copies;     // of each step: the copies it made, with their reasons
  std::string error;            // of the step after the last result; empty if all went well
  // A number for each storage, in the order of their first use.
  int storage_of(const Tensor& t);
  Json step_json(size_t i);

 private:
  std::map<const void*, int> storages_;
};

// `before_step(i)` and `after_step(i, result)` stand around each operation.
Evaluation evaluate(const Json& steps, const std::function<void(size_t)>& before_step = {},
                    const std::function<void(size_t, const Tensor&)>& after_step = {});

}  // namespace mica::lab
