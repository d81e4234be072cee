// The machine's MPI, opened at run time: nothing of it is needed to build. Its functions are the standard's; libraries
// differ in the type of handles and in the values of constants. There are three such binary interfaces:
//   Open MPI's: a handle is an address, those of predefined objects are of variables of the library;
//   MPICH's (and Intel's, MVAPICH's, Cray's): a handle is an int;
//   the standard's own since MPI 5 (libmpi_abi): a handle is a pointer, those of predefined objects are small numbers.
#pragma once

#include <mutex>

#include "distributed/call.h"

namespace mica::distributed {

// Large enough for the struct of each library. Where the fields lie is a constant of the interface.
struct MpiStatus {
  int words[16];
};

template <typename Handle>
struct MpiFunctions {
  using Combine = void (*)(void*, void*, int*, Handle*);

  int (*Initialized)(int*);
  int (*Finalized)(int*);
  int (*Init_thread)(int*, char***, int, int*);
  int (*Query_thread)(int*);
  int (*Finalize)();
  int (*Abort)(Handle, int);
  int (*Get_library_version)(char*, int*);
  int (*Error_string)(int, char*, int*);
  int (*Comm_rank)(Handle, int*);
  int (*Comm_size)(Handle, int*);
  int (*Comm_dup)(Handle, Handle*);
  int (*Comm_group)(Handle, Handle*);
  int (*Comm_create_group)(Handle, Handle, int, Handle*);
  int (*Comm_free)(Handle*);
  int (*Comm_set_errhandler)(Handle, Handle);
  int (*Comm_get_attr)(Handle, int, void*, int*);
  int (*Group_incl)(Handle, int, const int*, Handle*);
  int (*Group_free)(Handle*);
  int (*Type_contiguous)(int, Handle, Handle*);
  int (*Type_commit)(Handle*);
  int (*Op_create)(Combine, int, Handle*);
  int (*Allreduce)(const void*, void*, int, Handle, Handle, Handle);
  int (*Reduce)(const void*, void*, int, Handle, Handle, int, Handle);
  int (*Bcast)(void*, int, Handle, int, Handle);
  int (*Allgather)(const void*, int, Handle, void*, int, Handle, Handle);
  int (*Allgatherv)(const void*, int, Handle, void*, const int*, const int*, Handle, Handle);
  int (*Gatherv)(const void*, int, Handle, void*, const int*, const int*, Handle, int, Handle);
  int (*Scatterv)(const void*, const int*, const int*, Handle, void*, int, Handle, int, Handle);
  int (*Reduce_scatter)(const void*, void*, const int*, Handle, Handle, Handle);
  int (*Alltoallv)(const void*, const int*, const int*, Handle, void*, const int*, const int*, Handle, Handle);
  int (*Barrier)(Handle);
  int (*Isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*Irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*Test)(Handle*, int*, MpiStatus*);
  int (*Cancel)(Handle*);
  int (*Request_free)(Handle*);
  int (*Get_count)(const MpiStatus*, Handle, int*);
};

template <typename Handle>
struct MpiConstants {
  Handle comm_world, errors_return, byte;
  Handle types[64];       // by DType; `byte` where MPI cannot compute with the dtype
  Handle operations[16];  // by Reduction
  void* in_place;
  MpiStatus* status_ignore;
  int any_source, thread_multiple, tag_ub;
  int source_word;  // the word of a status that holds the sender
};

class SharedGroup;

// MPI in this process. It is initialised when it is opened, unless the program has done so.
class MpiWorld {
 public:
  // Throws BackendError where the library cannot be opened or is no MPI.
  static std::shared_ptr<MpiWorld> open(const std::string& path);
  virtual ~MpiWorld() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string version() const = 0;
  // The texts of all ranks, of at most 255 bytes each.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // The group of some ranks of the world, all of which call this at the same time. `number` tells it from other groups.
  // If all are on one host, `desk` is a segment in which they say what they call; otherwise it is null.
  virtual std::shared_ptr<Backend> group(const std::string& name, const std::vector<int>& ranks, int number,
                                         std::shared_ptr<SharedGroup> desk) = 0;
  // Ends MPI if this object began it. No group is used after that.
  virtual void finish() = 0;
};

// Opens the library's functions and says which interface it has.
struct MpiLibrary {
  void* library = nullptr;
  std::string path, version;
  enum class Interface { OpenMpi, Mpich, Standard } interface = Interface::OpenMpi;

  explicit MpiLibrary(const std::string& path);
  void* symbol(const char* name) const;  // throws where there is none
  void load(MpiFunctions<void*>& functions, MpiConstants<void*>& constants) const;
  void load(MpiFunctions<int>& functions, MpiConstants<int>& constants) const;
};

}  // namespace mica::distributed
