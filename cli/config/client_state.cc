#include "cli/config/client_state.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "state/redis_url.h"

namespace macaw::cli {
namespace {

constexpr char kPassword[] = "MACAW_REDIS_PASSWORD";

}  // namespace

absl::StatusOr<std::vector<algorithms::NamedLayout>> StateItemsOf(
    const Config& config, const models::ModelSpec& spec, const algorithms::Registry& registry) {
  const RunPlan& run = config.run;
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(run));
  MACAW_ASSIGN_OR_RETURN(algorithms::Schema schema,
                         algorithms::MakeSchema(algorithm, algorithms::SetupOf(run, spec.layout)));
  return std::move(schema.state);
}

state::StoreOptions StoreOptionsOf(const Config& config, const std::string& run_folder) {
  state::StoreOptions options = config.node.state.Options();
  if (options.path.empty() && !run_folder.empty())
    options.path = absl::StrCat(run_folder, "/state");
  if (const char* password = std::getenv(kPassword); password != nullptr)
    options.password = password;
  return options;
}

void HandRedisPasswordOn(const Config& config) {
  const std::string password = state::PasswordIn(config.node.state.url);
  if (!password.empty()) ::setenv(kPassword, password.c_str(), /*overwrite=*/1);
}

absl::Status CheckStateStore(const Config& config, Start start) {
  if (config.node.state.store == "redis" && config.node.state.url.empty()) {
    return absl::InvalidArgumentError(
        "state.store = \"redis\" needs state.url: unix:/path, redis://host:port, or spawn");
  }
  if (config.node.state.store == "redis" && config.node.state.url != "spawn")
    MACAW_RETURN_IF_ERROR(state::ParseRedisUrl(config.node.state.url).status());
  if (config.node.state.store != "memory") return absl::OkStatus();
  const std::string& name = config.run.algorithm.name;
  if (start == Start::kResumed) {
    return absl::FailedPreconditionError(
        absl::StrCat("state.store = \"memory\" keeps the clients' states of ", name,
                     " in memory, and they end with the worker's process: such a run cannot be "
                     "resumed. If the run began with another state.store, resume it with that "
                     "one"));
  }
  if (config.node.workers.processes == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("state.store = \"memory\" keeps the clients' states of ", name,
                   " in one worker process, but workers.processes is ",
                   config.node.workers.processes, ": set that to 1, or state.store to \"disk\""));
}

}  // namespace macaw::cli
