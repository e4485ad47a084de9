#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw {

// A private folder among the temporary files (TMPDIR, else /tmp), which the destructor removes with
// all that is in it. Movable.
class ScratchFolder {
 public:
  // `name`: how the folder's name begins.
  static absl::StatusOr<ScratchFolder> Make(absl::string_view name);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  std::string operator/(absl::string_view name) const;

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace macaw
