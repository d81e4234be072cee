// The engine of a group on MPI: its collectives are MPI's own. They block, and cannot be ended from outside: a rank
// that would wait for ever, or past the time limit, ends the whole program, as MPI does after errors, with a text that
// says why.
#pragma once

#include <chrono>
#include <thread>

#include "distributed/mpi/mpi_library.h"
#include "distributed/shared_group.h"

namespace mica::distributed {

template <typename Handle>
class MpiGroup;

// MPI's functions and constants, and what its groups share.
template <typename Handle>
class MpiWorldOf final : public MpiWorld, public std::enable_shared_from_this<MpiWorldOf<Handle>> {
 public:
  explicit MpiWorldOf(const MpiLibrary& library);
  ~MpiWorldOf() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string version() const override { return library_.version + ", " + library_.path; }
  std::vector<std::string> gather(const std::string& text) override;
  std::shared_ptr<Backend> group(const std::string& name, const std::vector<int>& ranks, int number,
                                 std::shared_ptr<SharedGroup> desk) override;
  void finish() override;

  void check(int code, const char* what) const;  // throws BackendError with MPI's own text
  // Takes the lock of MPI, where it does not let several threads call it at once.
  std::unique_lock<std::mutex> enter() {
    return many_threads_ ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(mutex_);
  }
  Handle type_of_bytes(size_t size);  // for elements that are only moved, or that are combined here
  Handle operation(DType dtype, Reduction reduction);
  bool finished() const { return finished_; }

  MpiFunctions<Handle> mpi;
  MpiConstants<Handle> constants;

 private:
  friend class MpiGroup<Handle>;
  void watch();

  MpiLibrary library_;
  int rank_ = 0, size_ = 1;
  bool began_ = false, many_threads_ = false, finished_ = false;
  std::mutex mutex_;
  std::mutex made_mutex_;  // guards the members below
  std::vector<std::pair<size_t, Handle>> types_;
  std::vector<std::pair<int, Handle>> operations_;
  std::vector<MpiGroup<Handle>*> groups_;
  std::thread watcher_;
  std::atomic<bool> stop_{false};
};

// The number of elements of `unit` bytes, as MPI takes it. Throws InvalidCall where an int cannot hold it.
int mpi_count(size_t bytes, size_t unit);

template <typename Handle>
class MpiGroup final : public Backend {
 public:
  // The group takes the communicator over.
  MpiGroup(std::shared_ptr<MpiWorldOf<Handle>> world, std::string name, Handle communicator,
           std::shared_ptr<SharedGroup> desk);
  ~MpiGroup() override;

  void run(Call& call) override;
  std::shared_ptr<Message> post(Call call) override;
  void abort(const std::string& why) override;
  void leave() override;

 private:
  template <typename>
  friend class MpiMessage;
  friend class MpiWorldOf<Handle>;
  using Clock = std::chrono::steady_clock;

  void look();  // called by the watching thread: names ranks that are late, and ends the program past the time limit
  [[noreturn]] void end_program(const std::string& why);
  std::string describe(const Call& call) const;
  void check(int code, const Call& call) const;
  void throw_if_aborted();
  void run_collective(Call& call);
  void reduce_all(Call& call);
  void broadcast(Call& call);
  void all_gather(Call& call);
  void gather(Call& call);
  void scatter(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);

  std::shared_ptr<MpiWorldOf<Handle>> world_;
  std::string name_;
  Handle communicator_;
  std::shared_ptr<SharedGroup> desk_;  // null across hosts
  int rank_ = 0, size_ = 1;
  int64_t most_tag_ = 32767;
  uint64_t number_ = 0;
  std::mutex doing_mutex_;  // guards the members below
  const Call* doing_ = nullptr;
  Clock::time_point since_;
  double warn_at_ = 0;
  std::string why_;  // why it was aborted
};

}  // namespace mica::distributed
