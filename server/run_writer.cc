#include "server/run_writer.h"

#include <algorithm>
#include <utility>

#include "core/memory.h"
#include "core/status.h"

namespace macaw::server {
namespace {

constexpr Duration kMemorySample =
    std::chrono::seconds(1);  // a sample of the PSS costs about a millisecond

constexpr size_t kMostHeld = 64;  // writes; a limit for an engine that is never idle

}  // namespace

RunWriter::RunWriter(RunFolder folder, std::function<void(absl::Status)> failed)
    : failed_(std::move(failed)), folder_(std::move(folder)) {}

void RunWriter::TellEvents(admin::EventFeed& feed) {
  Write([this, &feed] { return folder_.TellEvents(feed); });
}

void RunWriter::Hold(Executor::Task task) {
  bool many = false;
  {
    absl::MutexLock lock(&mutex_);
    held_.push_back(std::move(task));
    many = held_.size() >= kMostHeld;
  }
  if (many) Flush();
}

void RunWriter::Flush() {
  absl::MutexLock lock(&mutex_);  // held while posting, so that two flushes keep their order
  if (held_.empty()) return;
  ++flushes_;
  thread_.Post([this, tasks = std::exchange(held_, {})]() mutable {
    for (Executor::Task& task : tasks) {
      std::move(task)();
      task = nullptr;  // frees what the task holds
    }
    WriteLog();
    // If another flush is coming and a sync is due, let that flush answer. One wait for the disk is
    // then enough for both.
    if (--flushes_ == 0 || !sync_due_) Answer();
  });
}

void RunWriter::Answer() {
  if (std::exchange(sync_due_, false) && error_.ok()) Check(folder_.SyncCommits());
  for (Then& answer : std::exchange(answers_, {})) std::move(answer)(error_);
}

void RunWriter::Check(absl::Status status) {
  if (status.ok() || !error_.ok()) return;
  error_ = std::move(status);
  failed_(error_);
}

void RunWriter::Node(JournalNode node) {
  Write([this, node = std::move(node)] { return folder_.Journalize(node); });
}

void RunWriter::Part(JournalPart part) {
  Write([this, part = std::move(part)] { return folder_.Journalize(part); });
}

void RunWriter::After(Safe safe, Then then) {
  Hold([this, safe, then = std::move(then)]() mutable {
    sync_due_ = sync_due_ || safe == Safe::kFromTheMachine;
    answers_.push_back(std::move(then));
  });
}

template <typename Work>
void RunWriter::Write(Work work) {
  Hold([this, work = std::move(work)]() mutable {
    if (!error_.ok()) return;
    error_ = work();
    if (!error_.ok()) failed_(error_);
  });
}

void RunWriter::Row(std::function<std::string()> text,
                    std::function<void(const std::string& row)> written) {
  Write([this, text = std::move(text), written = std::move(written)] {
    SampleMemory();
    const std::string row = text();
    const absl::Status status = folder_.AppendRow(row);
    if (status.ok()) written(row);
    return status;
  });
}

void RunWriter::RoundModel(Round round, KeptModel model) {
  Write([this, round, model = std::move(model)] { return folder_.WriteRoundModel(round, model); });
}

void RunWriter::Confusion(std::string text) {
  Write([this, text = std::move(text)] { return folder_.WriteConfusion(text); });
}

void RunWriter::ClientEvaluation(std::string text) {
  Write([this, text = std::move(text)] { return folder_.WriteClientEvaluation(text); });
}

void RunWriter::Contributions(std::string line) {
  Write([this, line = std::move(line)] { return folder_.AppendContributions(line); });
}

void RunWriter::Best(Round round, KeptModel model, bool off_grid) {
  Write([this, round, model = std::move(model), off_grid]() mutable {
    folder_.HoldBest(round, std::move(model), off_grid);
    return absl::OkStatus();
  });
}

void RunWriter::Clients(Round round, std::vector<fleet::ClientRecord> records, TaskKind task) {
  Write([this, round, records = std::move(records), task] {
    return folder_.AppendClients(round, records, task);
  });
}

void RunWriter::Record(log::Record record, Duration since_start, double seconds) {
  Write([this, record = std::move(record), since_start, seconds]() mutable {
    return folder_.AppendRecord(std::move(record), since_start, seconds);
  });
}

void RunWriter::Worker(WorkerId session, std::string name, uint32_t slots) {
  Write([this, session, name = std::move(name), slots] {
    return folder_.timeline().AddWorker(session, name, slots);
  });
}

void RunWriter::Phase(std::shared_ptr<const PhaseReport> report, TimePoint origin,
                      TimePoint closed) {
  Write([this, report = std::move(report), origin, closed] {
    return folder_.timeline().AddPhase(*report, origin, closed);
  });
}

void RunWriter::Keep(Checkpoint checkpoint, std::function<void(Round)> kept) {
  Write([this, checkpoint = std::move(checkpoint), kept = std::move(kept)]() mutable {
    MACAW_ASSIGN_OR_RETURN(const Round oldest, folder_.Keep(std::move(checkpoint)));
    kept(oldest);
    return absl::OkStatus();
  });
  Flush();  // a checkpoint holds a whole model, which should not stay in memory
}

void RunWriter::Finish(Ending ending, std::function<void(Ended)> done) {
  Hold([this, ending = std::move(ending), done = std::move(done)]() mutable { done(End(ending)); });
  Flush();
}

RunWriter::Ended RunWriter::End(Ending& ending) {
  Ended ended{.result = WriteResult(ending)};
  if (ended.result.ok() && !ending.checkpoint_first) ended.checkpoint = KeepLast(ending);
  const bool failed = ending.over.how == log::End::kFailed;  // the rounds, as the log shall say
  if (!ended.result.ok() && !failed) return ended;
  const absl::Status logged = EndLog(ending);
  if (!failed) ended.result = logged;
  if (ended.result.ok()) folder_.DropJournal();
  return ended;
}

absl::Status RunWriter::EndLog(Ending& ending) {
  MACAW_RETURN_IF_ERROR(error_);
  MACAW_RETURN_IF_ERROR(
      folder_.AppendRecord(std::move(ending.over), ending.since_start, ending.seconds));
  return folder_.SyncLog();
}

absl::Status RunWriter::WriteResult(Ending& ending) {
  if (error_.ok()) error_ = folder_.timeline().Close();  // also after a failed run
  if (error_.ok()) error_ = folder_.WriteLog();
  MACAW_RETURN_IF_ERROR(ending.status);
  MACAW_RETURN_IF_ERROR(error_);
  if (ending.checkpoint_first) MACAW_RETURN_IF_ERROR(KeepLast(ending));
  if (!ending.has_result) return absl::OkStatus();
  SampleMemory();
  ending.facts.server_memory = memory_peak_;
  std::vector<ConstVectorView> models = {ending.model.view()};
  for (const FlatVector& model : ending.more_models) models.push_back(model.view());
  MACAW_RETURN_IF_ERROR(folder_.WriteUnlearned(ending.unlearned, ending.split.get(), ending.facts));
  return folder_.WriteFinal(models, ending.split.get(), ending.facts);
}

absl::Status RunWriter::KeepLast(Ending& ending) {
  if (!ending.has_checkpoint) return absl::OkStatus();
  return folder_.Keep(std::move(ending.checkpoint)).status();
}

void RunWriter::WriteLog() {
  if (error_.ok()) Check(folder_.WriteLog());
}

void RunWriter::SampleMemory() {
  const TimePoint now = SteadyClock().Now();
  if (memory_peak_ > 0 && now - memory_sampled_ < kMemorySample) return;
  memory_sampled_ = now;
  if (const auto bytes = ProportionalSetSize(); bytes.ok())
    memory_peak_ = std::max(memory_peak_.load(), *bytes);
}

}  // namespace macaw::server
