#include "server/run_folder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "server/journal/recovery.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

absl::StatusOr<uint32_t> CountEpochUp(const std::string& path) {
  uint32_t epoch = 0;
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &epoch)) {
      return absl::DataLossError(absl::StrCat(path, " should hold one number"));
    }
  }
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(path, absl::StrCat(epoch + 1, "\n")));
  return epoch + 1;
}

// The run's random name, which never changes. So client states that the run has left behind still
// belong to it when it begins again.
absl::StatusOr<Digest> RunIdIn(const std::string& path, const Checkpoint* resume) {
  if (resume != nullptr && !resume->run_id.IsZero()) return resume->run_id;
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const absl::StatusOr<Digest> id = Digest::FromHex(absl::StripAsciiWhitespace(text));
    if (!id.ok()) return absl::DataLossError(absl::StrCat(path, " should hold the run's name"));
    return id;
  }
  std::random_device entropy;  // results do not depend on it
  Digest id;
  for (uint8_t& byte : id.bytes) byte = static_cast<uint8_t>(entropy());
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(path, absl::StrCat(id.Hex(), "\n")));
  return id;
}

// Returns an error unless each line is JSON: the summary is made of all of them.
absl::Status CheckLines(const std::string& path, absl::string_view text) {
  uint64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    ++number;
    if (OrderedJson::accept(line)) continue;
    return absl::DataLossError(absl::StrCat(
        path, ": line ", number, " is not JSON: mend it, or put the file back from a copy; ",
        "without it the run can only be begun again (macaw simulate --force, or another folder)"));
  }
  return absl::OkStatus();
}

// A resumed run continues after the rows that it had written before its checkpoint. Returns an
// error if they are missing or damaged.
absl::Status CheckRows(const std::string& path, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const char* way_out =
      ": put it back from a copy; without it the run can only be begun again (macaw simulate "
      "--force, or another folder)";
  if (!FileExists(path)) return absl::DataLossError(absl::StrCat(path, " is gone", way_out));
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (size < bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", size, " bytes, but had ", bytes,
                                            " when the checkpoint was written", way_out));
  }
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return CheckLines(path, absl::string_view(text).substr(0, bytes));
}

// Removes the files that a killed process had begun to write: NAME.SUFFIX.part, where the suffix
// has 16 hexadecimal digits (core/files.h).
void SweepParts(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::vector<std::string> parts = absl::StrSplit(entry.path().filename().string(), '.');
    uint64_t suffix = 0;
    if (parts.size() > 2 && parts.back() == "part" && parts[parts.size() - 2].size() == 16 &&
        absl::SimpleHexAtoi(parts[parts.size() - 2], &suffix)) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path, const Checkpoint* resume,
                                          Tables tables, log::RunOpened opened, log::KnownEnd end) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(path + "/checkpoints"));
  if (resume != nullptr) {
    MACAW_RETURN_IF_ERROR(CheckRows(path + "/metrics.jsonl", resume->metrics_bytes));
    if (tables.clients)
      MACAW_RETURN_IF_ERROR(CheckRows(path + "/clients.jsonl", resume->clients_bytes));
    if (tables.contributions)
      MACAW_RETURN_IF_ERROR(CheckRows(path + "/contributions.jsonl", resume->contributions_bytes));
  }
  for (const std::string& folder : {path, path + "/checkpoints"}) SweepParts(folder);
  MACAW_ASSIGN_OR_RETURN(const Digest run_id, RunIdIn(path + "/run-id", resume));
  MACAW_ASSIGN_OR_RETURN(log::Writer log, log::Writer::Open(path + "/rounds.log", run_id, end));
  if (log.replays() && opened.replays.IsZero()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " holds a run that repeats another one, which cannot be resumed: begin it again "
        "(macaw replay --force)"));
  }
  MACAW_ASSIGN_OR_RETURN(const uint32_t epoch, CountEpochUp(path + "/epoch"));
  const bool goes_on = opened.goes_on;
  // A run that goes on inside a round writes the same rows again. Until then they are needed: a
  // round whose row is lost has to be evaluated again.
  MACAW_ASSIGN_OR_RETURN(
      LineFile metrics,
      LineFile::Open(path + "/metrics.jsonl", resume == nullptr ? 0 : resume->metrics_bytes,
                     goes_on ? LineFile::Tail::kWriteOver : LineFile::Tail::kCut));
  // Events also report what a crash has undone, so a resumed run appends to them.
  const std::string events_path = path + "/events.jsonl";
  uint64_t events_bytes = 0;
  if ((resume != nullptr || goes_on) && FileExists(events_path)) {
    MACAW_ASSIGN_OR_RETURN(events_bytes, FileSize(events_path));
  }
  MACAW_ASSIGN_OR_RETURN(LineFile events, LineFile::Open(events_path, events_bytes));
  MACAW_ASSIGN_OR_RETURN(Timeline timeline,
                         Timeline::Open(path + "/timeline.json", epoch, resume != nullptr));
  const Round completed = resume == nullptr ? Round(0) : resume->round;
  RunFolder folder(path, std::move(metrics), std::move(events), std::move(log), std::move(timeline),
                   completed);
  folder.epoch_ = epoch;
  folder.run_id_ = run_id;
  if (tables.clients) {
    MACAW_ASSIGN_OR_RETURN(
        folder.clients_,
        LineFile::Open(path + "/clients.jsonl", resume == nullptr ? 0 : resume->clients_bytes));
  }
  if (tables.contributions) {
    MACAW_ASSIGN_OR_RETURN(
        folder.contributions_,
        LineFile::Open(path + "/contributions.jsonl",
                       resume == nullptr ? 0 : resume->contributions_bytes,
                       goes_on ? LineFile::Tail::kWriteOver : LineFile::Tail::kCut));
  }
  MACAW_RETURN_IF_ERROR(folder.BeginSession(std::move(opened)));
  MACAW_RETURN_IF_ERROR(SyncDirectory(path));  // files may be new
  return folder;
}

absl::Status RunFolder::BeginSession(log::RunOpened opened) {
  opened.run = run_id_;
  opened.epoch = epoch_;
  opened.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  // Uses the wall clock, because the machine may have been rebooted since. Never goes backwards.
  const int64_t first = log_.first_wall_ns() == 0 ? opened.wall_ns : log_.first_wall_ns();
  session_began_ns_ = std::max(opened.wall_ns - first, log_.last_ns());
  log_.Append(session_began_ns_, std::move(opened));
  return log_.Write();
}

absl::Status RunFolder::AppendRecord(log::Record record, Duration since_start, double seconds) {
  for (const Event& event : event_lines_.Of(record))
    MACAW_RETURN_IF_ERROR(AppendEvent(event, seconds));
  log_.Append(session_began_ns_ + std::chrono::nanoseconds(since_start).count(), std::move(record));
  return absl::OkStatus();
}

absl::Status RunFolder::AppendClients(Round round, const std::vector<fleet::ClientRecord>& records,
                                      TaskKind task) {
  if (!clients_.has_value()) return absl::OkStatus();
  const training::MetricSchema schema = training::SchemaFor(task);
  for (const fleet::ClientRecord& record : records) {
    OrderedJson row = {{"round", round.value},
                       {"client", record.attempt.client.value},
                       {"examples", record.examples},
                       {"steps", record.steps},
                       {"weight", record.weight}};
    for (const auto& [prefix, sums] :
         {std::pair("", &record.sums), std::pair("personal_", &record.personal_sums)}) {
      if (sums->size() != schema.sums.size()) continue;
      for (const training::MetricRatio& ratio : schema.ratios) {
        const double value = (*sums)[ratio.numerator] / (*sums)[ratio.denominator];
        row[prefix + ratio.name] = std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
      }
    }
    MACAW_RETURN_IF_ERROR(clients_->Append(row.dump()));
  }
  return absl::OkStatus();
}

absl::Status RunFolder::WriteConfusion(const std::string& text) {
  return AtomicWriteFile(path_ + "/confusion.json", text);
}

absl::Status RunFolder::WriteClientEvaluation(const std::string& text) {
  return AtomicWriteFile(path_ + "/clients_evaluated.json", text);
}

absl::Status RunFolder::AppendEvent(const Event& event, double seconds) {
  OrderedJson line = {
      {"t", std::round(seconds * 1e6) / 1e6}, {"epoch", epoch_}, {"event", event.kind}};
  for (const auto& [name, value] : event.fields) {
    std::visit([&, &name = name](const auto& v) { line[name] = v; }, value);
  }
  // Texts come from nodes. Text that is not UTF-8 must not end the program.
  std::string text = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  MACAW_RETURN_IF_ERROR(events_.Append(text));
  if (feed_ != nullptr) feed_->Append(std::move(text));
  return absl::OkStatus();
}

absl::Status RunFolder::TellEvents(admin::EventFeed& feed) {
  MACAW_ASSIGN_OR_RETURN(const std::string earlier, ReadFile(path_ + "/events.jsonl"));
  feed.StartAfter(static_cast<uint64_t>(std::ranges::count(earlier, '\n')));
  feed_ = &feed;
  return absl::OkStatus();
}

absl::StatusOr<Round> RunFolder::Keep(Checkpoint checkpoint) {
  if (before_checkpoint_) MACAW_RETURN_IF_ERROR(before_checkpoint_());
  MACAW_RETURN_IF_ERROR(SyncCommits());  // the log must have every round before the checkpoint
  checkpoint.metrics_bytes = metrics_.offset();
  checkpoint.log_bytes = log_.bytes();
  if (clients_.has_value()) {
    MACAW_RETURN_IF_ERROR(clients_->Sync());
    checkpoint.clients_bytes = clients_->offset();
  }
  if (contributions_.has_value()) checkpoint.contributions_bytes = contributions_->offset();
  if (holdings_.has_value()) MACAW_RETURN_IF_ERROR(holdings_->Sync());
  MACAW_RETURN_IF_ERROR(best_.WriteHeld());
  const Round newest = checkpoint.round;
  MACAW_ASSIGN_OR_RETURN(const Round oldest, WriteCheckpoint(path_, checkpoint));
  best_.Prune(oldest);
  if (journal_.has_value()) MACAW_RETURN_IF_ERROR(journal_->OnCheckpoint(newest, oldest));
  return oldest;
}

void RunFolder::DropJournal() {
  if (!journal_.has_value()) return;
  journal_.reset();
  std::error_code ignored;  // a journal that stays is not used: the log has the end of the run
  std::filesystem::remove_all(JournalFolder(path_), ignored);
}

absl::Status RunFolder::SyncCommits() {
  if (journal_.has_value()) MACAW_RETURN_IF_ERROR(journal_->Sync());
  // Rows before the log: a round that is closed in the log is not evaluated again, and its client
  // states may be deleted by then.
  if (std::exchange(rows_unsynced_, false)) {
    if (contributions_.has_value()) MACAW_RETURN_IF_ERROR(contributions_->Sync());
    MACAW_RETURN_IF_ERROR(metrics_.Sync());
  }
  MACAW_RETURN_IF_ERROR(log_.Sync());
  return journal_.has_value() ? journal_->NoteSynced(log_.bytes()) : absl::OkStatus();
}

// Writes all models of a rule with several, and returns what summary.json says of them.
static absl::StatusOr<OrderedJson> WriteModels(const std::string& folder,
                                               std::span<const ConstVectorView> models,
                                               const SummaryFacts& facts) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder + "/models"));
  OrderedJson written = OrderedJson::array();
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string file = absl::StrCat("models/", i, ".safetensors");
    MACAW_RETURN_IF_ERROR(WriteModel(absl::StrCat(folder, "/", file), models[i],
                                     WithAdapters({{"run", facts.name}}, facts.adapters)));
    written.push_back({{"file", file}, {"model_digest", DigestOfValues(models[i]).Hex()}});
  }
  return written;
}

absl::Status RunFolder::WriteUnlearned(std::span<const UnlearnedVector> models,
                                       const SplitModel* split, const SummaryFacts& facts) {
  if (models.empty()) return absl::OkStatus();
  const std::string folder = path_ + "/unlearned";
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const UnlearnedVector& one : models) {
    const ConstVectorView model = one.model.view();
    MACAW_RETURN_IF_ERROR(WriteSafetensors(
        absl::StrCat(folder, "/", one.client.value, ".safetensors"),
        split != nullptr ? split->Tensors(model) : TensorsOf(model),
        WithAdapters({{"run", facts.name}, {"without", absl::StrCat(one.client.value)}},
                     facts.adapters)));
  }
  return absl::OkStatus();
}

absl::Status RunFolder::WriteFinal(std::span<const ConstVectorView> models, const SplitModel* split,
                                   const SummaryFacts& facts) {
  const ConstVectorView model = models.front();
  // Of rounds that were not done again.
  MACAW_RETURN_IF_ERROR(metrics_.CutTail());
  if (contributions_.has_value()) MACAW_RETURN_IF_ERROR(contributions_->CutTail());
  MACAW_RETURN_IF_ERROR(WriteSafetensors(
      path_ + "/model.safetensors", split != nullptr ? split->Tensors(model) : TensorsOf(model),
      WithAdapters({{"run", facts.name}}, facts.adapters)));
  if (split != nullptr) {
    MACAW_RETURN_IF_ERROR(WriteModel(
        path_ + "/trained.safetensors", model,
        WithAdapters({{"run", facts.name}, {"base", split->base().digest.Hex()}}, facts.adapters)));
  }
  MACAW_ASSIGN_OR_RETURN(OrderedJson summary, SummaryOf(path_ + "/metrics.jsonl", facts));
  if (models.size() > 1) {
    MACAW_ASSIGN_OR_RETURN(summary["models"], WriteModels(path_, models, facts));
  }
  if (facts.best_model_round > 0) {
    MACAW_RETURN_IF_ERROR(best_.WriteHeld());
    MACAW_ASSIGN_OR_RETURN(const std::optional<Digest> digest,
                           best_.Publish(Round(facts.best_model_round), split));
    if (digest.has_value()) {
      summary["best_model"] = {{"file", "model.best.safetensors"},
                               {"metric", facts.stop_metric},
                               {"round", facts.best_model_round},
                               {"model_digest", digest->Hex()}};
    }
  }
  return AtomicWriteFile(path_ + "/summary.json", summary.dump(2) + "\n");
}

}  // namespace macaw::server
