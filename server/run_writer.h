#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/executor.h"
#include "server/run_folder.h"

namespace macaw::server {

// Writes a run's folder on a thread of its own, in the order asked: a burst at a time, when Flush()
// is called or enough has come together, because a round asks for half a dozen writes and waking a
// thread costs more than most of them. The first write that fails is reported once, and nothing is
// written after it: a later checkpoint would count on rows that are not there. Every call returns
// at once; thread-safe.
class RunWriter {
 public:
  // `failed` is called on the writer's thread. The destructor writes what was asked, then joins.
  RunWriter(RunFolder folder, std::function<void(absl::Status)> failed);
  ~RunWriter() { Flush(); }

  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of metrics.jsonl; also samples this process's memory. `text` is called on the writer's thread.
  void Row(std::function<std::string()> text);
  void Clients(Round round, std::vector<fleet::ClientRecord> records, TaskKind task);
  // For the log and events.jsonl. `since_start`: of this session of the server; `seconds`: spent on
  // the run in all.
  void Record(log::Record record, Duration since_start, double seconds);
  // Of the journal (journal/journal.h).
  void Node(JournalNode node);
  void Part(JournalPart part);
  // Calls `then` on the writer's thread once everything asked before has been handed to the system,
  // or is on the disk. Answers that are asked for together share one wait for it.
  enum class Safe : uint8_t { kFromThisProcess, kFromTheMachine };
  void After(Safe safe, Executor::Task then);
  // Of timeline.json (timeline.h).
  void Worker(WorkerId session, std::string name, uint32_t slots);
  void Phase(std::shared_ptr<const PhaseReport> report, TimePoint origin, TimePoint closed);
  // `kept` hears the round of the oldest checkpoint that is still there (writer's thread).
  void Keep(Checkpoint checkpoint, std::function<void(Round)> kept);

  // What a run that is over leaves behind, and when.
  struct Ending {
    absl::Status status;          // how the rounds went
    bool has_checkpoint = false;  // false: there is nothing to go on from
    bool checkpoint_first = false;
    Checkpoint checkpoint;
    FlatVector model;
    SummaryFacts facts;  // without the server's memory
  };
  // `done` hears the ending's own error, the first failed write's, or OK (writer's thread). Needs
  // no Flush.
  void Finish(Ending ending, std::function<void(absl::Status)> done);

  void WaitIdle() {
    Flush();
    thread_.WaitIdle();
  }

 private:
  template <typename Work>
  void Write(Work work);
  void Hold(Executor::Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteLog();                  // the records of a burst at once
  void Answer();                    // what After has been asked for
  void Check(absl::Status status);  // reports the first error
  void SampleMemory();
  absl::Status End(Ending& ending);

  const std::function<void(absl::Status)> failed_;
  // the writer's thread
  RunFolder folder_;
  absl::Status error_;
  uint64_t memory_peak_ = 0;  // bytes, PSS
  TimePoint memory_sampled_{};
  std::vector<Executor::Task> answers_;
  bool sync_due_ = false;  // for one of them

  std::atomic<int> flushes_ = 0;  // under way to the thread
  absl::Mutex mutex_;
  std::vector<Executor::Task> held_ ABSL_GUARDED_BY(mutex_);  // until Flush
  Executor thread_{"writer", 1};
};

}  // namespace macaw::server
