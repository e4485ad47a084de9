#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/statusor.h"

namespace macaw::device {

// The functions of NCCL that are used. They come from the library that LoadNccl opens, so that
// programs start without it; tests put functions of their own here. nccl.h describes them.
struct NcclApi {
  int version = 0;  // 22809 is 2.28.9
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
};

// Opens a file, or a name that the loader finds. The error says what is missing: the file, a
// function, or a version of at least 2.20.
absl::StatusOr<NcclApi> LoadNccl(const std::string& file = "libnccl.so.2");

std::string NcclVersionText(int version);  // "2.28.9"

}  // namespace macaw::device
