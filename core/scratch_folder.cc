#include "core/scratch_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/files.h"

namespace macaw {

absl::StatusOr<ScratchFolder> ScratchFolder::Make(absl::string_view name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error)
    return FileError("cannot find the folder for temporary files", "TMPDIR", error.value());
  std::string path = (parent / absl::StrCat(name, "-XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    return FileError("cannot make a folder in", parent.string());
  return ScratchFolder(path);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::operator/(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

}  // namespace macaw
