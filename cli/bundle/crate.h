#pragma once

#include <string>

#include "cli/bundle/manifest.h"

namespace macaw::cli {

// The metadata of a bundle as RO-Crate 1.1 (https://w3id.org/ro/crate/1.1): the data set with its
// files, their sizes and sha256; the run as a CreateAction with its command and the program that
// did it. The manifest has all files but bundle.json and this one. `license`: a URL, or "".
std::string CrateJson(const Manifest& manifest, const std::string& license);

}  // namespace macaw::cli
