#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// One HTML page about some runs, which needs no network: curves with every run's name, spread over
// seeds, accuracy by client, where the time went, the last rounds' picture, settings and their
// differences, environment (cli/report/page.html draws them). `paths` are folders of runs, finished
// or not, or NAME-repeat.json files. Of a long run each curve has at most 2000 points, the last
// round among them. Errors name the folder and what is missing in it.
absl::StatusOr<std::string> ReportPage(const std::vector<std::string>& paths);

}  // namespace macaw::cli
