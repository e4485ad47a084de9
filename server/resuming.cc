#include "server/resuming.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/files.h"
#include "core/status.h"
#include "server/base_file.h"
#include "server/engine/engine_options.h"
#include "server/metrics.h"
#include "server/run_folder.h"

namespace macaw::server {
namespace {

// Returns an error unless the run has more rounds than it has done. `owes`: something of the last
// one, such as its evaluation, is still to be done.
absl::Status CheckRoundsLeft(const Options& options, Round done, bool owes) {
  const auto over = [&](uint32_t rounds) {
    return owes ? done.value > rounds : done.value >= rounds;
  };
  if (options.stop_after > 0 && over(options.stop_after)) {
    return absl::OutOfRangeError(absl::StrCat("the run in ", options.run_dir,
                                              " has stopped: ", options.stop_reason,
                                              "; change run.stop to carry it on"));
  }
  if (over(options.run.rounds)) {
    return absl::OutOfRangeError(absl::StrCat("the run in ", options.run_dir, " has done its ",
                                              done.value,
                                              " rounds; ask for more with --rounds (macaw-server: "
                                              "run.rounds)"));
  }
  return absl::OkStatus();
}

// Returns an error if the stop rule or the budget ends the run with this row.
absl::Status RefuseEnd(const Options& options, const MetricsRow& row, Round last,
                       EarlyStopping& early_stopping) {
  const Round round(static_cast<uint32_t>(*row.Get("round")));
  early_stopping.Spend([&](const char* column) { return row.Get(column); });
  if (!RegularEvaluationDue(options.run, round, options.stop_after)) return absl::OkStatus();
  const auto value = row.Get(options.config.stop.metric);
  std::optional<std::string> over =
      value.has_value() ? early_stopping.Observe(round.value, *value) : std::nullopt;
  const char* const key = over.has_value() ? "run.stop" : "run.budget";
  if (!over.has_value()) over = early_stopping.Spent(round.value);
  if (!over.has_value()) return absl::OkStatus();
  if (round == last) {
    return absl::OutOfRangeError(absl::StrCat("the run in ", options.run_dir, " has stopped: ",
                                              *over, "; change ", key, " to carry it on"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      key, " would have ended the run in ", options.run_dir, " before its ", last.value,
      " rounds: ", *over, "; resume with one that has not ended it by now, or begin a new run"));
}

// RefuseEnd for the rows of rounds before `before`.
absl::Status ReplayRows(const Options& options, absl::string_view rows, Round before, Round last,
                        EarlyStopping& early_stopping) {
  for (const absl::string_view line : absl::StrSplit(rows, '\n', absl::SkipEmpty())) {
    const auto row = MetricsRow::Parse(options.run.task, std::string(line));
    if (!row.has_value())
      return absl::DataLossError(absl::StrCat(options.run_dir, "/metrics.jsonl is damaged"));
    if (*row->Get("round") >= before.value) break;
    MACAW_RETURN_IF_ERROR(RefuseEnd(options, *row, last, early_stopping));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<Checkpoint>> CheckpointToGoOnFrom(const Options& options,
                                                               const ModelKeeper& keeper) {
  if (!options.resume && HasCheckpoint(options.run_dir)) {
    // The former run's checkpoints may have higher rounds, and would be taken for the newest ones
    // of this run.
    return absl::AlreadyExistsError(
        absl::StrCat(options.run_dir,
                     "/checkpoints holds those of another run: resume that one, "
                     "or give this one a folder of its own"));
  }
  if (!options.resume) return std::nullopt;
  if (!HasCheckpoint(options.run_dir)) return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(
      Checkpoint checkpoint,
      ReadNewestCheckpoint(options.run_dir, Fingerprint(options.run), keeper.Layouts()));
  MACAW_RETURN_IF_ERROR(
      CheckRoundsLeft(options, checkpoint.round, /*owes=*/!checkpoint.owed_row.empty()));
  return checkpoint;
}

absl::Status CheckBeginsAgain(const Options& options) {
  const std::string none =
      absl::StrCat("there is no checkpoint in ", options.run_dir, "/checkpoints to resume from");
  if (!HasBegun(options.run_dir))
    return absl::NotFoundError(absl::StrCat(none, ", and no run has begun there"));
  uint64_t rows = 0;
  const std::string path = options.run_dir + "/metrics.jsonl";
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    rows = static_cast<uint64_t>(std::ranges::count(text, '\n'));
  }
  const uint64_t every = options.config.checkpoint_every;
  const bool ended = rows > 0 && FileExists(options.run_dir + "/summary.json");
  if (ended || (every > 0 && rows > every)) {
    return absl::DataLossError(
        absl::StrCat(none, ", though the run had done ", rows,
                     " rounds: put them back from a copy, or begin the run again (macaw simulate "
                     "--force, or another folder)"));
  }
  if (!options.reset_states.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--state-reset ", options.reset_states[0].value, ": ", none,
        ": resume without it and end the run by `macaw admin drain`, which writes one"));
  }
  return absl::OkStatus();
}

absl::Status TakeBaseOf(const Checkpoint& checkpoint, const std::string& run_dir,
                        ModelKeeper& keeper) {
  const auto has_it = [&] {
    return checkpoint.base.IsZero() || keeper.split() == nullptr ||
           keeper.split()->base().digest == checkpoint.base;
  };
  if (has_it()) return absl::OkStatus();
  const std::string path = BaseFileIn(run_dir);
  const absl::StatusOr<FlatVector> base = ReadModel(path, keeper.split()->parts().base.layout());
  if (base.ok()) keeper.SetBase(base->view());
  if (has_it()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot resume from ", run_dir,
                   "/checkpoints: the model's frozen tensors are others than "
                   "those with which the run began (",
                   base.ok() ? absl::StrCat(path, " has others, too") : base.status().message(),
                   "): put that file back, or set model.init as it was"));
}

absl::Status ReplayStopRule(const Options& options, const Checkpoint& checkpoint,
                            EarlyStopping& early_stopping) {
  if (!options.config.may_end_early()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.run_dir + "/metrics.jsonl"));
  return ReplayRows(options, absl::string_view(text).substr(0, checkpoint.metrics_bytes),
                    /*before=*/Round(UINT32_MAX), checkpoint.round, early_stopping);
}

absl::Status CheckGoesOnAfter(const Options& options, const DurableRounds& rounds,
                              uint64_t metrics_bytes, EarlyStopping early_stopping) {
  MACAW_RETURN_IF_ERROR(CheckRoundsLeft(options, rounds.completed, /*owes=*/true));
  if (rounds.opened.value > options.run.rounds) {
    return absl::OutOfRangeError(absl::StrCat("the run in ", options.run_dir, " is inside round ",
                                              rounds.opened.value, ", and run.rounds is ",
                                              options.run.rounds, ": ask for more"));
  }
  const std::string path = options.run_dir + "/metrics.jsonl";
  if (!options.config.may_end_early() || !FileExists(path)) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  // The last one may end the run: its server died before that.
  const absl::Status status = ReplayRows(
      options, absl::string_view(text).substr(std::min<uint64_t>(metrics_bytes, text.size())),
      /*before=*/rounds.completed, rounds.completed, early_stopping);
  // A row that a crash of the machine has torn is made again.
  return absl::IsDataLoss(status) ? absl::OkStatus() : status;
}

absl::StatusOr<VersionIndex> VersionsAfter(const Options& options, const Checkpoint& checkpoint) {
  VersionIndex versions = checkpoint.versions;
  for (const ClientId client : options.reset_states) {
    if (versions.Get(client).counter == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--state-reset ", client.value, ": the checkpoint after round ",
                       checkpoint.round.value, " has no state of that client"));
    }
    versions.Clear(client);
  }
  return versions;
}

}  // namespace macaw::server
