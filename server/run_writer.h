#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/executor.h"
#include "server/run_folder.h"

namespace macaw::server {

// Writes a run's folder on a thread of its own, in the order of the calls. Writes are collected and
// passed to the thread when Flush() is called or when there are many of them: a round makes half a
// dozen writes, and waking a thread costs more than most of them. The first write that fails is
// reported once. Nothing is written after it, because a later checkpoint would count on rows that
// are missing. Every call returns at once. Thread-safe.
class RunWriter {
 public:
  // `failed` is called on the writer's thread. The destructor finishes all writes, then joins.
  RunWriter(RunFolder folder, std::function<void(absl::Status)> failed);
  ~RunWriter() { Flush(); }

  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on each line of events.jsonl is also given to `feed`, once it is written. `feed` must
  // outlive this.
  void TellEvents(admin::EventFeed& feed);
  uint64_t memory_peak() const { return memory_peak_; }  // of this process, in bytes; any thread

  // Writes a row of metrics.jsonl, and samples the memory of this process. Then `written` gets the
  // row: whoever it tells finds the row in the file. Both are called on the writer's thread.
  void Row(std::function<std::string()> text, std::function<void(const std::string& row)> written);
  void Confusion(std::string text);
  void ClientEvaluation(std::string text);
  // A line of contributions.jsonl, before the row of its round.
  void Contributions(std::string line);
  // Holds the model as the best so far; the next checkpoint, or the end, writes it.
  void Best(Round round, KeptModel model, bool off_grid);  // as RunFolder::HoldBest
  // Writes the model of a round (round_model.h).
  void RoundModel(Round round, KeptModel model);
  void Clients(Round round, std::vector<fleet::ClientRecord> records, TaskKind task);
  // Writes to the log and to events.jsonl. `since_start`: time since the start of this session;
  // `seconds`: spent on the run in all sessions.
  void Record(log::Record record, Duration since_start, double seconds);
  // Write to the journal (journal/journal.h).
  void Node(JournalNode node);
  void Part(JournalPart part);
  // Calls `then` on the writer's thread once all earlier writes are safe: handed to the operating
  // system (kFromThisProcess) or on the disk (kFromTheMachine). Calls that are made together share
  // one wait for the disk. `then` gets the error of the first write that failed, if one did: the
  // writes that it waited for are then not safe.
  enum class Safe : uint8_t { kFromThisProcess, kFromTheMachine };
  using Then = absl::AnyInvocable<void(const absl::Status& written) &&>;
  void After(Safe safe, Then then);
  // Write to timeline.json (timeline.h).
  void Worker(WorkerId session, std::string name, uint32_t slots);
  void Phase(std::shared_ptr<const PhaseReport> report, TimePoint origin, TimePoint closed);
  // Writes a checkpoint. `kept` is called on the writer's thread with the round of the oldest
  // checkpoint that is left.
  void Keep(Checkpoint checkpoint, std::function<void(Round)> kept);

  // What is written at the end of a run, and in which order. The log says last that the run is
  // over: if the server is killed before, or cannot write what comes before, the journal is still
  // there, and the next server goes on from it. Only the last checkpoint of a run that has its
  // result may be missing (Ended::checkpoint).
  struct Ending {
    absl::Status status;  // how the rounds went
    log::RunEnded over;   // with `since_start` and `seconds` as Record's
    Duration since_start{};
    double seconds = 0;
    bool has_checkpoint = false;  // false: there is no state from which a resume could continue
    bool checkpoint_first = false;
    bool has_result = true;  // false: the session adds nothing to the result that is there
    Checkpoint checkpoint;
    FlatVector model;                              // of a split one, what is trained
    std::shared_ptr<const SplitModel> split = {};  // null: it has no parts
    std::vector<FlatVector> more_models;           // of a rule with several
    std::vector<UnlearnedVector> unlearned = {};   // as `model`
    SummaryFacts facts;                            // without the server's memory
  };
  struct Ended {
    absl::Status result;      // the error of the ending, or of the first failed write
    absl::Status checkpoint;  // why a run whose result is whole has no last checkpoint
  };
  // Writes the ending. `done` is called on the writer's thread. Needs no Flush.
  void Finish(Ending ending, std::function<void(Ended)> done);

  void WaitIdle() {
    Flush();
    thread_.WaitIdle();
  }

 private:
  template <typename Work>
  void Write(Work work);
  void Hold(Executor::Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteLog();                  // writes all collected records at once
  void Answer();                    // calls the tasks passed to After
  void Check(absl::Status status);  // reports the first error
  void SampleMemory();
  Ended End(Ending& ending);
  absl::Status WriteResult(Ending& ending);
  absl::Status KeepLast(Ending& ending);  // its checkpoint, if it has one
  absl::Status EndLog(Ending& ending);

  const std::function<void(absl::Status)> failed_;
  // the writer's thread
  RunFolder folder_;
  absl::Status error_;
  std::atomic<uint64_t> memory_peak_ = 0;  // bytes, PSS
  TimePoint memory_sampled_{};
  std::vector<Then> answers_;
  bool sync_due_ = false;  // one of the answers needs kFromTheMachine

  std::atomic<int> flushes_ = 0;  // posted to the thread and not done
  absl::Mutex mutex_;
  std::vector<Executor::Task> held_ ABSL_GUARDED_BY(mutex_);  // until Flush
  Executor thread_{"writer", 1};
};

}  // namespace macaw::server
