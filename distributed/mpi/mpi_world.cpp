#include <csignal>
#include <cstring>

#include "distributed/mpi/mpi_group.h"
#include "distributed/reduce.h"

namespace mica::distributed {
namespace {

constexpr size_t kText = 256;

// MPI gives the values of the lower rank first.
template <typename Handle, DType dtype, Reduction reduction>
void combine(void* in, void* both, int* count, Handle*) {
  auto* out = static_cast<std::byte*>(both);
  reduce(dtype, reduction, 1, {static_cast<const std::byte*>(in), out}, out, static_cast<size_t>(*count));
}

template <typename Handle, DType dtype>
typename MpiFunctions<Handle>::Combine combine_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::Product:
      return combine<Handle, dtype, Reduction::Product>;
    case Reduction::Min:
      return combine<Handle, dtype, Reduction::Min>;
    case Reduction::Max:
      return combine<Handle, dtype, Reduction::Max>;
    case Reduction::BAnd:
      return combine<Handle, dtype, Reduction::BAnd>;
    case Reduction::BOr:
      return combine<Handle, dtype, Reduction::BOr>;
    case Reduction::BXor:
      return combine<Handle, dtype, Reduction::BXor>;
    default:
      return combine<Handle, dtype, Reduction::Sum>;
  }
}

// Reductions that MPI does not compute, or not as torch does: its MIN and MAX lose NaNs.
template <typename Handle>
typename MpiFunctions<Handle>::Combine own_combine(DType dtype, Reduction reduction) {
  const bool extreme = reduction == Reduction::Min || reduction == Reduction::Max;
  switch (dtype) {
    case DType::Float16:
      return combine_of<Handle, DType::Float16>(reduction);
    case DType::BFloat16:
      return combine_of<Handle, DType::BFloat16>(reduction);
    case DType::Complex32:
      return combine_of<Handle, DType::Complex32>(reduction);
    case DType::Bool:
      return combine_of<Handle, DType::Bool>(reduction);
    case DType::Float32:
      return extreme ? combine_of<Handle, DType::Float32>(reduction) : nullptr;
    case DType::Float64:
      return extreme ? combine_of<Handle, DType::Float64>(reduction) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

template <typename Handle>
MpiWorldOf<Handle>::MpiWorldOf(const MpiLibrary& library) : library_(library) {
  library_.load(mpi, constants);
  int there = 0, ended = 0, level = 0;
  mpi.Initialized(&there);
  mpi.Finalized(&ended);
  if (ended) throw BackendError("MPI has ended in this process, and cannot begin again");
  if (!there) {
    check(mpi.Init_thread(nullptr, nullptr, constants.thread_multiple, &level), "MPI_Init_thread");
    began_ = true;
  }
  check(mpi.Query_thread(&level), "MPI_Query_thread");
  many_threads_ = level >= constants.thread_multiple;
  check(mpi.Comm_set_errhandler(constants.comm_world, constants.errors_return), "MPI_Comm_set_errhandler");
  check(mpi.Comm_rank(constants.comm_world, &rank_), "MPI_Comm_rank");
  check(mpi.Comm_size(constants.comm_world, &size_), "MPI_Comm_size");
}

template <typename Handle>
MpiWorldOf<Handle>::~MpiWorldOf() {
  stop_ = true;
  if (watcher_.joinable()) watcher_.join();
}

template <typename Handle>
void MpiWorldOf<Handle>::check(int code, const char* what) const {
  if (code == 0) return;
  char text[1024] = "";
  int length = 0;
  mpi.Error_string(code, text, &length);
  throw BackendError(std::string(what) + " failed: " + text);
}

template <typename Handle>
std::vector<std::string> MpiWorldOf<Handle>::gather(const std::string& text) {
  if (text.size() >= kText) throw InvalidCall("a text of " + std::to_string(text.size()) + " bytes is too long");
  char own[kText] = "";
  std::memcpy(own, text.data(), text.size());
  std::vector<char> all(kText * static_cast<size_t>(size_));
  const auto lock = enter();
  check(mpi.Allgather(own, kText, constants.byte, all.data(), kText, constants.byte, constants.comm_world),
        "MPI_Allgather");
  std::vector<std::string> texts;
  for (size_t i = 0; i < all.size(); i += kText) texts.emplace_back(all.data() + i);
  return texts;
}

template <typename Handle>
std::shared_ptr<Backend> MpiWorldOf<Handle>::group(const std::string& name, const std::vector<int>& ranks, int number,
                                                   std::shared_ptr<SharedGroup> desk) {
  Handle world{}, chosen{}, made{};
  {
    const auto lock = enter();
    check(mpi.Comm_group(constants.comm_world, &world), "MPI_Comm_group");
    check(mpi.Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &chosen), "MPI_Group_incl");
    check(mpi.Comm_create_group(constants.comm_world, chosen, number, &made), "MPI_Comm_create_group");
    check(mpi.Comm_set_errhandler(made, constants.errors_return), "MPI_Comm_set_errhandler");
    mpi.Group_free(&chosen);
    mpi.Group_free(&world);
  }
  return std::make_shared<MpiGroup<Handle>>(this->shared_from_this(), name, made, std::move(desk));
}

template <typename Handle>
void MpiWorldOf<Handle>::finish() {
  stop_ = true;
  if (watcher_.joinable()) watcher_.join();
  int ended = 0;
  mpi.Finalized(&ended);
  finished_ = true;
  if (began_ && !ended) mpi.Finalize();
}

template <typename Handle>
Handle MpiWorldOf<Handle>::type_of_bytes(size_t size) {
  if (size == 1) return constants.byte;
  std::lock_guard lock(made_mutex_);
  for (const auto& [bytes, type] : types_) {
    if (bytes == size) return type;
  }
  Handle made{};
  check(mpi.Type_contiguous(static_cast<int>(size), constants.byte, &made), "MPI_Type_contiguous");
  check(mpi.Type_commit(&made), "MPI_Type_commit");
  types_.emplace_back(size, made);
  return made;
}

// MPI's own operation, or one that computes here. The latter go with type_of_bytes; `Handle{}` says that it is MPI's
// own.
template <typename Handle>
Handle MpiWorldOf<Handle>::operation(DType dtype, Reduction reduction) {
  const auto function = own_combine<Handle>(dtype, reduction);
  if (!function) return Handle{};
  const int key = static_cast<int>(dtype) * 64 + static_cast<int>(reduction);
  std::lock_guard lock(made_mutex_);
  for (const auto& [known, made] : operations_) {
    if (known == key) return made;
  }
  Handle made{};
  check(mpi.Op_create(function, 1, &made), "MPI_Op_create");
  operations_.emplace_back(key, made);
  return made;
}

template <typename Handle>
void MpiWorldOf<Handle>::watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::lock_guard lock(made_mutex_);
    for (MpiGroup<Handle>* each : groups_) each->look();
  }
}

template class MpiWorldOf<void*>;
template class MpiWorldOf<int>;

std::shared_ptr<MpiWorld> MpiWorld::open(const std::string& path) {
  const MpiLibrary library(path);
  if (library.interface == MpiLibrary::Interface::Mpich) return std::make_shared<MpiWorldOf<int>>(library);
  return std::make_shared<MpiWorldOf<void*>>(library);
}

}  // namespace mica::distributed
