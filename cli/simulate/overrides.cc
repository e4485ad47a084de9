#include "cli/simulate/overrides.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/settings.h"
#include "cli/config/writer.h"
#include "core/status.h"

namespace macaw::cli {

absl::StatusOr<std::vector<Override>> OverridesOf(const SimulateOptions& options,
                                                  const Document& document) {
  MACAW_ASSIGN_OR_RETURN(std::vector<Override> overrides, ParseOverrides(options.set));
  const auto add = [&](const std::optional<std::string>& value, const char* flag, const char* key) {
    if (value.has_value()) overrides.push_back({key, *value, absl::StrCat(flag, " ", *value)});
  };
  if (options.clients.has_value()) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Value> source,
                           Lookup(document, overrides, "data.source"));
    const bool synthetic = source.has_value() && *source == Value{std::string("synthetic")};
    add(options.clients, "--clients", synthetic ? "data.synthetic.clients" : "partition.clients");
  }
  add(options.rounds, "--rounds", "run.rounds");
  add(options.seed, "--seed", "run.seed");
  add(options.processes, "--processes", "workers.processes");
  add(options.slots, "--slots", "workers.slots");
  add(options.owners, "--owners", "workers.owners");
  if (options.tcp) overrides.push_back({"server.listen", "127.0.0.1:0", "--tcp"});
  return overrides;
}

absl::Status CheckResumable(const std::vector<Override>& overrides, const Document& document,
                            const sdk::Catalogue& catalogue) {
  if (overrides.empty()) return absl::OkStatus();
  const auto with = [&](const std::vector<Override>& changes) {
    return ReadConfig(document, changes, catalogue, Idle::kLeaveOut);
  };
  MACAW_ASSIGN_OR_RETURN(const Config before, with({}));
  for (const Override& override : overrides) {
    if (!IsKeptByAResume(override.key, before)) continue;
    const absl::StatusOr<Config> after = with({override});
    if (after.ok() && EffectiveToml(*after) == EffectiveToml(before)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(override.place, ": a run that goes on keeps its ", override.key, "; only ",
                     absl::StrJoin(KeysThatMayChange(before), ", "),
                     " may change (run.rounds: only more of them)"));
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
