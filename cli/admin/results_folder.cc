#include "cli/admin/results_folder.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;

// The name comes from another machine: a file of the folder, or of one in it.
bool MayBeTaken(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  return parts.size() <= 2 && std::ranges::none_of(parts, [](const std::string& part) {
           return part.empty() || part.front() == '.';
         });
}

}  // namespace

absl::StatusOr<ResultsFolder> ResultsFolder::Make(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " is not empty: give a new folder with --to"));
  }
  return ResultsFolder(folder);
}

absl::Status ResultsFolder::Take(const admin::ResultPiece& piece) {
  if (!piece.file.empty()) {
    MACAW_RETURN_IF_ERROR(Close());
    if (!MayBeTaken(piece.file))
      return absl::InvalidArgumentError("the server sends a file of another folder");
    name_ = piece.file;
    const std::string folder = fs::path(absl::StrCat(folder_, "/", name_)).parent_path().string();
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
    MACAW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(absl::StrCat(folder_, "/", name_)));
    file_.emplace(std::move(file));
    size_ = piece.size;
    written_ = 0;
  }
  if (!file_.has_value()) return absl::DataLossError("the server sends a piece of no file");
  MACAW_RETURN_IF_ERROR(file_->WriteAt(written_, std::as_bytes(std::span(piece.data))));
  written_ += piece.data.size();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ResultsFolder::Finish() {
  MACAW_RETURN_IF_ERROR(Close());
  return names_;
}

absl::Status ResultsFolder::Close() {
  if (!file_.has_value()) return absl::OkStatus();
  AtomicFile file = *std::exchange(file_, std::nullopt);
  if (written_ != size_) {
    return absl::DataLossError(
        absl::StrCat(name_, " came with ", written_, " of ", size_, " bytes: fetch it again"));
  }
  MACAW_RETURN_IF_ERROR(std::move(file).Commit());
  names_.push_back(name_);
  return absl::OkStatus();
}

}  // namespace macaw::cli
