#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/fd.h"

namespace macaw::cli {

// A file that grows by records, which another program may read meanwhile. A crash can leave a torn
// record at its end. Movable; one thread.
class GrowingFile {
 public:
  // Opens the file, or makes it, with its folder.
  static absl::StatusOr<GrowingFile> Open(const std::string& path);

  absl::StatusOr<std::string> Read() const;  // all of it
  absl::Status Cut(uint64_t bytes);          // keeps so many; the next ones go behind them
  absl::Status Append(absl::string_view bytes);
  uint64_t size() const { return size_; }

 private:
  GrowingFile(std::string path, Fd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
};

}  // namespace macaw::cli
