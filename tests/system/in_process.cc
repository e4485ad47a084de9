#include "tests/system/in_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/client_state.h"
#include "cli/config/devices.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/process/programs.h"
#include "cli/simulate/output.h"
#include "cli/simulate/simulate.h"
#include "core/files.h"
#include "core/status.h"
#include "data/subset.h"
#include "sdk/catalogue.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "testing/local_link.h"
#include "training/backends.h"
#include "worker/worker.h"

// No machine loses power in these runs, and each would wait for the disk many times.
extern "C" int fsync(int) { return 0; }
extern "C" int fdatasync(int) { return 0; }

namespace macaw::testing_support {
namespace {

using Json = nlohmann::json;

const sdk::Catalogue& Builtins() {
  static const auto* const catalogue = new sdk::Catalogue(sdk::Catalogue::Builtins());
  return *catalogue;
}

training::Backends& Modules() {
  static auto* const backends =
      new training::Backends(training::Backends::FolderBeside(*cli::ProgramFolder()));
  return *backends;
}

// A worker and the clients that it has.
struct Node {
  worker::Options options;
  std::unique_ptr<const data::Dataset> part;  // null: all clients
};

std::vector<Node> NodesOf(const cli::Config& config, const data::Dataset& dataset,
                          const Execution& execution) {
  std::vector<Node> nodes;
  const auto add = [&](std::string name, uint32_t slots) -> Node& {
    Node& node = nodes.emplace_back();
    node.options.slots = slots;
    node.options.backend = config.node.workers.backend;
    node.options.scratch_dir = absl::StrCat(execution.folder, "/", name, "/scratch");
    node.options.state = config.node.state.Options();
    node.options.state.path = absl::StrCat(execution.folder, "/", name, "/state");
    node.options.name = std::move(name);
    return node;
  };
  const auto take = [&](Node& node, const data::SubsetRange& range) {
    node.part = *data::SubsetOf(dataset, range);
    node.options.by_name = true;
  };
  for (uint32_t i = 0; i < execution.owners; ++i) {
    Node& node = add(absl::StrCat("owner-", i), 1);
    take(node, {.begin = i, .end = i + 1, .central_test = false});
    node.options.owner = true;
  }
  for (uint32_t i = 0; i < execution.workers; ++i) {
    Node& node = add(absl::StrCat("worker-", i), execution.slots);
    // Workers of one host keep the clients' states in one place.
    node.options.state.path = execution.folder + "/state";
    if (execution.owners > 0)
      take(node, {.begin = execution.owners, .end = dataset.info().clients});
  }
  return nodes;
}

absl::Status FollowLog(const Execution& execution, server::Options& options) {
  MACAW_ASSIGN_OR_RETURN(const server::log::History history,
                         server::log::ReadHistory(execution.repeats + "/rounds.log"));
  if (history.sessions().empty()) return absl::DataLossError("the log tells of no run");
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  std::vector<ClientId> clients;
  for (const uint64_t client : execution.without) clients.emplace_back(client);
  server::log::LeaveOut(clients, history, options.decisions);
  return absl::OkStatus();
}

absl::StatusOr<RunBytes> BytesIn(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/summary.json"));
  MACAW_ASSIGN_OR_RETURN(std::string metrics, ReadFile(folder + "/metrics.jsonl"));
  const Json summary = Json::parse(text);
  return RunBytes{summary.value("model_digest", ""), summary.value("state_digest", ""),
                  std::move(metrics)};
}

}  // namespace

void PrintTo(const RunBytes& bytes, std::ostream* out) {
  *out << "model " << bytes.model.substr(0, 12) << ", states " << bytes.states.substr(0, 12) << "\n"
       << bytes.metrics;
}

std::vector<Json> RowsOf(const RunBytes& bytes) {
  std::vector<Json> rows;
  for (const absl::string_view line : absl::StrSplit(bytes.metrics, '\n', absl::SkipEmpty()))
    rows.push_back(Json::parse(line));
  return rows;
}

std::optional<std::string> DifferenceOfLogs(const std::string& folder, const std::string& other) {
  const auto one = server::log::ReadHistory(folder + "/rounds.log"),
             two = server::log::ReadHistory(other + "/rounds.log");
  if (!one.ok() || !two.ok()) return "one cannot be read";
  return server::log::FirstDifference(*one, *two);
}

absl::StatusOr<InProcess> InProcess::Checked(const std::string& config,
                                             const std::vector<std::string>& set) {
  MACAW_ASSIGN_OR_RETURN(const cli::Document document, cli::OpenDocument(config));
  std::vector<cli::Override> overrides;
  for (const std::string& one : set) {
    MACAW_ASSIGN_OR_RETURN(cli::Override override, cli::ParseOverride(one));
    override.folder = document.folder;
    overrides.push_back(std::move(override));
  }
  cli::Output output;
  MACAW_ASSIGN_OR_RETURN(
      cli::CheckedRun checked,
      cli::CheckBeforeRun(document, Builtins(), overrides, cli::Idle::kRefuse, output));
  const cli::NodeConfig& node = checked.config.node;
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<const data::Dataset> dataset,
                         Builtins().OpenDataset(node.data, node.partition));
  return InProcess(std::move(checked.config), std::move(dataset));
}

absl::StatusOr<RunBytes> InProcess::Run(const Execution& execution) const {
  if (execution.interrupted > 0) {
    MACAW_RETURN_IF_ERROR(Session(execution, /*resume=*/false, execution.interrupted));
    MACAW_RETURN_IF_ERROR(Session(execution, /*resume=*/true, 0));
  } else {
    MACAW_RETURN_IF_ERROR(Session(execution, /*resume=*/false, 0));
  }
  return BytesIn(execution.folder);
}

absl::Status InProcess::Session(const Execution& execution, bool resume, uint32_t until) const {
  std::vector<Node> nodes = NodesOf(config_, *dataset_, execution);
  server::Options options;
  options.run = config_.run;
  options.config = config_.node.server;
  options.config.workers = static_cast<uint32_t>(nodes.size());
  options.run_dir = execution.folder;
  options.resume = resume;
  options.stepwise = until > 0;
  MACAW_RETURN_IF_ERROR(MakeDirectories(execution.folder));
  if (config_.run.devices.on()) {
    MACAW_ASSIGN_OR_RETURN(const cli::ClientDevices devices,
                           cli::OpenClientDevices(config_, *dataset_));
    options.devices = devices.devices;
    options.presence = devices.presence;
  }
  if (!execution.repeats.empty()) MACAW_RETURN_IF_ERROR(FollowLog(execution, options));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, cli::SpecOf(config_));
  MACAW_ASSIGN_OR_RETURN(FlatVector initial, cli::InitialWeights(config_, spec));

  std::atomic<server::Coordinator*> server = nullptr;
  options.on_row = [&](const std::string& row) {
    if (until > 0 && Json::parse(row).value("round", 0U) == until) server.load()->Interrupt();
  };
  MACAW_ASSIGN_OR_RETURN(
      const std::unique_ptr<server::Coordinator> coordinator,
      server::Coordinator::Start(std::move(options), std::move(initial), Builtins().algorithms()));
  server = coordinator.get();
  if (until > 0) coordinator->GoOnTo(Round(until));

  std::stop_source stop;
  std::vector<absl::Status> ended(nodes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto link = fleet::MakeLocalLink(*coordinator);
      const data::Dataset& clients = nodes[i].part == nullptr ? *dataset_ : *nodes[i].part;
      ended[i] = worker::Run(nodes[i].options, clients, *link, Builtins().algorithms(), Modules(),
                             stop.get_token());
      if (ended[i].ok()) return;
      stop.request_stop();  // rounds would wait for it
      coordinator->Interrupt();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const absl::StatusOr<server::Outcome> outcome = coordinator->Wait();
  MACAW_RETURN_IF_ERROR(outcome.status());
  for (const absl::Status& status : ended) MACAW_RETURN_IF_ERROR(status);
  const bool interrupted = outcome->kind == server::Outcome::Kind::kInterrupted;
  if (interrupted == (until > 0)) return absl::OkStatus();
  return absl::InternalError(interrupted ? "the run was interrupted" : "the run ended too soon");
}

}  // namespace macaw::testing_support
