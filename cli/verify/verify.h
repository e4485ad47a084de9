#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bundle/bundle.h"
#include "cli/diff/diff.h"
#include "cli/verify/stated_figures.h"

namespace macaw::cli {

struct VerifyOptions {
  std::string out;     // where the run is made again; "": a folder that is removed at the end
  std::string config;  // a simulation of a deployed run, whose server has no data; "": the bundle's
  std::vector<std::string> set;  // paths of files that have moved, and keys that only compute
  std::optional<std::string> processes, slots;
  double tolerance = 0.02;  // where the numeric profile and the model's bits are others
  bool trust = false;       // run code that the configuration brings
  bool quiet = false;
};

// What became of a verification.
struct Verification {
  DiffReport diff;            // the bundle's run and the one of this machine
  FigureReport figures;       // what the bundle states beside its rows and its model
  std::string profile, here;  // numeric profiles
  bool same_profile = true;
  bool same_model = false;  // the models have the same digest
  // The profiles differ, and all the same both runs end with the same bits of a model that all
  // clients share: metrics are compared with a small tolerance.
  bool same_bits = false;
  bool from_log = false;  // who was left out was read from the bundle's log
  std::string folder;     // of the run that was made; "": it is removed

  bool same() const { return diff.same() && !figures.difference.has_value(); }
};

// Runs the bundle's configuration again, in child processes, and compares. kCancelled: interrupted.
// Any other error: it could not be run here, and nothing is known of the result. What the bundle
// asks of one machine (ports, folders, trackers) is not followed, and no code that it names is run
// without `trust`.
absl::StatusOr<Verification> Verify(const Bundle& bundle, const VerifyOptions& options);

std::string VerificationText(const Bundle& bundle, const Verification& verification);
std::string VerificationJson(const Bundle& bundle, const Verification& verification);

}  // namespace macaw::cli
