#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/files.h"
#include "core/status.h"
#include "core/vector.h"
#include "proto/admin/event_feed.h"
#include "server/best_model.h"
#include "server/checkpoint.h"
#include "server/event_lines.h"
#include "server/journal/holdings.h"
#include "server/journal/journal.h"
#include "server/log/writer.h"
#include "server/round_model.h"
#include "server/summary.h"
#include "server/timeline.h"

namespace macaw::server {

// A model of evaluation.unlearn, for a file.
struct UnlearnedVector {
  ClientId client{};
  FlatVector model;
};

// Everything that a run leaves behind in its folder. The layout of the files is in
// server/README.md. One thread (the writer's).
class RunFolder {
 public:
  // Files with rows of clients, which some runs have.
  struct Tables {
    bool clients = false;        // clients.jsonl
    bool contributions = false;  // contributions.jsonl
  };
  // Increments the epoch and fsyncs it. `resume`: rows after the checkpoint's offsets are cut off,
  // or written over if the session goes on inside a round; null: the files start empty. Returns an
  // error, before it changes anything, if the folder has lost rows. `opened` begins the session in
  // the log; its run, epoch and time are filled in. `end`: where the log ends after a crash.
  static absl::StatusOr<RunFolder> Open(const std::string& path, const Checkpoint* resume,
                                        Tables tables, log::RunOpened opened,
                                        log::KnownEnd end = {});

  uint32_t epoch() const { return epoch_; }
  const Digest& run_id() const { return run_id_; }  // the same in every session of the run
  absl::Status AppendRow(const std::string& row) {
    rows_unsynced_ = true;
    return metrics_.Append(row);
  }
  // Replaces model.round.safetensors (round_model.h).
  absl::Status WriteRoundModel(Round round, const KeptModel& model) {
    return server::WriteRoundModel(path_, round, model);
  }
  // Replaces confusion.json. It is written before the row of its round, so the two agree.
  absl::Status WriteConfusion(const std::string& text);
  // Replaces clients_evaluated.json, likewise.
  absl::Status WriteClientEvaluation(const std::string& text);
  absl::Status AppendClients(Round round, const std::vector<fleet::ClientRecord>& records,
                             TaskKind task);
  // A line of contributions.jsonl (contributions.h), before the row of its round.
  absl::Status AppendContributions(const std::string& line) {
    return contributions_.has_value() ? contributions_->Append(line) : absl::OkStatus();
  }
  // Appends the record to the log and its events to events.jsonl. The record is buffered until
  // WriteLog. `since_start`: since the start of this session; `seconds`: spent on the run in all.
  absl::Status AppendRecord(log::Record record, Duration since_start, double seconds);
  absl::Status WriteLog() { return log_.Write(); }
  absl::Status SyncLog() { return log_.Sync(); }
  // From now on each line of events.jsonl is also given to `feed`, which must outlive the folder.
  absl::Status TellEvents(admin::EventFeed& feed);
  // From now on every commit is made durable in this journal. Each later Keep starts the journal's
  // next file.
  void KeepJournal(Journal journal) { journal_ = std::move(journal); }
  // From now on the tables of owners are kept (journal/holdings.h).
  void KeepHoldings(Holdings holdings) { holdings_ = std::move(holdings); }
  absl::Status Journalize(const JournalNode& node) {
    if (holdings_.has_value()) MACAW_RETURN_IF_ERROR(holdings_->Add(node));
    return journal_.has_value() ? journal_->Add(node) : absl::OkStatus();
  }
  absl::Status Journalize(const JournalPart& part) {
    return journal_.has_value() ? journal_->Add(part) : absl::OkStatus();
  }
  void DropJournal();  // no server will continue inside a round of this run
  // Syncs the journal and the rows before the log, which tells of them (journal/recovery.h).
  absl::Status SyncCommits();
  uint64_t cut_from_log() const { return log_.cut_bytes(); }  // what a crash had not left whole
  Timeline& timeline() { return timeline_; }
  // Sets a step with which every Keep begins. Keep returns its error.
  void BeforeCheckpoint(std::function<absl::Status()> step) {
    before_checkpoint_ = std::move(step);
  }
  // A model that is better than those of the rounds before. It is written by the next Keep.
  // `off_grid`: of a last round that evaluation.every alone would not evaluate.
  void HoldBest(Round round, KeptModel model, bool off_grid) {
    best_.Hold(round, std::move(model), off_grid);
  }
  // Fills in the checkpoint's offsets, makes the rows durable, then writes the checkpoint. Returns
  // the round of the oldest checkpoint that is left.
  absl::StatusOr<Round> Keep(Checkpoint checkpoint);
  // Writes unlearned/NUMBER.safetensors for each. `split`: as for WriteFinal.
  absl::Status WriteUnlearned(std::span<const UnlearnedVector> models, const SplitModel* split,
                              const SummaryFacts& facts);
  // `models`: more than one for a rule with several, of which the first is model.safetensors.
  // `split`: null, or the one model is what is trained.
  absl::Status WriteFinal(std::span<const ConstVectorView> models, const SplitModel* split,
                          const SummaryFacts& facts);

 private:
  RunFolder(std::string path, LineFile metrics, LineFile events, log::Writer log, Timeline timeline,
            Round completed)
      : path_(std::move(path)),
        best_(path_, completed),
        metrics_(std::move(metrics)),
        events_(std::move(events)),
        log_(std::move(log)),
        timeline_(std::move(timeline)) {}
  absl::Status BeginSession(log::RunOpened opened);
  absl::Status AppendEvent(const Event& event, double seconds);
  std::string path_;
  BestModels best_;
  uint32_t epoch_ = 0;
  Digest run_id_;
  LineFile metrics_;
  LineFile events_;
  EventLines event_lines_;
  log::Writer log_;
  int64_t session_began_ns_ = 0;  // on the log's clock
  Timeline timeline_;
  admin::EventFeed* feed_ = nullptr;
  std::optional<LineFile> clients_, contributions_;
  std::optional<Journal> journal_;
  std::optional<Holdings> holdings_;
  bool rows_unsynced_ = true;  // an earlier server may have left some
  std::function<absl::Status()> before_checkpoint_;
};

}  // namespace macaw::server
