#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/bundle/manifest.h"

namespace macaw::cli {

struct BundleOptions {
  std::string run;       // the folder of a run that is over
  std::string out;       // the file; "": the folder's name and .macaw.zip
  bool model = true;     // final and best model, and first weights that a file gave
  bool log = true;       // rounds.log: digests of each round; it has names of nodes
  bool clients = false;  // what is known of single clients: clients.jsonl and the like
  std::string license;   // a URL, for the metadata
  std::string version;   // of this program
};

struct PackedBundle {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;
  Manifest manifest;
};

// Packs the result of a run as one ZIP archive, whose bytes depend on the folder and the options
// alone. Its data are never in it.
absl::StatusOr<PackedBundle> PackBundle(const BundleOptions& options);

// Whether a file of a bundle may have this name: a relative path of plain parts, in text that a
// terminal and a file system can show, of 255 bytes at most.
bool IsSafeName(absl::string_view name);

// A bundle that was read: every file is what the manifest says. Immutable.
class Bundle {
 public:
  // Refuses any file that is not byte for byte one that PackBundle writes of these contents:
  // damage, further or repeated members, names that leave a folder. Takes memory for the file
  // twice. Errors name the file and what is wrong.
  static absl::StatusOr<Bundle> Open(const std::string& path);
  static absl::StatusOr<Bundle> Parse(std::string bytes, const std::string& name);

  const Manifest& manifest() const { return manifest_; }
  const std::string& sha256() const { return sha256_; }  // of the whole file
  const std::string& name() const { return name_; }
  // By name; with bundle.json. Names are relative, and no part of one is "..".
  const std::map<std::string, std::string>& files() const { return files_; }

 private:
  std::string name_, sha256_;
  Manifest manifest_;
  std::map<std::string, std::string> files_;
};

}  // namespace macaw::cli
