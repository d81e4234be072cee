// The calls that one thread has put off, and the storages that they use.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "compiler/interleaved_memory.h"
#include "compiler/known_plans.h"
#include "mica/core/recording.h"

namespace mica::recording {

// A lock that is taken several times for each call and nearly always free. Whoever waits for it sleeps in between.
class RarelyAwaitedLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();
  std::atomic<bool> taken_{false};
};

class PendingCalls {
 public:
  // Whoever uses what is below holds it: another thread may ask for what these calls compute.
  RarelyAwaitedLock mutex;
  Counts counts;
  bool explains = false;             // whether run() adds to the explanation
  std::string (*place)() = nullptr;  // says at which line the program is
  std::string explanation;
  PointwiseLoop no_elements;  // for end_call(), which calls kernels without elements
  InterleavedMemory interleaved;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ >= (least_fused <= 1 ? kMostOfGraph : kMostCalls); }
  // The call that add() adds, for the caller to fill in.
  Call& next() {
    if (count_ == room_) make_room();
    return calls_[count_];
  }
  void add();
  bool has(const StorageImpl* storage) const { return find(storage) >= 0; }
  const Call* lone() const { return count_ == 1 ? &calls_[0] : nullptr; }
  // Whether a call of this kind runs at once; if not, it is the next one that is added. Kinds are told by a hash. Asked
  // by the calls' own thread, which need not hold the mutex.
  bool runs_alone(uint64_t kind);
  bool runs_alone_for_sure(uint64_t kind);   // the same, but false where the call is one to put off nevertheless
  bool is_known_alone(uint64_t kind) const;  // without a call of it
  // Runs all calls and forgets them. After an error, those stay that did not run and still can. `told` says whether the
  // error reaches the program that made the calls. `wanted` is a storage that a convolution asks for which is faster
  // where the storage lies interleaved.
  void run(const char* reason, const std::string& asked_from = {}, bool told = true,
           const StorageImpl* wanted = nullptr);
  // Forgets all calls, which were captured for a graph that there will not be.
  void abandon(const std::string& reason);
  void finish();  // runs the calls of a thread that ends; what cannot be computed is lost
  // Where the program is, if an explanation will say so. To be asked before the mutex is locked.
  std::string asked_from() const { return explains && place && count_ > 0 ? place() : std::string(); }

 private:
  static constexpr int kMostCalls = 256, kMostOfGraph = 1024;  // the latter in a graph that is captured
  static constexpr size_t kListed = 16;    // as many slots are looked through one by one; of more there is a table
  static constexpr size_t kTable = 16384;  // more than twice the storages of all calls
  static size_t hash(const StorageImpl* s) { return (reinterpret_cast<uintptr_t>(s) >> 6) * 0x9E3779B97F4A7C15u >> 50; }
  int find(const StorageImpl* storage) const;
  int slot_of(StorageImpl* storage, bool keeps, bool written);
  void put_into_table(int slot);
  void make_room();  // for the calls of a graph that is captured
  void forget();
  void let_go(Slot& slot);
  void give_up(const std::string& reason);
  void run_all(const char* reason, const std::string& asked_from);
  void run_one();
  bool mark_slots(const StorageImpl* wanted);
  void take_interleaved(const Plan* plan);
  void run_known(const KnownPlan& plan);
  void run_groups(const Plan& plan, const Call* calls);
  void keep_rest(const std::string& reason, bool told, bool capture_failed);
  bool has_begun_on_device() const;

  // Behind the calls there is room for those that the plan cuts into halves.
  std::unique_ptr<Call[]> calls_{new Call[kMostCalls + kMostHalves]};
  int room_ = kMostCalls;  // without those
  int count_ = 0;
  std::vector<Slot> slots_;
  // A hash table: slots by their storages' addresses. It is used from the moment on that there are more than a few.
  std::vector<int> table_ = std::vector<int>(kTable, -1);
  std::vector<size_t> filled_;      // the entries of the table that are in use
  std::vector<Progress> progress_;  // by call, while the calls run
  bool broken_ = false;             // whether it is unknown which calls have run
  KnownPlans plans_;

  // How calls of a kind have fared. It only says what is worth the while, so that another thread, which runs these
  // calls, may change it at any time.
  struct Kind {
    std::atomic<uint64_t> hash{0};
    std::atomic<uint32_t> alone{0};  // how many were put off and ran alone, since the last one that did not
    std::atomic<uint32_t> asked{0};  // how often calls of the kind were to be put off since
  };
  static constexpr size_t kKinds = 512;
  void note_kind(uint64_t hash, bool alone);
  void note_kinds(const std::vector<char>& alone);                 // by call
  std::unique_ptr<Kind[]> kinds_{new Kind[kKinds]};                // by bits of the hash
  std::unique_ptr<uint64_t[]> kind_of_{new uint64_t[kMostCalls]};  // by call; 0: it was not asked for
  uint64_t next_kind_ = 0;
};

}  // namespace mica::recording
