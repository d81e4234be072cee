// The instruments that carry out a program: view or copy, the playground, the graph.
#include <set>

#include "evaluate.h"
#include "instruments.h"
#include "mica/autograd.h"

namespace mica::lab {

// ---- view or copy

namespace {

struct Write {
  size_t tensor, after;  // after how many steps it is made
  int64_t element;
  Json all;
};

std::vector<Write> writes_of(const Json& question) {
  std::vector<Write> list;
  const auto given = question.find("writes");
  if (given == question.end()) return list;
  MICA_CHECK(given->is_array() && given->size() <= 64, "at most 64 numbers are written");
  for (const Json& w : *given)
    list.push_back({w.at("tensor").get<size_t>(), w.at("after").get<size_t>(), w.at("element").get<int64_t>(), w});
  return list;
}

DimVector index_of(const Tensor& target, int64_t element) {
  DimVector index(static_cast<size_t>(target.dim()));
  for (int64_t d = target.dim(); d-- > 0;) {
    index[static_cast<size_t>(d)] = element % target.size(d);
    element /= target.size(d);
  }
  return index;
}

}  // namespace

// Numbers are written where they were written: tensors of that time see them, copies that were made before do not.
Json views(const Json& question) {
  NoGradGuard below;
  const std::vector<Write> writes = writes_of(question);
  std::vector<Tensor> made;
  std::vector<std::set<size_t>> changed;  // of each tensor: the elements that a write has changed
  Json written = Json::array();
  std::string refused;  // a write that cannot be
  Evaluation e = evaluate(question.at("steps"), {}, [&](size_t step, const Tensor& result) {
    made.push_back(result);
    changed.emplace_back();
    for (const Write& w : writes) {
      if (w.after != step + 1 || !refused.empty()) continue;
      if (w.tensor >= made.size() || w.element < 0 || w.element >= made[w.tensor].numel()) {
        refused = w.tensor >= made.size() ? cat("there is no tensor ", w.tensor, " yet")
                                          : cat("index ", w.element, " is out of bounds for a tensor with ",
                                                made[w.tensor].numel(), " elements");
        continue;
      }
      std::vector<Json> before;
      for (const Tensor& t : made) before.push_back(first_values(t));
      const DimVector index = index_of(made[w.tensor], w.element);
      Tensor cell = made[w.tensor];
      for (const int64_t i : index) cell = cell.select(0, i);
      cell.fill_(Values(w.all).scalar("value"));
      for (size_t t = 0; t < made.size(); ++t) {
        const Json now = first_values(made[t]);
        for (size_t k = 0; k < now.size(); ++k)
          if (now[k] != before[t][k]) changed[t].insert(k);
      }
      written.push_back({{"tensor", w.tensor}, {"element", w.element}, {"index", integers(index)}});
    }
  });
  if (!refused.empty()) fail(ErrorKind::Index, refused);
  Json cards = Json::array();
  for (size_t i = 0; i < e.results.size(); ++i) {
    cards.push_back(e.step_json(i));
    cards.back()["changed"] = i < changed.size() ? Json(changed[i]) : Json::array();
  }
  return {{"error", e.error}, {"steps", cards}, {"written", written}};
}

// ---- playground

Json playground(const Json& question) {
  NoGradGuard below;
  Evaluation e = evaluate(question.at("steps"));
  Json cards = Json::array();
  std::map<const void*, int64_t> storages;
  for (size_t i = 0; i < e.results.size(); ++i) {
    cards.push_back(e.step_json(i));
    if (e.results[i].is_meta()) continue;  // it has no memory
    const Storage& s = e.results[i].storage();
    storages.emplace(s.get(), static_cast<int64_t>(s->nbytes()));
  }
  int64_t memory = 0;
  for (const auto& [storage, bytes] : storages) memory += bytes;
  Json answer = {{"steps", cards},
                 {"error", e.error},
                 {"memory", memory},
                 {"storages", storages.size()},
                 {"python", python_code(e.steps)},
                 {"cpp", cpp_code(e.steps)}};
  if (!e.error.empty()) answer["failed"] = {{"step", e.results.size()}, {"call", python_of(e.steps[e.results.size()])}};
  return answer;
}

// ---- the autograd graph

namespace {

struct Saved {
  DimVector sizes;
  DType dtype;
  const void* storage;
  int64_t bytes, storage_bytes;
};

}  // namespace

Json graph(const Json& question) {
  EnableGradGuard on;
  std::vector<std::vector<Saved>> saved;
  auto hooks = std::make_shared<SavedTensorHooks>();
  hooks->pack = [&saved](const Tensor& t) -> std::shared_ptr<void> {
    if (!saved.empty())
      saved.back().push_back({DimVector(t.sizes()), t.dtype(), t.storage().get(), t.nbytes(),
                              static_cast<int64_t>(t.storage()->nbytes())});
    return std::make_shared<Tensor>(t.detach());
  };
  hooks->unpack = [](const std::shared_ptr<void>& kept) { return *static_cast<Tensor*>(kept.get()); };
  Evaluation e;
  autograd::push_saved_tensor_hooks(hooks);
  try {
    e = evaluate(question.at("steps"), [&](size_t) { saved.emplace_back(); });
  } catch (...) {
    autograd::pop_saved_tensor_hooks();
    throw;
  }
  autograd::pop_saved_tensor_hooks();

  Json nodes = Json::array(), edges = Json::array();
  std::map<const Node*, size_t> number;
  std::vector<const Node*> open;
  auto add = [&](const Node* node) {
    const auto [at, fresh] = number.emplace(node, number.size());
    if (fresh) {
      nodes.push_back({{"name", node->name()}, {"leaf", node->is_accumulator}, {"step", nullptr}});
      open.push_back(node);
    }
    return at->second;
  };
  std::set<const void*> seen;
  int64_t total = 0;
  Json steps = Json::array();
  for (size_t i = 0; i < e.results.size(); ++i) {
    Json card = e.step_json(i);
    Json kept = Json::array();
    for (const Saved& s : saved[i]) {
      // A storage counts once, however many nodes keep a view of it.
      const bool fresh = seen.insert(s.storage).second;
      total += fresh ? s.storage_bytes : 0;
      int owner = -1;
      for (size_t k = 0; k < e.results.size() && owner < 0; ++k)
        if (e.results[k].storage().get() == s.storage) owner = static_cast<int>(k);
      kept.push_back({{"shape", integers(s.sizes)},
                      {"dtype", name(s.dtype)},
                      {"bytes", s.bytes},
                      {"counts", fresh},
                      {"of", owner < 0 ? Json(nullptr) : Json(owner)}});
    }
    card["saved"] = kept;
    const Edge edge = e.results[i].requires_grad() ? gradient_edge(e.results[i]) : Edge{};
    if (edge.function) {
      const size_t at = add(edge.function.get());
      nodes[at]["step"] = i;
      card["node"] = at;
    }
    steps.push_back(card);
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (size_t k = 0; k < node->next_edges.size(); ++k)
      if (const Node* next = node->next_edges[k].function.get()) {
        const size_t from = number.at(node), to = add(next);
        edges.push_back({{"from", from}, {"to", to}});
      }
  }
  Json answer = {{"steps", steps},       {"nodes", nodes},   {"edges", edges},
                 {"saved_bytes", total}, {"error", e.error}, {"python", python_code(e.steps, true)}};
  if (!e.error.empty()) {
    answer["failed"] = {{"step", e.results.size()}, {"call", python_of(e.steps[e.results.size()])}};
  } else if (!e.results.empty() && e.results.back().requires_grad()) {
    try {
      e.results.back().sum().backward();
      for (size_t i = 0; i < e.results.size(); ++i)
        if (const Tensor g = e.results[i].grad(); g.defined())
          answer["steps"][i]["grad"] = {
              {"shape", integers(g.sizes())}, {"values", first_values(g)}, {"bytes", g.nbytes()}};
    } catch (const Error& problem) {
      answer["error"] = problem.what();
    }
  }
  return answer;
}

Json run(const Json&) { return Json::parse(Site::published()); }

}  // namespace mica::lab
