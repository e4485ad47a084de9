#include "device/cuda/nccl_api.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/module.h"
#include "core/status.h"

namespace macaw::device {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 20, 0);

template <typename F>
absl::Status Find(const Module& library, const std::string& file, const char* name, F*& function) {
  function = library.Find<F>(name);
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " has no ", name, ": is it NCCL?"));
}

}  // namespace

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

absl::StatusOr<NcclApi> LoadNccl(const std::string& file) {
  absl::StatusOr<Module> opened = Module::Of(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!opened.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "NCCL cannot be loaded (", opened.status().message(),
        "): install libnccl2, or put the folder of libnccl.so.2 into LD_LIBRARY_PATH"));
  }
  const Module& library = *opened;
  NcclApi api;
  decltype(&ncclGetVersion) version = nullptr;
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclGetVersion", version));
  if (version(&api.version) != ncclSuccess || api.version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(file, " is NCCL ",
                                                      NcclVersionText(api.version), "; it must be ",
                                                      NcclVersionText(kOldest), " or later"));
  }
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclGetUniqueId", api.get_unique_id));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclCommInitRankConfig", api.comm_init));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclCommFinalize", api.comm_finalize));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclCommDestroy", api.comm_destroy));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclCommAbort", api.comm_abort));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclCommGetAsyncError", api.async_error));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclGroupStart", api.group_start));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclGroupEnd", api.group_end));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclReduce", api.reduce));
  MACAW_RETURN_IF_ERROR(Find(library, file, "ncclGetErrorString", api.error_string));
  std::move(*opened).Keep();  // NCCL has threads of its own
  return api;
}

}  // namespace macaw::device
