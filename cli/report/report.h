#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// What the page shows of these runs, as JSON in which no `<` stands. `paths` are folders of runs,
// finished or not, of sweeps and repeats, or NAME-repeat.json files. Of a long run each curve has
// at most 2000 points, the last round among them. Errors name the folder and what is missing in it.
absl::StatusOr<std::string> ReportData(const std::vector<std::string>& paths);

// One HTML page that needs no network: a row and curves for each configuration, spread over seeds,
// accuracy by client, where the time went, the last rounds' picture, settings and their
// differences, environment. `data` is ReportData's. The scripts in cli/report/page draw it; their
// update(data) serves pages that show a run while it goes on.
std::string ReportPage(const std::string& data);

}  // namespace macaw::cli
