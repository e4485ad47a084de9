#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// What `macaw admin` prints, made of the server's status (JSON, proto/admin/status.h).
namespace macaw::cli {

absl::StatusOr<std::string> StatusView(const std::string& json);  // a few lines
absl::StatusOr<std::string> NodesView(const std::string& json);   // a table

// A line of `macaw admin watch`. `key` is the same as long as only times have changed.
struct WatchLine {
  std::string text, key;
  bool ended = false;
};
absl::StatusOr<WatchLine> WatchView(const std::string& json);

// The runs of a standing server, as a table.
absl::StatusOr<std::string> RunsView(const std::string& json);

// What a change has brought, in the server's words; with `json` as {"said": …}.
std::string SaidView(const std::string& text, bool json);
// The code of an invite; with `json` as {"code": …, "until": …}.
std::string CodeView(const std::string& code, const std::string& until, bool json);
// The files that were fetched; with `json` as {"folder": …, "files": […]}.
std::string FilesView(const std::string& folder, const std::vector<std::string>& names, bool json);

// The open round; for `abort-round` without a number.
absl::StatusOr<uint32_t> RoundOf(const std::string& json);
// The round whose model is evaluated; for `skip-evaluation` without a number.
absl::StatusOr<uint32_t> EvaluatedRoundOf(const std::string& json);

}  // namespace macaw::cli
