#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/files.h"
#include "proto/admin/queue_handler.h"

namespace macaw::cli {

// Writes the files of a run, as their pieces come from a server, into a folder. A file that did not
// come whole is not there.
class ResultsFolder {
 public:
  // The folder is made with its first file. kAlreadyExists: it is not empty.
  static absl::StatusOr<ResultsFolder> Make(const std::string& folder);
  absl::Status Take(const admin::ResultPiece& piece);
  // The names of the files. Call it when all pieces were taken.
  absl::StatusOr<std::vector<std::string>> Finish();

 private:
  explicit ResultsFolder(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Close();

  std::string folder_, name_;
  std::optional<AtomicFile> file_;
  uint64_t size_ = 0, written_ = 0;
  std::vector<std::string> names_;
};

}  // namespace macaw::cli
