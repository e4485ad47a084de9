#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/files.h"
#include "sdk/catalogue.h"

namespace macaw::sdk {

// Loads shared libraries and rules in Python (rules/load.h), and adds their contents to a
// catalogue. A library stays loaded until the process ends, because objects of its types may live
// that long. Call it in main(), before any thread is started.
class Loader {
 public:
  // Errors name the file and what is wrong with it: it does not exist, is no plug-in, was built for
  // another release or compiler (both tags are shown), adds a name that is taken, or reports an
  // error itself. On an error `catalogue` is not changed.
  static absl::Status Load(const std::string& path, Catalogue& catalogue);

 private:
  static absl::Status LoadPython(const std::string& path, const MappedFile& file,
                                 const Digest& digest, Catalogue& catalogue);
};

// The built-ins and these plug-ins, in this order.
absl::StatusOr<Catalogue> LoadAll(const std::vector<std::string>& paths);

}  // namespace macaw::sdk
