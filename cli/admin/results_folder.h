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

inline constexpr char kPart[] = ".macaw-part";

// Writes the files of a run, as their pieces come from a server, into a folder. They are there when
// all have come: until then they are in kPart in the folder, and what a fetch that was cut has left
// there makes room for the next one.
class ResultsFolder {
 public:
  // The folder is made with its first file. kAlreadyExists: it is not empty.
  static absl::StatusOr<ResultsFolder> Make(const std::string& folder);
  ResultsFolder(ResultsFolder&& other) noexcept;
  ~ResultsFolder();  // without Finish nothing is left
  absl::Status Take(const admin::ResultPiece& piece);
  // Puts the files into the folder and returns their names. Call it when all pieces were taken.
  absl::StatusOr<std::vector<std::string>> Finish();

 private:
  explicit ResultsFolder(std::string folder)
      : folder_(std::move(folder)), part_(folder_ + "/" + kPart) {}
  absl::Status Close();

  std::string folder_, part_, name_;
  std::optional<AtomicFile> file_;
  uint64_t size_ = 0, written_ = 0;
  std::vector<std::string> names_;
  bool was_there_ = false;  // the folder, before anything came
  bool made_ = false;       // `part_`
};

}  // namespace macaw::cli
