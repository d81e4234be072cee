#include "evaluate.h"

#include "mica/observe.h"

namespace mica::lab {

int Evaluation::storage_of(const Tensor& t) {
  return storages_.emplace(t.storage().get(), static_cast<int>(storages_.size())).first->second;
}

Json Evaluation::step_json(size_t i) {
  Json card = describe(results[i]);
  card["op"] = steps[i].operation->name;
  card["kind"] = name(steps[i].operation->kind);
  card["call"] = python_of(steps[i]);
  card["on"] = steps[i].inputs;
  card["args"] = steps[i].values;
  card["storage"]["id"] = storage_of(results[i]);
  card["copies"] = copies[i];
  bool shares = false;
  for (size_t k = 0; k < i; ++k) shares |= results[k].storage() == results[i].storage();
  card["shares"] = shares;
  return card;
}

Evaluation evaluate(const Json& list, const std::function<void(size_t)>& before_step,
                    const std::function<void(size_t, const Tensor&)>& after_step) {
  Evaluation e;
  e.steps = program(list);
  for (size_t i = 0; i < e.steps.size(); ++i) {
    Json copies = Json::array();
    inspect::start_copies({.strict = false, .asked = true, .least_bytes = 0});
    try {
      if (before_step) before_step(i);
      Tensor made = run(e.steps[i], e.results);
      MICA_CHECK(made.numel() <= kMostElements, "the Lab shows tensors of at most ", kMostElements, " elements");
      e.results.push_back(std::move(made));
      if (after_step) after_step(i, e.results.back());
    } catch (const Error& problem) {
      inspect::stop_copies();
      e.error = problem.what();
      if (e.results.size() > e.copies.size()) e.results.pop_back();  // it was after_step that failed
      return e;
    } catch (...) {
      inspect::stop_copies();
      throw;
    }
    for (const inspect::Copy& c : inspect::stop_copies())
      copies.push_back({{"reason", inspect::name(c.reason)},
                        {"hidden", c.hidden},
                        {"bytes", c.bytes},
                        {"why", inspect::describe(c)}});
    e.copies.push_back(std::move(copies));
  }
  return e;
}

}  // namespace mica::lab
