#include "cli/process/exit.h"

#include <iostream>

namespace macaw::cli {

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const bool usage =
      absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) || absl::IsNotFound(status);
  return usage ? kExitUsage : kExitFailed;
}

int Report(const absl::Status& status) {
  if (!status.ok()) std::cerr << "macaw: error: " << status.message() << std::endl;
  return ExitCodeOf(status);
}

}  // namespace macaw::cli
