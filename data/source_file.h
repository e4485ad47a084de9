#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"

namespace macaw::data {

// Reads a file for a reader and unpacks it if it is gzip (whatever its name). Adds the stored bytes
// to `digest`, so that a dataset's digest follows what is on disk. Errors name the file. A
// compressed file that ends early, has extra bytes behind it or unpacks to more than 16 GiB is an
// error.
absl::StatusOr<std::string> ReadSource(const std::string& path, Digester& digest);

// Reads the first `most` bytes, also unpacked. Damage behind them is not noticed.
absl::StatusOr<std::string> ReadHead(const std::string& path, size_t most);

// Returns an error unless `path` is a file or a folder.
absl::Status CheckExists(const std::string& path);

bool IsFolder(const std::string& path);

// The first of `names` (each also tried with ".gz") that exists in `folder`; "" when none does.
std::string FindIn(const std::string& folder, const std::vector<std::string>& names);

// The files of a folder whose names end in `ending`, sorted by name.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder,
                                                 absl::string_view ending);

}  // namespace macaw::data
