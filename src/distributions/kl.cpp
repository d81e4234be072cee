// The table of divergences.
#include "mica/distributions/kl.h"

#include <map>
#include <mutex>
#include <tuple>
#include <typeindex>
#include <vector>

#include "distributions/kl_entries.h"
#include "mica/core/fork.h"
#include "mica/warning.h"

namespace mica::distributions {

namespace {

using Divergence = std::function<Tensor(const Distribution&, const Distribution&)>;

struct Table {
  std::mutex mutex;
  HeldOverFork held{mutex, LockOrder::Distributions};
  std::vector<std::shared_ptr<const DivergenceEntry>> entries;
  std::map<std::pair<std::type_index, std::type_index>, std::shared_ptr<const DivergenceEntry>> found;

  void add(DivergenceEntry entry) {
    auto kept = std::make_shared<const DivergenceEntry>(std::move(entry));
    // Removed functions of the program, and a replaced entry, die after the lock is released.
    decltype(found) forgotten;
    std::lock_guard lock(mutex);
    forgotten.swap(found);  // an entry that fits better may have come
    for (auto& other : entries) {
      if (*other->type_p != *kept->type_p || *other->type_q != *kept->type_q) continue;
      other.swap(kept);
      return;
    }
    entries.push_back(std::move(kept));
  }
};

MadeOnce<Table> filled_table;

Table& table() {
  // Filled at the first use, and never destroyed: a thread may still use it when the process ends.
  return filled_table.get([] {
    auto* made = new Table;
    const Register add = [made](DivergenceEntry entry) { made->add(std::move(entry)); };
    add_divergences_within_families(add);
    add_divergences_between_families(add);
    return made;
  });
}

// The entry of the most derived pair, found by the class of p first and then by that of q; and the other way round.
std::shared_ptr<const DivergenceEntry> dispatch(const Table& t, const Distribution& p, const Distribution& q,
                                                bool& is_ambiguous) {
  std::shared_ptr<const DivergenceEntry> left, right;
  for (const auto& entry : t.entries) {
    if (!entry->matches_p(p) || !entry->matches_q(q)) continue;
    const auto place = std::tuple(entry->depth_p, entry->depth_q), turned = std::tuple(entry->depth_q, entry->depth_p);
    if (!left || place > std::tuple(left->depth_p, left->depth_q)) left = entry;
    if (!right || turned > std::tuple(right->depth_q, right->depth_p)) right = entry;
  }
  is_ambiguous = left != right;
  return left;
}

}  // namespace

void register_divergence(DivergenceEntry entry) { table().add(std::move(entry)); }

Tensor kl_divergence(const Distribution& p, const Distribution& q) {
  Table& t = table();
  const std::pair types(std::type_index(typeid(p)), std::type_index(typeid(q)));
  std::shared_ptr<const DivergenceEntry> entry;
  bool is_ambiguous = false;
  {
    std::lock_guard lock(t.mutex);
    if (const auto known = t.found.find(types); known != t.found.end()) {
      entry = known->second;
    } else if ((entry = dispatch(t, p, q, is_ambiguous))) {
      t.found.emplace(types, entry);
    }
  }
  if (is_ambiguous)
    warn(mica::cat("Ambiguous kl_divergence(", p.name(), ", ", q.name(), "). Please register_kl for both of them."));
  MICA_CHECK_KIND(entry, NotImplemented, "No KL(p || q) is implemented for p type ", p.name(), " and q type ",
                  q.name());
  return entry->divergence(p, q);
}

}  // namespace mica::distributions
