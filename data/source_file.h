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

bool IsFolder(const std::string& path);

// The first of `names` (each also with ".gz") that lies in `folder`; "" when none does.
std::string FindIn(const std::string& folder, const std::vector<std::string>& names);

// Files of a folder whose names end so, sorted by name.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder,
                                                 absl::string_view ending);

}  // namespace macaw::data
