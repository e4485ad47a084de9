#include "cli/simulate/overrides.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/settings.h"
#include "core/status.h"

namespace macaw::cli {

absl::StatusOr<std::vector<Override>> OverridesOf(const SimulateOptions& options,
                                                  const std::string& source) {
  std::vector<Override> overrides;
  for (const std::string& text : options.set) {
    MACAW_ASSIGN_OR_RETURN(Override override, ParseOverride(text));
    overrides.push_back(std::move(override));
  }
  const auto add = [&](const std::optional<std::string>& value, const char* flag, const char* key) {
    if (value.has_value()) overrides.push_back({key, *value, absl::StrCat(flag, " ", *value)});
  };
  if (!source.empty()) {
    add(options.clients, "--clients",
        source == "synthetic" ? "data.synthetic.clients" : "partition.clients");
  }
  add(options.rounds, "--rounds", "run.rounds");
  add(options.seed, "--seed", "run.seed");
  add(options.processes, "--processes", "workers.processes");
  add(options.slots, "--slots", "workers.slots");
  add(options.owners, "--owners", "workers.owners");
  if (options.tcp) overrides.push_back({"server.listen", "127.0.0.1:0", "--tcp"});
  return overrides;
}

absl::Status CheckResumable(const std::vector<Override>& overrides) {
  for (const Override& override : overrides) {
    const bool may = OnlyComputes(override.key) || override.key == "run.rounds" ||
                     absl::StartsWith(override.key, "run.stop");
    if (!may) {
      return absl::InvalidArgumentError(
          absl::StrCat(override.place, ": a run that goes on keeps its ", override.key,
                       "; only workers.*, server.*, state.*, scheduler.*, emulation.*, run.rounds "
                       "(more of them), run.stop, "
                       "run.checkpoint_every and run.client_records may change"));
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
