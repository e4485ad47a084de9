#include "cli/simulate/trial.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/config/writer.h"
#include "cli/simulate/owners.h"
#include "cli/simulate/run.h"
#include "cli/simulate/run_folder.h"
#include "cli/simulate/virtual_rounds.h"
#include "cli/timeline/timeline.h"
#include "core/child.h"
#include "core/files.h"
#include "core/status.h"
#include "server/engine/timed_round.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kEvaluateEvery = 2;  // so that rounds without an evaluation are there, too
constexpr uint32_t kFewRounds = 3;      // are done even if they take longer than is enough
constexpr uint32_t kMostRounds = 100;

// A row of metrics.jsonl, and when it came.
struct ToldRow {
  Json row;
  double seconds = 0;  // since the trial began
};

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

absl::Status WriteTrialFiles(const Config& config, const std::string& folder) {
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(folder + "/node.toml", NodeToml(config.node)));
  return AtomicWriteFile(folder + "/config.toml", EffectiveToml(config));
}

// The same error without the names of the trial's logs, "(FOLDER/logs/worker-0.log)": they are gone
// when it is read.
absl::Status WithoutLogs(const absl::Status& status, const std::string& folder) {
  std::string message(status.message());
  const std::string begin = absl::StrCat(" (", folder, "/");
  for (size_t at = message.find(begin); at != message.npos; at = message.find(begin)) {
    const size_t end = message.find(')', at);
    message.erase(at, end == message.npos ? end : end + 1 - at);
  }
  return message == status.message() ? status : absl::Status(status.code(), message);
}

// Runs the rounds. The rows are told as they come; nothing more is asked once that is enough.
absl::StatusOr<std::vector<ToldRow>> RunRounds(const Config& config, const TrialOptions& options,
                                               const HeldFolder& folder) {
  // Both ends stay open here, so that a server that has ended breaks no pipe.
  MACAW_ASSIGN_OR_RETURN(const PipePair steps, MakePipe());
  const auto tell = [&](const std::string& line) {
    return ::write(steps.write.get(), line.data(), line.size()) ==
           static_cast<ssize_t>(line.size());
  };
  const Clock& clock = SteadyClock();
  const TimePoint began = clock.Now();
  std::vector<ToldRow> rows;
  const auto on_row = [&](const std::string& text) {
    Json row = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) return;
    const Duration elapsed = clock.Now() - began;
    rows.push_back({std::move(row), ToSeconds(elapsed)});
    const Duration patience = options.enough + (options.limit - options.enough) / 2;
    const bool more = rows.size() < kMostRounds &&
                      elapsed < (rows.size() < kFewRounds ? patience : options.enough);
    (void)tell(more ? absl::StrCat("go ", rows.size() + 1, "\n") : "stop the trial is over\n");
  };
  const absl::StatusOr<SupervisedEnd> end =
      RunInChildren(config, {.folder = folder.path,
                             .config_file = folder.path + "/config.toml",
                             .node_file = folder.path + "/node.toml",
                             .lock = folder.lock.get(),
                             .on_row = on_row,
                             .stateful = options.stateful,
                             .steps = steps.read.get(),
                             .limit = options.limit,
                             .quiet = true,
                             .silent = true});
  // Few clients may not learn where many do: the rounds before that count.
  if (!end.ok() && !rows.empty()) return rows;
  if (!end.ok()) return WithoutLogs(end.status(), folder.path);
  if (*end == SupervisedEnd::kInterrupted || *end == SupervisedEnd::kKilled)
    return absl::CancelledError("the estimate was interrupted");
  return rows;
}

// What the timeline says of one round, whose phases follow each other.
struct RoundTimes {
  double opened = 0, closed = 0, busiest = 0;  // seconds
  std::map<uint64_t, double> turns;            // by client
};
std::map<uint32_t, RoundTimes> TimesOf(const Timeline& timeline) {
  std::map<uint32_t, RoundTimes> rounds;
  for (const Timeline::Phase& phase : timeline.phases) {
    const auto [at, first] = rounds.try_emplace(phase.round);
    RoundTimes& times = at->second;
    if (first) times.opened = phase.opened * 1e-6;
    times.closed = phase.closed * 1e-6;
    std::map<Timeline::Place, double> busy;
    double busiest = 0;
    for (const Timeline::Turn& turn : phase.turns) {
      const double seconds = turn.length * 1e-6;
      busiest = std::max(busiest, busy[turn.place] += seconds);
      uint64_t client = 0;
      if (absl::SimpleAtoi(absl::StripPrefix(turn.name, "client "), &client))
        times.turns[client] += seconds;
    }
    times.busiest += busiest;
  }
  return rounds;
}

void AddRound(const ToldRow& told, const RoundTimes& times, const std::vector<PlannedTurn>& turns,
              Trial& trial) {
  const auto column = [&](const char* name) { return told.row.value(name, 0.0); };
  const Round round(told.row.value("round", 0U));
  trial.rounds.push_back({.round = round,
                          .clients = told.row.value("clients", uint64_t{0}),
                          .drawn = turns.size(),
                          .steps = column("steps"),
                          .bytes_up = column("bytes_up"),
                          .bytes_down = column("bytes_down"),
                          .seconds = times.closed - times.opened,
                          .overhead = times.closed - times.opened - times.busiest,
                          .lag = told.seconds - times.closed,
                          .evaluated = round.value % kEvaluateEvery == 0});
  for (const PlannedTurn& turn : turns) {
    trial.planned_steps += static_cast<double>(turn.steps);
    const auto timed = times.turns.find(turn.client.value);
    if (timed != times.turns.end())
      trial.turns.push_back({.passed = turn.passed, .seconds = timed->second});
  }
}

void AddMemory(const std::string& folder, Trial& trial) {
  const absl::StatusOr<std::string> text = ReadFile(folder + "/summary.json");
  if (!text.ok()) return;
  const Json summary = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object() || !summary.contains("peak_memory_bytes")) return;
  const Json& peaks = summary["peak_memory_bytes"];
  trial.server_memory = peaks.value("server", uint64_t{0});
  uint64_t workers = 0;
  for (const Json& worker : peaks.value("workers", Json::array()))
    workers += worker.get<uint64_t>();
  if (workers > 0) trial.worker_memory = workers;
}

}  // namespace

uint64_t Trial::clients() const {
  uint64_t sum = 0;
  for (const TriedRound& round : rounds) sum += round.clients;
  return sum;
}

double Trial::PerClient(double TriedRound::*column) const {
  double sum = 0;
  uint64_t counted = 0;
  for (size_t i = rounds.size() / 2; i < rounds.size(); ++i) {
    sum += rounds[i].*column;
    counted += rounds[i].clients;
  }
  return sum / static_cast<double>(std::max<uint64_t>(counted, 1));
}

// The first round is slower than others: nothing is in a cache yet.
double Trial::Overhead() const {
  std::vector<double> overheads;
  for (const TriedRound& round : rounds) {
    if (rounds.size() < kFewRounds || &round != &rounds.front())
      overheads.push_back(std::max(round.overhead, 0.0));
  }
  return MeanOf(overheads);
}

std::optional<double> Trial::Evaluation() const {
  std::vector<double> with, without;
  for (const TriedRound& round : rounds) (round.evaluated ? with : without).push_back(round.lag);
  if (with.empty() || without.empty()) return std::nullopt;
  return std::max(MeanOf(with) - MeanOf(without), 0.0);
}

Config TrialConfig(const Config& config, const TrialOptions& options) {
  Config trial = config;
  RunPlan& run = trial.run;
  run.cohort.size = options.cohort;
  run.cohort.fraction = 0;
  // The noise is that of the run's cohort, not that of a smaller one: it would drown the updates.
  if (run.privacy.on() && !run.privacy.noise_cohort.has_value())
    run.privacy.noise_cohort = config.run.cohort.size;
  run.rounds = std::max(run.rounds, 2 * kFewRounds);
  run.evaluation.every = kEvaluateEvery;
  run.evaluation.leave_one_out = 0;
  run.evaluation.unlearn.clear();
  if (options.steps > 0) {
    run.local.steps = options.steps;
    run.local.epochs = LocalConfig().epochs;
    run.local.qsr = 0;
  }
  server::ServerConfig& server = trial.node.server;
  server.stop = {};
  server.round.enough = std::min(server.round.enough, options.cohort);
  run.devices.enough = std::min(run.devices.enough, options.cohort);
  server.workers = 0;
  if (server.listen != "127.0.0.1:0") server.listen.clear();  // --tcp is measured
  server.client_records = false;
  server.admin = "off";
  server.http.clear();
  server.http_token.clear();
  trial.node.track.to.clear();
  state::StateConfig& state = trial.node.state;
  if (state.store == "redis" && state.url != "spawn") state = {};
  state.path.clear();
  return trial;
}

absl::StatusOr<Trial> Try(const Config& config, const sdk::Catalogue& catalogue,
                          const TrialOptions& options, const std::vector<uint32_t>& rows,
                          const std::string& script_values) {
  MACAW_ASSIGN_OR_RETURN(const SocketFolder around, SocketFolder::Make());
  const std::string path =
      (std::filesystem::path(around.socket()).parent_path() / "trial").string();
  MACAW_ASSIGN_OR_RETURN(const HeldFolder folder, MakeRunFolder(path, "trial", /*force=*/false));
  Config tried = TrialConfig(config, options);
  tried.node.server.out = folder.path;
  if (!script_values.empty() && tried.node.model_init.empty()) {
    tried.node.model_init = folder.path + "/model-init.safetensors";
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(tried.node.model_init, script_values));
  }
  MACAW_RETURN_IF_ERROR(WriteTrialFiles(tried, folder.path));
  MACAW_RETURN_IF_ERROR(MakeOwners(tried, catalogue, folder.path));
  MACAW_ASSIGN_OR_RETURN(RowsOfTurn passes,
                         PassesOf(tried.run, catalogue.algorithms(), options.layout));
  MACAW_ASSIGN_OR_RETURN(
      const TurnPlan plan,
      TurnPlan::Make(tried.run, rows, options.devices,
                     server::FirstTraffic(tried.run, *options.layout), std::move(passes)));

  MACAW_ASSIGN_OR_RETURN(const std::vector<ToldRow> told, RunRounds(tried, options, folder));
  Trial trial;
  const absl::StatusOr<Timeline> timeline = ReadTimeline(folder.path + "/timeline.json");
  if (told.empty() || !timeline.ok()) return trial;
  const std::map<uint32_t, RoundTimes> times = TimesOf(*timeline);
  virtual_time::ClockState clock = plan.first();
  for (const ToldRow& row : told) {
    const PlannedRound planned = plan.At(Round(row.row.value("round", 0U)), clock);
    if (planned.time.has_value()) clock = After(planned.time->end, FactsOf(row.row));
    const auto of = times.find(row.row.value("round", 0U));
    if (of == times.end()) continue;
    if (trial.rounds.empty())
      trial.start = std::max(row.seconds - (of->second.closed - of->second.opened), 0.0);
    // The turns of the first round wait for what is not in memory yet.
    if (trial.rounds.size() == 1 && told.size() >= kFewRounds) trial.turns.clear();
    AddRound(row, of->second, planned.turns, trial);
  }
  AddMemory(folder.path, trial);
  return trial;
}

}  // namespace macaw::cli
