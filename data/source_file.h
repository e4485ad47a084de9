#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"

namespace macaw::data {

// A file as a reader sees it: its bytes, unpacked when it is gzip (whatever its name). Adds the
// stored bytes to `digest`, so that a dataset's name follows what is on disk. Errors name the file;
// a compressed file that ends early, has trash behind it or unpacks to more than 16 GiB is refused.
absl::StatusOr<std::string> ReadSource(const std::string& path, Digester& digest);

// The first `most` bytes of it, unpacked likewise. A damaged rest is not noticed.
absl::StatusOr<std::string> ReadHead(const std::string& path, size_t most);

// An error that says so unless `path` is a file or a folder.
absl::Status CheckExists(const std::string& path);

bool IsFolder(const std::string& path);

// The first of `names` (each also with ".gz") that lies in `folder`; "" when none does.
std::string FindIn(const std::string& folder, const std::vector<std::string>& names);

// Files of a folder whose names end so, sorted by name.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder,
                                                 absl::string_view ending);

}  // namespace macaw::data
