#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/numeric_profile.h"

namespace macaw::cli {

constexpr char kManifestFile[] = "bundle.json";
constexpr char kCrateFile[] = "ro-crate-metadata.json";

// A file of a bundle.
struct BundledFile {
  std::string name;  // such as "figures/accuracy.svg"
  uint64_t bytes = 0;
  std::string sha256;
};

// A file that a key of the configuration names, other than data: first weights, a module, a table
// of devices, a plug-in.
struct BundledInput {
  std::string key;   // "model.init"
  std::string path;  // where the run had it
  uint64_t bytes = 0;
  std::string sha256;  // "": it was gone when the bundle was made
  std::string file;    // its name in the bundle; "": it is not in it
};

// The data of a run, which is never in a bundle.
struct BundledData {
  std::string source;    // data.source; "": of a server without data
  std::string path;      // where the run had it; "": generated
  std::string digest;    // of the clients and their rows
  bool by_name = false;  // the configuration alone gives it: it is generated
};

// What a bundle says of itself: bundle.json.
struct Manifest {
  std::string macaw;    // the version that packed it
  std::string program;  // the server that ended the run, with its version; "": not known
  std::string command;  // that runs the configuration
  std::string name, algorithm, end, model_digest;
  uint32_t rounds = 0;
  std::string began, ended;                  // UTC, as in ISO 8601; "": no log says so
  std::map<std::string, std::string> seeds;  // by key
  NumericProfile profile;
  BundledData data;
  std::vector<BundledInput> inputs;
  std::vector<BundledFile> files;     // all but bundle.json itself, sorted by name
  std::vector<std::string> left_out;  // what is not in it, and why; sentences

  // Whether there is something to make again: a round, or with run.rounds = 0 the evaluation of the
  // initial model.
  bool has_result() const { return rounds > 0 || end == "finished"; }
};

std::string ManifestJson(const Manifest& manifest);
// `name`: of the bundle, for messages. Any bytes give a manifest or an error of one line.
absl::StatusOr<Manifest> ParseManifest(const std::string& json, const std::string& name);

}  // namespace macaw::cli
