#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sdk/catalogue.h"

namespace macaw::sdk {

// Loads shared libraries and adds what they contribute to a catalogue. A library stays loaded until
// the process ends, because objects of its types may live as long. Call it in main(), before there
// are threads.
class Loader {
 public:
  // Errors name the file and what is wrong with it: not there, not a plug-in, built for another
  // release or by another compiler (both tags are shown), a name that is taken, or what its own
  // code says. Nothing of a refused plug-in stays in `catalogue`.
  static absl::Status Load(const std::string& path, Catalogue& catalogue);
};

// The built-ins and these plug-ins, in this order.
absl::StatusOr<Catalogue> LoadAll(const std::vector<std::string>& paths);

}  // namespace macaw::sdk
