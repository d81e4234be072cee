#include "mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace mica::distributed {
namespace {

template <typename Handle>
void load_functions(const MpiLibrary& library, MpiFunctions<Handle>& to) {
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
  };
  load(to.Initialized, "MPI_Initialized");
  load(to.Finalized, "MPI_Finalized");
  load(to.Init_thread, "MPI_Init_thread");
  load(to.Query_thread, "MPI_Query_thread");
  load(to.Finalize, "MPI_Finalize");
  load(to.Abort, "MPI_Abort");
  load(to.Get_library_version, "MPI_Get_library_version");
  load(to.Error_string, "MPI_Error_string");
  load(to.Comm_rank, "MPI_Comm_rank");
  load(to.Comm_size, "MPI_Comm_size");
  load(to.Comm_dup, "MPI_Comm_dup");
  load(to.Comm_group, "MPI_Comm_group");
  load(to.Comm_create_group, "MPI_Comm_create_group");
  load(to.Comm_free, "MPI_Comm_free");
  load(to.Comm_set_errhandler, "MPI_Comm_set_errhandler");
  load(to.Comm_get_attr, "MPI_Comm_get_attr");
  load(to.Group_incl, "MPI_Group_incl");
  load(to.Group_free, "MPI_Group_free");
  load(to.Type_contiguous, "MPI_Type_contiguous");
  load(to.Type_commit, "MPI_Type_commit");
  load(to.Op_create, "MPI_Op_create");
  load(to.Allreduce, "MPI_Allreduce");
  load(to.Reduce, "MPI_Reduce");
  load(to.Bcast, "MPI_Bcast");
  load(to.Allgather, "MPI_Allgather");
  load(to.Allgatherv, "MPI_Allgatherv");
  load(to.Gatherv, "MPI_Gatherv");
  load(to.Scatterv, "MPI_Scatterv");
  load(to.Reduce_scatter, "MPI_Reduce_scatter");
  load(to.Alltoallv, "MPI_Alltoallv");
  load(to.Barrier, "MPI_Barrier");
  load(to.Isend, "MPI_Isend");
  load(to.Irecv, "MPI_Irecv");
  load(to.Test, "MPI_Test");
  load(to.Cancel, "MPI_Cancel");
  load(to.Request_free, "MPI_Request_free");
  load(to.Get_count, "MPI_Get_count");
}

// A predefined object by the names that the standard (MPI_FLOAT) and Open MPI (ompi_mpi_float) have for it.
struct Named {
  int index;  // DType or Reduction
  const char* open_mpi;
  int mpich, standard;
};

constexpr int index_of(DType dtype) { return static_cast<int>(dtype); }
constexpr int index_of(Reduction reduction) { return static_cast<int>(reduction); }

constexpr Named kTypes[] = {
    {index_of(DType::UInt8), "ompi_mpi_uint8_t", 0x4c00013b, 0x241},
    {index_of(DType::Int8), "ompi_mpi_int8_t", 0x4c000137, 0x240},
    {index_of(DType::Int16), "ompi_mpi_int16_t", 0x4c000238, 0x248},
    {index_of(DType::Int32), "ompi_mpi_int32_t", 0x4c000439, 0x250},
    {index_of(DType::Int64), "ompi_mpi_int64_t", 0x4c00083a, 0x258},
    {index_of(DType::UInt16), "ompi_mpi_uint16_t", 0x4c00023c, 0x249},
    {index_of(DType::UInt32), "ompi_mpi_uint32_t", 0x4c00043d, 0x251},
    {index_of(DType::UInt64), "ompi_mpi_uint64_t", 0x4c00083e, 0x259},
    {index_of(DType::Float32), "ompi_mpi_float", 0x4c00040a, 0x210},
    {index_of(DType::Float64), "ompi_mpi_double", 0x4c00080b, 0x214},
    {index_of(DType::Complex64), "ompi_mpi_c_float_complex", 0x4c000840, 0x212},
    {index_of(DType::Complex128), "ompi_mpi_c_double_complex", 0x4c001041, 0x216},
};
constexpr Named kOperations[] = {
    {index_of(Reduction::Sum), "ompi_mpi_op_sum", 0x58000003, 0x21},
    {index_of(Reduction::Product), "ompi_mpi_op_prod", 0x58000004, 0x24},
    {index_of(Reduction::Min), "ompi_mpi_op_min", 0x58000002, 0x22},
    {index_of(Reduction::Max), "ompi_mpi_op_max", 0x58000001, 0x23},
    {index_of(Reduction::BAnd), "ompi_mpi_op_band", 0x58000006, 0x28},
    {index_of(Reduction::BOr), "ompi_mpi_op_bor", 0x58000008, 0x29},
    {index_of(Reduction::BXor), "ompi_mpi_op_bxor", 0x5800000a, 0x2a},
};
constexpr Named kByte = {0, "ompi_mpi_byte", 0x4c00010d, 0x247};
constexpr Named kWorld = {0, "ompi_mpi_comm_world", 0x44000000, 0x101};
constexpr Named kErrorsReturn = {0, "ompi_mpi_errors_return", 0x54000001, 0x143};

template <typename Handle, typename Value>
void fill(MpiConstants<Handle>& to, Value value) {
  to.comm_world = value(kWorld);
  to.errors_return = value(kErrorsReturn);
  to.byte = value(kByte);
  std::fill(std::begin(to.types), std::end(to.types), to.byte);
  std::fill(std::begin(to.operations), std::end(to.operations), Handle{});
  for (const Named& each : kTypes) to.types[each.index] = value(each);
  for (const Named& each : kOperations) to.operations[each.index] = value(each);
}

void* address(intptr_t value) { return reinterpret_cast<void*>(value); }

}  // namespace

MpiLibrary::MpiLibrary(const std::string& from) : path(from) {
  // The library's plugins look for its names among those of the process.
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw BackendError("MPI cannot be opened: " + std::string(dlerror()));
  char text[8192] = "";
  int length = 0;
  reinterpret_cast<int (*)(char*, int*)>(symbol("MPI_Get_library_version"))(text, &length);
  version = std::string(text, strcspn(text, "\n"));
  // The interface of the standard is a library with a name of its own, which may be there beside another.
  const std::string file = path.substr(path.rfind('/') + 1);
  if (file.rfind("libmpi_abi", 0) == 0)
    interface = Interface::Standard;
  else if (dlsym(library, kWorld.open_mpi))
    interface = Interface::OpenMpi;
  else
    interface = Interface::Mpich;
}

void* MpiLibrary::symbol(const char* name) const {
  void* found = dlsym(library, name);
  if (!found) throw BackendError(path + " is no MPI that Mica can use: it has no " + name);
  return found;
}

void MpiLibrary::load(MpiFunctions<void*>& functions, MpiConstants<void*>& constants) const {
  load_functions(*this, functions);
  constants.in_place = address(1);
  constants.status_ignore = nullptr;
  constants.source_word = 0;
  constants.any_source = -1;
  if (interface == Interface::Standard) {
    constants.thread_multiple = 4096;
    constants.tag_ub = 501;
    fill(constants, [](const Named& each) { return address(each.standard); });
  } else {
    constants.thread_multiple = 3;
    constants.tag_ub = 0;
    fill(constants, [&](const Named& each) { return symbol(each.open_mpi); });
  }
}

void MpiLibrary::load(MpiFunctions<int>& functions, MpiConstants<int>& constants) const {
  load_functions(*this, functions);
  constants.in_place = address(-1);
  constants.status_ignore = static_cast<MpiStatus*>(address(1));
  constants.source_word = 2;
  constants.any_source = -2;
  constants.thread_multiple = 3;
  constants.tag_ub = 0x64400001;
  fill(constants, [](const Named& each) { return each.mpich; });
}

}  // namespace mica::distributed
