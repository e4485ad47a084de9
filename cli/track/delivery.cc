#include "cli/track/delivery.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/track/facts.h"
#include "core/executor.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

constexpr int kMostDoublings = 10;

// How many rows lie behind a round. Nothing can be done about an error here.
size_t RowsBehind(const std::string& folder, int64_t round) {
  RowReader reader(folder);
  size_t count = 0;
  while (true) {
    const absl::StatusOr<std::vector<Row>> rows = reader.Next(round, 10000);
    if (!rows.ok() || rows->empty()) return count;
    count += rows->size();
    round = rows->back().round;
  }
}

absl::StatusOr<Fd> LockTracker(const std::string& folder, const std::string& name) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder + "/track"));
  const std::string path = absl::StrCat(folder, "/track/", name, ".lock");
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) return FileError("cannot open", path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(
        absl::StrCat("another program delivers this run's rows there (", path, " is locked)"));
  }
  return lock;
}

// Starts a thread that gets no signals: those of the process are for its main thread, and a server
// that closes a connection must not end the process.
template <typename Work>
std::thread StartWithoutSignals(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Delivery::Delivery(DeliveryOptions options, std::unique_ptr<Tracker> tracker)
    : options_(std::move(options)),
      tracker_(std::move(tracker)),
      reader_(options_.folder),
      thread_(StartWithoutSignals([this] { Loop(); })) {}

Delivery::~Delivery() {
  {
    const absl::MutexLock lock(&mutex_);
    phase_ = Phase::kInterrupted;
  }
  tracker_->Interrupt();
  if (thread_.joinable()) thread_.join();
}

void Delivery::NoMoreRows() {
  const absl::MutexLock lock(&mutex_);
  phase_ = Phase::kFinishing;
}

bool Delivery::Finish(Duration at_most) {
  int64_t reached = kNoRound;
  absl::Status error;
  {
    const absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::FromChrono(at_most));
    if (done_) return true;
    phase_ = Phase::kInterrupted;
    reached = reached_;
    error = error_;
  }
  const std::string left = Left(reached);
  options_.say(absl::StrCat(
      options_.name, ": ", left.empty() ? "its end is" : absl::StrCat(left, " are"),
      " not delivered",
      error.ok() ? ", it has not answered in time" : absl::StrCat(": ", error.message()),
      "; `macaw track ", options_.folder, " --to ", options_.name, "` goes on"));
  tracker_->Interrupt();
  thread_.join();
  return false;
}

void Delivery::Loop() {
  NameThisThread(absl::StrCat("track-", options_.name));
  while (true) {
    const Phase at = phase();
    if (at == Phase::kInterrupted) return;
    const absl::StatusOr<bool> all = Step();
    if (phase() == Phase::kInterrupted) return;
    {
      const absl::MutexLock lock(&mutex_);
      error_ = all.status();
      reached_ = delivered_;
      done_ = all.ok() && *all && at == Phase::kFinishing;
      if (done_) return;
    }
    if (all.ok()) {
      if (failures_ > 0) options_.say(absl::StrCat(options_.name, ": deliveries go on"));
      failures_ = 0;
      Wait(options_.look_every, at);
      continue;
    }
    open_ = false;
    if (failures_ == 0) SayFailure(all.status());
    failures_ = std::min(failures_ + 1, kMostDoublings);
    const Duration pause = options_.retry_after * (1 << (failures_ - 1));
    Wait(at == Phase::kFinishing ? options_.retry_after : std::min(pause, options_.retry_at_most),
         at);
  }
}

absl::StatusOr<bool> Delivery::Step() {
  const bool last = phase() == Phase::kFinishing;  // before the rows are read: there are no more
  if (!open_) {
    // Nothing is made for a run that never finishes a round.
    MACAW_ASSIGN_OR_RETURN(const std::vector<Row> first, reader_.Next(kNoRound, 1));
    if (first.empty()) return true;
    MACAW_RETURN_IF_ERROR(Open());
  }
  while (phase() != Phase::kInterrupted) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<Row> rows,
                           reader_.Next(delivered_, options_.rows_at_once));
    if (rows.empty()) break;
    MACAW_RETURN_IF_ERROR(tracker_->Deliver(rows));
    delivered_ = rows.back().round;
  }
  if (last) MACAW_RETURN_IF_ERROR(tracker_->Close(ReadEnd(options_.folder)));
  return true;
}

absl::Status Delivery::Open() {
  if (!lock_.open()) {
    MACAW_ASSIGN_OR_RETURN(lock_, LockTracker(options_.folder, options_.name));
  }
  MACAW_ASSIGN_OR_RETURN(const RunFacts facts, ReadFacts(options_.folder));
  MACAW_ASSIGN_OR_RETURN(delivered_, tracker_->Open(facts));
  open_ = true;
  return absl::OkStatus();
}

void Delivery::Wait(Duration time, Phase at) {
  const absl::MutexLock lock(&mutex_);
  const auto changed = [this, at]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return phase_ != at; };
  mutex_.AwaitWithTimeout(absl::Condition(&changed), absl::FromChrono(time));
}

Delivery::Phase Delivery::phase() const {
  const absl::MutexLock lock(&mutex_);
  return phase_;
}

void Delivery::SayFailure(const absl::Status& status) {
  const std::string left = Left(delivered_);
  options_.say(absl::StrCat(options_.name, ": ", left.empty() ? "its end" : left,
                            " must wait to be delivered: ", status.message()));
}

std::string Delivery::Left(int64_t reached) const {
  const size_t rows = RowsBehind(options_.folder, reached);
  if (rows == 0) return "";
  // Only the tracker knows what an earlier program has delivered.
  return absl::StrCat(reached == kNoRound ? "up to " : "", Counted(rows, "row"));
}

}  // namespace macaw::cli
