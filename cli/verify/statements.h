#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/bundle/bundle.h"
#include "cli/diff/trace.h"

namespace macaw::cli {

// What bundle.json says of the run is what people are shown, and the numeric profile decides how
// closely it is compared. So the files of the bundle must say the same: summary.json of its name,
// algorithm, end, rounds, program, model, data and profile, config.toml of its seeds and its data,
// rounds.log of the profile. An error names the first statement that another file denies.
// `recorded`: the bundle's run, read.
absl::Status CheckStatements(const Bundle& bundle, const Trace& recorded);

// Who stopped a run that was stopped, by the bundle's summary: "rule" or "caller"; "": an earlier
// release has not said.
std::string StoppedBy(const Bundle& bundle);

}  // namespace macaw::cli
