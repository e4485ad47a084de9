#include "cli/process/programs.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"

namespace macaw::cli {

absl::StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot read /proc/self/exe");
  return program.parent_path().string();
}

}  // namespace macaw::cli
