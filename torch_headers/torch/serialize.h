// torch::save and torch::load for what Mica's files hold, modules and optimizers.
#pragma once

#include "mica/nn.h"
#include "mica/optim.h"
#include "mica/serialize.h"

namespace torch {

using mica::load;
using mica::save;

template <mica::nn::Holder H>
void save(const H& module, const std::string& path) {
  module->save(path);
}
template <mica::nn::Holder H>
void load(H& module, const std::string& path) {
  module->load(path);
}
template <std::derived_from<mica::nn::Module> M>
void save(const std::shared_ptr<M>& module, const std::string& path) {
  module->save(path);
}
template <std::derived_from<mica::nn::Module> M>
void load(std::shared_ptr<M>& module, const std::string& path) {
  module->load(path);
}
inline void save(const mica::optim::Optimizer& optimizer, const std::string& path) { optimizer.save(path); }
inline void load(mica::optim::Optimizer& optimizer, const std::string& path) { optimizer.load(path); }

}  // namespace torch
