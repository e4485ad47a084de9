#include "server/opening.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/shell.h"
#include "core/status.h"
#include "server/base_file.h"
#include "server/budget.h"
#include "server/checkpoint.h"
#include "server/contributions.h"
#include "server/engine/timed_round.h"
#include "server/journal/recovery.h"
#include "server/log/orders.h"
#include "server/log/reader.h"
#include "server/past_rows.h"
#include "server/resuming.h"

namespace macaw::server {
namespace {

Digest DigestOf(const std::map<std::string, std::string>& fingerprint) {
  Digester digester;
  for (const auto& [key, value] : fingerprint) digester.Add(key).Add(value);
  return digester.Finish();
}

// Random numbers of the operating system. Session numbers are secret: only a node that was given
// one can use its session.
uint64_t NewSessionNumber() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

// A run whose server died inside a round.
struct InsideARound {
  Recovery recovery;
  PastRows past;  // of rounds after the checkpoint that were evaluated
};

// `rows_before_opening`: see RecoverFrom.
absl::StatusOr<InsideARound> Restore(const Options& options,
                                     const std::optional<Checkpoint>& checkpoint,
                                     bool rows_before_opening) {
  const Round round = checkpoint.has_value() ? checkpoint->round : Round(0);
  const bool owes_row = checkpoint.has_value() && !checkpoint->owed_row.empty();
  const Round first = owes_row ? round : Round(round.value + 1);
  InsideARound inside;
  MACAW_ASSIGN_OR_RETURN(
      inside.past, ReadPastRows(options, checkpoint.has_value() ? checkpoint->metrics_bytes : 0,
                                checkpoint.has_value() ? checkpoint->contributions_bytes : 0));
  const auto has_rows_before = [&](Round end) {
    for (Round before = first; before < end; before = Round(before.value + 1)) {
      if (EvaluationDue(options, before) && !inside.past.rows.contains(before)) return false;
    }
    return true;
  };
  std::vector<Digest> configurations = {DigestOfRun(options.run)};
  if (checkpoint.has_value()) configurations.push_back(DigestOf(checkpoint->fingerprint));
  MACAW_ASSIGN_OR_RETURN(
      inside.recovery,
      Recover(options.run_dir, {.checkpoint = round,
                                .log_bytes = checkpoint.has_value() ? checkpoint->log_bytes : 0,
                                .configurations = std::move(configurations),
                                .has_rows_before = has_rows_before,
                                .rows_before_opening = rows_before_opening}));
  // A round that the log does not close may end otherwise now (which clients come in time).
  std::erase_if(inside.past.rows,
                [&](const auto& row) { return row.first > inside.recovery.completed; });
  for (const auto& [evaluated, row] : inside.past.rows)
    inside.recovery.restored.evaluated.insert(evaluated);
  return inside;
}

// nullopt: the run continues from its checkpoint, or begins again where it has none. Errors: the
// configuration has changed so that rounds would be lost. `early_stopping` has observed the rows up
// to the checkpoint.
absl::StatusOr<std::optional<InsideARound>> RecoverRound(
    const Options& options, const std::optional<Checkpoint>& checkpoint,
    const EarlyStopping& early_stopping) {
  std::optional<InsideARound> none;
  if (!options.config.keeps_commits() || !options.resume || !options.reset_states.empty())
    return none;
  const bool may_end_early = options.config.may_end_early();
  absl::StatusOr<InsideARound> inside = Restore(options, checkpoint, may_end_early);
  if (inside.ok()) {
    const Round completed = inside->recovery.completed;
    const auto& phases = inside->recovery.restored.phases;
    const Round opened = phases.empty() ? completed : phases.rbegin()->first.first;
    MACAW_RETURN_IF_ERROR(
        CheckGoesOnAfter(options, {.completed = completed, .opened = std::max(completed, opened)},
                         checkpoint.has_value() ? checkpoint->metrics_bytes : 0, early_stopping));
    Logger("server").Info(absl::StrCat("goes_on_after_round ", completed.value));
    return std::optional(*std::move(inside));
  }
  if (absl::IsInvalidArgument(inside.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot resume the run in ", options.run_dir, ": ", inside.status().message(),
        ". Give it the configuration that it had (macaw log ", ForShell(options.run_dir),
        " shows its rounds), or begin another run in a folder of its own"));
  }
  if (may_end_early && Restore(options, checkpoint, /*rows_before_opening=*/false).ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot resume the run in ", options.run_dir,
                     " with run.stop or run.budget: its open round began before the metrics of the "
                     "round before were there, as a run without them does. Resume it without them; "
                     "they may be given when it has ended or stopped between two rounds"));
  }
  Logger("server").Warning(
      absl::StrCat("goes_back_to_round ", checkpoint.has_value() ? checkpoint->round.value : 0,
                   " the open round cannot go on: ", inside.status().message()));
  return none;
}

// What operators had ordered holds in the next server, too.
void TakeOrders(const Options& options, const log::KnownEnd& end, EngineOptions& engine) {
  const std::string path = options.run_dir + "/rounds.log";
  if (!options.resume || !FileExists(path)) return;
  const absl::StatusOr<log::Orders> orders = log::ReadOrders(path, end.synced);
  if (!orders.ok()) {
    Logger("server").Warning(absl::StrCat("orders_unknown ", orders.status().message(),
                                          ": pause the run and quarantine nodes again"));
    return;
  }
  engine.paused = orders->paused;
  for (const auto& [node, order] : orders->quarantine)
    engine.quarantine[node] = {.node = node, .by = order.by, .reason = order.why};
  for (const auto& [node, order] : orders->given_up) engine.given_up[node] = order.by;
  if (engine.paused || !engine.quarantine.empty() || !engine.given_up.empty()) {
    Logger("server").Info(absl::StrCat("orders_hold paused=", engine.paused ? "yes" : "no",
                                       " quarantined=", engine.quarantine.size(),
                                       " given_up=", engine.given_up.size()));
  }
}

// Options::keeps_places of a resumed run: its clients have their numbers.
bool KeepsPlaces(const Options& options) {
  const std::string path = options.run_dir + "/rounds.log";
  if (!options.resume || !FileExists(path)) return options.keeps_places;
  absl::StatusOr<log::Reader> reader = log::Reader::Open(path);
  while (reader.ok()) {
    const absl::StatusOr<std::optional<log::Entry>> entry = reader->Next();
    if (!entry.ok() || !entry->has_value()) break;
    if (const auto* opened = std::get_if<log::RunOpened>(&(*entry)->record))
      return opened->keeps_places;
  }
  return options.keeps_places;
}

// The engine's options for a new run.
EngineOptions EngineOptionsOf(const Options& options, const ModelKeeper& keeper) {
  const bool repeats = !options.replays.IsZero();
  return {.run = options.run,
          .lease_timeout = FromSeconds(options.config.lease_timeout),
          .limits = {.deaths = options.config.max_deaths,
                     .lost_rounds = repeats ? 0 : options.config.max_lost_rounds},
          .waits = {.lease_factor = options.config.lease_factor,
                    .lease_limit = FromSeconds(options.config.lease_limit)},
          .workers = std::max(1U, options.config.workers),
          .evaluation_gates = options.config.may_end_early() || options.stepwise,
          .stepwise = options.stepwise,
          .stop_after = options.stop_after,
          .stop_reason = options.stop_reason,
          .mixed_profiles = options.config.mixed_profiles,
          .instruction_set = options.config.instruction_set,
          .round = repeats || options.run.devices.on() ? RoundRules() : options.config.round,
          .decisions = options.decisions,
          .numbering = options.keeps_places ? Numbering::kByPlace : Numbering::kByName,
          .stateful = keeper.stateful(),
          .sums_states = keeper.begins_anew(),
          .devices = options.devices,
          .presence = options.presence,
          .session_numbers = NewSessionNumber};
}

// The owners that the run had, whether they come back or not.
std::vector<Restored::Member> OwnersOf(const std::string& run_dir) {
  absl::StatusOr<std::vector<Restored::Member>> owners = ReadHoldings(run_dir);
  if (owners.ok()) return *std::move(owners);
  Logger("server").Warning(absl::StrCat("all_owners_are_needed ", owners.status().message()));
  return {};
}

void TellThatItBegins(const Options& options) {
  Logger("server").Warning(absl::StrCat("begins_again_from_round_1 there is no checkpoint in ",
                                        options.run_dir, "/checkpoints to resume from"));
}

// What is known of the log's end.
log::KnownEnd KnownEndOf(const std::optional<Checkpoint>& checkpoint, const Recovery* inside) {
  if (inside != nullptr) return inside->end;
  log::KnownEnd end;
  if (checkpoint.has_value() && checkpoint->log_bytes > 0) end.synced = checkpoint->log_bytes;
  return end;
}

// Opens the run's folder with its log, and with its journal if commits are durable. `inside`: null
// if the run begins between two rounds.
absl::StatusOr<RunFolder> OpenFolder(const Options& options,
                                     const std::optional<Checkpoint>& checkpoint, Round completed,
                                     const Recovery* inside) {
  const log::KnownEnd end = KnownEndOf(checkpoint, inside);
  MACAW_ASSIGN_OR_RETURN(
      RunFolder folder,
      RunFolder::Open(options.run_dir, checkpoint.has_value() ? &*checkpoint : nullptr,
                      {.clients = options.config.client_records,
                       .contributions = HasContributions(options.run.evaluation)},
                      {.configuration = DigestOfRun(options.run),
                       .completed = completed,
                       .replays = options.replays,
                       .reset_states = options.reset_states,
                       .goes_on = inside != nullptr,
                       .keeps_places = options.keeps_places},
                      end));
  if (options.config.keeps_commits()) {
    const std::string path = JournalFolder(options.run_dir);
    MACAW_ASSIGN_OR_RETURN(Journal journal, inside != nullptr
                                                ? Journal::Continue(path)
                                                : Journal::Begin(path, Round(completed.value + 1)));
    folder.KeepJournal(std::move(journal));
  }
  MACAW_ASSIGN_OR_RETURN(
      Holdings holdings,
      Holdings::Open(options.run_dir, !checkpoint.has_value() && inside == nullptr));
  folder.KeepHoldings(std::move(holdings));
  if (folder.cut_from_log() > 0) {
    const bool backed = inside == nullptr || inside->cut.empty();
    Logger("server").Warning(absl::StrCat(
        "log_cut file=", options.run_dir, "/rounds.log bytes=", folder.cut_from_log(), " ",
        backed ? "a crash had torn its last records"
               : absl::StrCat("a crash has lost what they tell of: ", inside->cut)));
  }
  folder.BeforeCheckpoint(options.before_checkpoint);
  return folder;
}

absl::Status CheckPlanOf(const RunPlan& run, const ServerConfig& config,
                         const algorithms::Setup& setup, const algorithms::Description& algorithm) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Schema schema, algorithms::MakeSchema(algorithm, setup));
  MACAW_RETURN_IF_ERROR(CheckEvaluationOf(run, algorithm));
  MACAW_RETURN_IF_ERROR(CheckLeaveOneOut(run, algorithm, schema));
  MACAW_RETURN_IF_ERROR(CheckUnlearning(run, algorithm, schema));
  MACAW_RETURN_IF_ERROR(algorithms::CheckNeeded(algorithm, setup, config.round.enough));
  MACAW_RETURN_IF_ERROR(BudgetOf(config.stop, run).status());
  if (config.stop.patience > 0 && algorithm.has_several_models) {
    return absl::InvalidArgumentError(absl::StrCat(
        "run.stop.patience keeps the model of the best round, and the server of ",
        run.algorithm.name, " has several models: stop by run.stop.at_least, or remove patience"));
  }
  MACAW_RETURN_IF_ERROR(CheckRunBudget(config.budget, run));
  return CheckStopRule(config.stop, run, ColumnsOf(run, algorithm, schema));
}

// The keeper of the initial model.
absl::StatusOr<ModelKeeper> KeeperOf(const Options& options, FlatVector initial,
                                     const algorithms::Description& algorithm) {
  algorithms::Setup setup = algorithms::SetupOf(options.run, initial.layout());
  MACAW_RETURN_IF_ERROR(CheckPlanOf(options.run, options.config, setup, algorithm));
  return ModelKeeper::Make(algorithm, std::move(setup), std::move(initial), options.run.evaluation);
}

}  // namespace

Digest DigestOfRun(const RunPlan& run) { return DigestOf(Fingerprint(run)); }

absl::Status CheckPlan(const RunPlan& run, const ServerConfig& config, const LayoutPtr& layout,
                       const algorithms::Registry& registry) {
  MACAW_RETURN_IF_ERROR(CheckRounds(run.cohort, config.round));
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(run));
  return CheckPlanOf(run, config, algorithms::SetupOf(run, layout), algorithm);
}

absl::StatusOr<Opening> Open(Options options, FlatVector initial,
                             const algorithms::Registry& registry) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<scheduler::Scheduler> scheduler,
                         scheduler::MakeScheduler({.policy = options.config.scheduling_policy,
                                                   .seed = options.run.seed}));
  MACAW_ASSIGN_OR_RETURN(options.run.algorithm, registry.Complete(options.run.algorithm));
  options.keeps_places = KeepsPlaces(options);
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(options.run));
  MACAW_RETURN_IF_ERROR(CheckRounds(options.run.cohort, options.config.round));
  const TotalsUsed totals =
      algorithms::TotalsOf(algorithm, algorithms::SetupOf(options.run, initial.layout()));
  RowsOfTurn passes =
      algorithms::RowsOfTurnOf(algorithm, algorithms::SetupOf(options.run, initial.layout()));
  MACAW_ASSIGN_OR_RETURN(std::optional<Budget> budget, BudgetOf(options.config.stop, options.run));
  if (budget.has_value()) {
    options.stop_after = budget->rounds;
    options.stop_reason = std::move(budget->reason);
  }
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* const alone,
                         registry.Find(options.run.algorithm.name));
  const virtual_time::Traffic first_traffic = FirstTraffic(options.run, *initial.layout());
  MACAW_ASSIGN_OR_RETURN(ModelKeeper keeper, KeeperOf(options, std::move(initial), algorithm));

  const bool sums_states = keeper.sums_states() || alone->state_follows_sent;
  if (options.replays.IsZero()) {
    MACAW_RETURN_IF_ERROR(CheckLiveSteps(options.run, options.config.round, keeper.stateful()));
  }
  EngineOptions engine = EngineOptionsOf(options, keeper);
  engine.personal_models = algorithm.has_both_models();
  engine.evaluates_states = algorithm.has_personal_models;
  engine.models = 1 + static_cast<uint32_t>(keeper.model_names().size());
  engine.check_rows =
      [algorithm, setup = algorithms::SetupOf(options.run, keeper.Layouts().front())](
          std::span<const uint32_t> rows) { return algorithms::CheckRows(algorithm, setup, rows); };
  engine.totals = totals;
  engine.passes = std::move(passes);
  if (engine.devices != nullptr) engine.clock.traffic = first_traffic;
  EvaluationConfig& evaluation = engine.run.evaluation;
  if (!algorithm.has_common_model) evaluation.central = evaluation.central_validation = false;
  EarlyStopping early_stopping(options.config.stop, options.config.budget);
  std::optional<MetricsRow> owed_row;
  std::string owed_contributions;
  MACAW_ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                         CheckpointToGoOnFrom(options, keeper));
  if (checkpoint.has_value()) {
    MACAW_RETURN_IF_ERROR(TakeBaseOf(*checkpoint, options.run_dir, keeper));
    MACAW_RETURN_IF_ERROR(keeper.Load(checkpoint->state));
    MACAW_RETURN_IF_ERROR(ReplayStopRule(options, *checkpoint, early_stopping));
    engine.completed = checkpoint->round.value;
    engine.data_digest = checkpoint->data_digest;
    engine.profiles = checkpoint->profiles;
    engine.clock = checkpoint->clock;
    engine.feedback = checkpoint->feedback;
    MACAW_ASSIGN_OR_RETURN(engine.versions, VersionsAfter(options, *checkpoint));
    engine.reset_states = options.reset_states;
    engine.begins_anew = checkpoint->begins_anew;
    if (!checkpoint->owed_row.empty()) {
      owed_row = MetricsRow::Parse(options.run.task, checkpoint->owed_row);
      if (owed_row.has_value())
        early_stopping.Spend([&](const char* column) { return owed_row->Get(column); });
      owed_contributions = checkpoint->owed_contributions;
      engine.evaluate_first = keeper.EvaluatedBlob();
      engine.evaluate_first_without = ModelsBeside(keeper.without(), keeper.UnlearnedModels());
    }
  }
  if (options.run.rounds == 0 && !checkpoint.has_value()) {  // the initial model is evaluated
    owed_row = MetricsRow::Parse(options.run.task, R"({"round": 0})");
    engine.evaluate_first = keeper.EvaluatedBlob();
  }
  MACAW_ASSIGN_OR_RETURN(std::optional<InsideARound> inside,
                         RecoverRound(options, checkpoint, early_stopping));
  if (options.resume && !checkpoint.has_value() && !inside.has_value()) {
    MACAW_RETURN_IF_ERROR(CheckBeginsAgain(options));
    TellThatItBegins(options);
  }
  if (inside.has_value() && !inside->recovery.reset_states.empty()) {
    engine.reset_states = inside->recovery.reset_states;
    for (const ClientId client : engine.reset_states) engine.versions.Clear(client);
  }
  TakeOrders(options, KnownEndOf(checkpoint, inside.has_value() ? &inside->recovery : nullptr),
             engine);
  const Round completed = inside.has_value() ? inside->recovery.completed : Round(engine.completed);
  if (keeper.split() != nullptr)
    MACAW_RETURN_IF_ERROR(CheckBaseFile(options.run_dir, options.resume));
  MACAW_ASSIGN_OR_RETURN(
      RunFolder folder,
      OpenFolder(options, checkpoint, completed, inside.has_value() ? &inside->recovery : nullptr));
  if (keeper.split() != nullptr)
    MACAW_RETURN_IF_ERROR(KeepBaseFile(options.run_dir, *keeper.split()));
  engine.epoch = folder.epoch();
  engine.run_id = folder.run_id();
  double seconds_before = checkpoint.has_value() ? checkpoint->seconds : 0;
  if (inside.has_value()) seconds_before = std::max(seconds_before, inside->past.seconds);
  Restored restored;
  if (inside.has_value()) {
    restored = std::move(inside->recovery.restored);
  } else if (checkpoint.has_value()) {
    restored.members = OwnersOf(options.run_dir);
  }
  return Opening{
      .options = std::move(options),
      .engine = std::move(engine),
      .restored = std::move(restored),
      .scheduler = std::move(scheduler),
      .keeper = std::move(keeper),
      .sums_states = sums_states,
      .folder = std::move(folder),
      .owed_row = std::move(owed_row),
      .owed_contributions = std::move(owed_contributions),
      .seconds_before = seconds_before,
      .early_stopping = std::move(early_stopping),
      .sums = inside.has_value() ? std::move(inside->recovery.sums) : decltype(Opening::sums)(),
      .rows = inside.has_value() ? std::move(inside->past.rows) : decltype(Opening::rows)(),
      .contributions =
          inside.has_value() ? std::move(inside->past.contributions) : decltype(Opening::rows)()};
}

}  // namespace macaw::server
