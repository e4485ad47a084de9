#include "cli/admin/results_folder.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

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
  ResultsFolder made(folder);
  std::error_code error;
  const auto refused = [&] {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " is not empty: give a new folder with --to"));
  };
  made.was_there_ = fs::exists(folder, error);
  if (made.was_there_ && !fs::is_directory(folder, error)) return refused();
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() != kPart) return refused();
  }
  fs::remove_all(made.part_, error);
  return made;
}

ResultsFolder::ResultsFolder(ResultsFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      part_(std::move(other.part_)),
      name_(std::move(other.name_)),
      file_(std::move(other.file_)),
      size_(other.size_),
      written_(other.written_),
      names_(std::move(other.names_)),
      was_there_(other.was_there_),
      made_(std::exchange(other.made_, false)) {}

ResultsFolder::~ResultsFolder() {
  if (!made_) return;
  file_.reset();
  std::error_code ignored;
  fs::remove_all(part_, ignored);
  if (!was_there_) fs::remove(folder_, ignored);  // if it is empty
}

absl::Status ResultsFolder::Take(const admin::ResultPiece& piece) {
  if (!piece.file.empty()) {
    MACAW_RETURN_IF_ERROR(Close());
    if (!MayBeTaken(piece.file))
      return absl::InvalidArgumentError("the server sends a file of another folder");
    name_ = piece.file;
    const fs::path path = absl::StrCat(part_, "/", name_);
    MACAW_RETURN_IF_ERROR(MakeDirectories(path.parent_path().string()));
    made_ = true;
    MACAW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path.string()));
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
  if (!made_) return names_;
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(part_, error)) entries.push_back(entry.path());
  for (const fs::path& entry : entries) {
    if (!error) fs::rename(entry, fs::path(folder_) / entry.filename(), error);
  }
  made_ = false;  // what cannot be moved stays there
  if (error) {
    return absl::UnavailableError(absl::StrCat(folder_, ": ", error.message(),
                                               ". All files have come; some are still in ", part_));
  }
  fs::remove(part_, error);
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
