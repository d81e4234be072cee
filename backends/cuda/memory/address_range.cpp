#include "backends/cuda/memory/address_range.h"

#include "mica/error.h"

namespace mica::cuda {

static void check_driver(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) [[unlikely]]
    fail_driver(status, call);
}

AddressRange::AddressRange(int device, size_t page, size_t bytes)
    : device_(device), page_(page), bytes_((bytes + page - 1) / page * page) {
  CUdeviceptr found = 0;
  check_driver(driver().reserve(&found, bytes_, 0, 0, 0), "cuMemAddressReserve");
  base_ = reinterpret_cast<char*>(found);
  handles_.assign(bytes_ / page_, 0);
}

AddressRange::~AddressRange() {
  unmap(0, bytes_);
  driver().free_addresses(reinterpret_cast<CUdeviceptr>(base_), bytes_);
}

bool AddressRange::map(size_t begin, size_t end) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  const auto at = [&](size_t offset) { return reinterpret_cast<CUdeviceptr>(base_ + offset); };
  for (size_t offset = begin; offset < end; offset += page_) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult made = driver().create(&handle, page_, &prop, 0);
    if (made != CUDA_SUCCESS) {
      unmap(begin, offset);
      if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
      fail_driver(made, "cuMemCreate");
    }
    const CUresult mapped = driver().map(at(offset), page_, 0, handle, 0);
    if (mapped != CUDA_SUCCESS) {
      driver().release(handle);
      unmap(begin, offset);
      fail_driver(mapped, "cuMemMap");
    }
    handles_[offset / page_] = handle;
  }
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult allowed = driver().set_access(at(begin), end - begin, &access, 1);
  if (allowed != CUDA_SUCCESS) {
    unmap(begin, end);
    fail_driver(allowed, "cuMemSetAccess");
  }
  return true;
}

void AddressRange::unmap(size_t begin, size_t end) noexcept {
  for (size_t page = begin / page_; page < end / page_; ++page) {
    if (!handles_[page]) continue;
    driver().unmap(reinterpret_cast<CUdeviceptr>(base_ + page * page_), page_);
    driver().release(handles_[page]);
    handles_[page] = 0;
  }
}

}  // namespace mica::cuda
