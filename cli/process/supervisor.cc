#include "cli/process/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/process/line_reader.h"
#include "cli/process/restart_policy.h"
#include "cli/process/signals.h"
#include "core/clock.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// How long the workers have to notice that the run is over, and the server to stop after a worker
// cannot be restarted any more.
constexpr Duration kLeaveGrace = std::chrono::seconds(3);
constexpr Duration kStopGrace = std::chrono::seconds(20);

struct Worker {
  uint32_t index = 0;
  std::string name, log;
  std::optional<Child> child;
  std::optional<TimePoint> start_at;  // when to start it again
  RestartPolicy policy;
  bool was_unanswered = false;  // whether it got no answer (kExitUnanswered) since the last round
};

// The processes of one run. Everything happens on one thread in one poll().
class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, SignalFd& signals, SignalFd& child_signals)
      : options_(options),
        signals_(signals),
        child_signals_(child_signals),
        workers_(options.workers) {
    if (options.limit.has_value()) out_of_time_at_ = Now() + *options.limit;
    for (uint32_t i = 0; i < options.workers; ++i) workers_[i].index = i;
  }

  absl::StatusOr<SupervisedEnd> Run() {
    MACAW_RETURN_IF_ERROR(StartServer());
    // A service may already be stopped before this process waits for the signal.
    MACAW_RETURN_IF_ERROR(OnChildSignals());
    while (server_.has_value() || server_start_at_.has_value()) {
      MACAW_RETURN_IF_ERROR(StartDueServer());
      MACAW_RETURN_IF_ERROR(StartDueWorkers());
      MACAW_RETURN_IF_ERROR(WaitAndHandle());
    }
    MACAW_RETURN_IF_ERROR(failure_);
    if (end_ == SupervisedEnd::kFinished) MACAW_RETURN_IF_ERROR(LetWorkersLeave());
    return end_;  // ~Child kills the remaining processes
  }

 private:
  // What one poll() watches: the descriptor and what to do when it has something.
  struct Watched {
    int fd;
    std::function<absl::Status()> handle;
  };

  absl::Status StartServer() {
    MACAW_ASSIGN_OR_RETURN(PipePair ready, MakePipe());
    MACAW_ASSIGN_OR_RETURN(PipePair report, MakePipe());
    const ChildSpec spec = options_.server({.ready_fd = ready.write.get(),
                                            .report_fd = report.write.get(),
                                            .again = server_died_,
                                            .address = address_});
    server_log_ = spec.log;
    MACAW_ASSIGN_OR_RETURN(server_, Child::Spawn(spec));
    ready_ = std::move(ready.read);
    report_ = std::move(report.read);
    ready_lines_ = report_lines_ = LineReader();  // drops the half line of the server that died
    return absl::OkStatus();
  }

  absl::Status StartDueServer() {
    if (!server_start_at_.has_value() || *server_start_at_ > Now()) return absl::OkStatus();
    server_start_at_.reset();
    return StartServer();
  }

  absl::Status StartDueWorkers() {
    if (stopping_) return absl::OkStatus();
    for (Worker& worker : workers_) {
      if (!worker.start_at.has_value() || *worker.start_at > Now()) continue;
      worker.start_at.reset();
      const ChildSpec spec = options_.worker(worker.index, address_);
      worker.name = spec.name;
      worker.log = spec.log;
      MACAW_ASSIGN_OR_RETURN(worker.child, Child::Spawn(spec));
    }
    return absl::OkStatus();
  }

  absl::Status WaitAndHandle() {
    std::vector<Watched> watched;
    watched.push_back({signals_.fd(), [this] { return OnSignals(); }});
    watched.push_back({child_signals_.fd(), [this] { return OnChildSignals(); }});
    if (ready_.open()) watched.push_back({ready_.get(), [this] { return OnReady(); }});
    const bool rows_due = report_.open() && report_at_ <= Now();
    if (rows_due) watched.push_back({report_.get(), [this] { return OnReport(); }});
    for (Worker& worker : workers_) {
      if (worker.child.has_value()) {
        watched.push_back({worker.child->pidfd(), [this, &worker] { return OnWorkerEnd(worker); }});
      }
    }
    for (const Service& service : options_.services) {
      if (!stopping_)
        watched.push_back({service.fd(), [this, &service] { return Attend(service); }});
    }
    // The server comes last, so that its rows and the ends of its workers are handled first.
    if (server_.has_value())
      watched.push_back({server_->pidfd(), [this] { return OnServerEnd(); }});

    std::vector<pollfd> fds;
    for (const Watched& w : watched) fds.push_back({w.fd, POLLIN, 0});
    if (::poll(fds.data(), fds.size(), MillisecondsToNextDeadline(rows_due)) < 0 &&
        errno != EINTR) {
      return absl::ErrnoToStatus(errno, "cannot wait for the children");
    }
    if (kill_at_.has_value() && *kill_at_ <= Now() && server_.has_value()) server_->Kill();
    EndInTime();
    MACAW_RETURN_IF_ERROR(EndLongPauses());
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) MACAW_RETURN_IF_ERROR(watched[i].handle());
    }
    return absl::OkStatus();
  }

  int MillisecondsToNextDeadline(bool rows_watched) const {
    std::optional<TimePoint> next = kill_at_;
    if (out_of_time_at_.has_value())
      next = std::min(next.value_or(*out_of_time_at_), *out_of_time_at_);
    if (server_start_at_.has_value())
      next = std::min(next.value_or(*server_start_at_), *server_start_at_);
    if (report_.open() && !rows_watched) next = std::min(next.value_or(report_at_), report_at_);
    for (const Worker& worker : workers_) {
      if (!stopping_ && worker.start_at.has_value())
        next = std::min(next.value_or(*worker.start_at), *worker.start_at);
    }
    for (const auto& [pid, since] : stopped_) {
      if (stopping_ || !since.has_value()) continue;
      const TimePoint over = *since + options_.patience;
      next = std::min(next.value_or(over), over);
    }
    if (!next.has_value()) return -1;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*next - Now()).count();
    return static_cast<int>(std::clamp<int64_t>(wait, 0, 1 << 30));
  }

  absl::Status OnSignals() {
    while (signals_.Take() != 0) {
      const bool again = std::exchange(signalled_, true);
      if (!again && !failure_.ok()) {
        options_.say(absl::StrCat(failure_.message(), "; the server has ", ToSeconds(kStopGrace),
                                  " s to keep what is finished (again: kill)"));
      } else if (stopping_) {
        options_.say("killing everything");
        if (server_.has_value()) server_->Kill();
        end_ = SupervisedEnd::kKilled;
      } else {
        options_.say("stopping: the open round is dropped, the rest is kept (again: kill)");
        StopServer();
        end_ = SupervisedEnd::kInterrupted;
      }
    }
    return absl::OkStatus();
  }

  void EndInTime() {
    if (!out_of_time_at_.has_value() || *out_of_time_at_ > Now()) return;
    out_of_time_at_.reset();
    server_start_at_.reset();
    if (server_.has_value()) server_->Kill();
    if (!stopping_) end_ = SupervisedEnd::kOutOfTime;
    stopping_ = true;
  }

  void StopServer() {
    stopping_ = true;
    server_start_at_.reset();  // no restart: a server that died has saved what it could
    if (!server_.has_value()) return;
    server_->Signal(SIGINT);
    server_->Signal(SIGCONT);  // a stopped process would not get the other signal
  }

  // All live children, and whether each is a worker.
  std::vector<std::pair<Child*, bool>> Children() {
    std::vector<std::pair<Child*, bool>> children;
    if (server_.has_value()) children.emplace_back(&*server_, false);
    for (const Service& service : options_.services) {
      Child* child = service.process ? service.process() : nullptr;
      if (child != nullptr) children.emplace_back(child, false);
    }
    for (Worker& worker : workers_) {
      if (worker.child.has_value()) children.emplace_back(&*worker.child, true);
    }
    return children;
  }

  absl::Status OnChildSignals() {
    while (child_signals_.Take() != 0) {
    }
    std::map<pid_t, std::optional<TimePoint>> stopped;
    for (const auto& [child, is_worker] : Children()) {
      const auto before = stopped_.find(child->pid());
      if (child->Stopped()) {
        if (before == stopped_.end()) {
          options_.say(absl::StrCat(child->name(), " is stopped; waiting ",
                                    ToSeconds(options_.patience), " s for it (kill -CONT ",
                                    child->pid(), " lets it go on)"));
        }
        stopped[child->pid()] = before == stopped_.end() ? Now() : before->second;
      } else if (before != stopped_.end() && !stopping_) {
        options_.say(absl::StrCat(child->name(), " goes on"));
      }
    }
    stopped_ = std::move(stopped);
    return absl::OkStatus();
  }

  absl::Status EndLongPauses() {
    if (stopping_) return absl::OkStatus();
    for (const auto& [child, is_worker] : Children()) {
      const auto found = stopped_.find(child->pid());
      if (found == stopped_.end() || !found->second.has_value()) continue;
      if (Now() < *found->second + options_.patience) continue;
      const std::string what =
          absl::StrCat(child->name(), " has been stopped for ", ToSeconds(options_.patience), " s");
      found->second.reset();
      if (!is_worker) {
        return GiveUp(absl::UnavailableError(
            absl::StrCat(what, " (SIGSTOP), and nothing goes on without it")));
      }
      options_.say(absl::StrCat(what, "; killing it"));
      child->Kill();
    }
    return absl::OkStatus();
  }

  absl::Status OnReady() {
    const std::vector<std::string> lines = ready_lines_.Read(ready_.get());
    if (!lines.empty()) {
      const bool first = std::exchange(address_, lines[0]).empty();
      for (Worker& worker : workers_) {
        if (first) worker.start_at = Now();
      }
    }
    if (!lines.empty() || ready_lines_.ended()) ready_.Close();
    return absl::OkStatus();
  }

  absl::Status OnReport() {
    const std::vector<std::string> rows = report_lines_.Read(report_.get());
    report_at_ = Now() + options_.report_pause;
    bool moved = false;
    for (const std::string& row : rows) moved = options_.on_row(row) || moved;
    if (moved) {
      server_policy_.OnProgress(Now());
      for (Worker& worker : workers_) {
        worker.policy.OnProgress(Now());
        worker.was_unanswered = false;
      }
    }
    if (report_lines_.ended()) report_.Close();
    return absl::OkStatus();
  }

  // Reads what is in the pipe now, but not up to its end: a process that the server started may
  // hold the other end open.
  absl::Status ReadRows() {
    while (report_.open() && Readable(report_.get())) MACAW_RETURN_IF_ERROR(OnReport());
    return absl::OkStatus();
  }

  absl::Status OnWorkerEnd(Worker& worker) {
    MACAW_RETURN_IF_ERROR(ReadRows());  // a round that was just finished resets the limit
    const Exit exit = worker.child->Reap();
    worker.child.reset();
    if (stopping_) return absl::OkStatus();
    if (exit.code == kExitUsage || exit.code == kExitMissingBackend)
      return GiveUp(absl::InvalidArgumentError(Complaint(worker.name, exit, worker.log)));
    if (exit.code == kExitNoRoom)
      return GiveUp(absl::ResourceExhaustedError(Complaint(worker.name, exit, worker.log)));
    if (exit.code == kExitUnanswered) {
      if (std::exchange(worker.was_unanswered, true)) {
        return GiveUp(absl::UnavailableError(
            absl::StrCat("no answer, twice and without a round being finished; ",
                         Complaint(worker.name, exit, worker.log))));
      }
      options_.say(
          absl::StrCat(worker.name, " has had no answer (", exit.Text(), "); trying once more"));
      worker.start_at = Now();
      return absl::OkStatus();
    }
    const std::optional<Duration> wait = worker.policy.OnDeath(Now());
    if (!wait.has_value()) {
      return GiveUp(absl::UnavailableError(absl::StrCat(
          worker.name, " died ", RestartPolicy::kLimit + 1,
          " times without a round being finished; ", Complaint(worker.name, exit, worker.log))));
    }
    if (exit.ok()) {
      // Usually the worker was told that the run is over, and the server is still writing. If not,
      // the run needs the worker again.
      worker.start_at = Now() + kLeaveGrace;
      return absl::OkStatus();
    }
    options_.say(absl::StrCat(worker.name, " died (", exit.Text(), "); starting it again"));
    worker.start_at = Now() + *wait;
    return absl::OkStatus();
  }

  absl::Status Attend(const Service& service) {
    if (stopping_) return absl::OkStatus();
    absl::Status status = service.attend();
    return status.ok() ? status : GiveUp(std::move(status));
  }

  // The run cannot go on, but the server is healthy and may save what is finished.
  absl::Status GiveUp(absl::Status why) {
    failure_ = std::move(why);
    kill_at_ = Now() + kStopGrace;
    StopServer();
    return absl::OkStatus();
  }

  absl::Status OnServerEnd() {
    const Exit exit = server_->Reap();
    MACAW_RETURN_IF_ERROR(ReadRows());
    server_.reset();
    if (!failure_.ok() || end_ == SupervisedEnd::kKilled || end_ == SupervisedEnd::kOutOfTime)
      return absl::OkStatus();
    // SIGINT kills a server that does not listen for signals yet.
    const bool early = end_ == SupervisedEnd::kInterrupted && exit.signal == SIGINT;
    if (exit.ok() || exit.code == kExitInterrupted || early) {
      end_ = exit.ok() ? SupervisedEnd::kFinished : SupervisedEnd::kInterrupted;
      return absl::OkStatus();
    }
    const std::string complaint = Complaint("macaw-server", exit, server_log_);
    if (exit.signal != 0 && options_.restart_server && !stopping_)
      return StartServerAgain(complaint);
    // It has refused the run before a worker could dial, so its log has nothing but the reason.
    if (absl::string_view reason = exit.words;
        exit.code == kExitUsage && address_.empty() &&
        absl::ConsumePrefix(&reason, "macaw-server: error: "))
      return absl::FailedPreconditionError(reason);
    return exit.code == kExitUsage ? absl::FailedPreconditionError(complaint)
                                   : absl::AbortedError(complaint);
  }

  // The workers live on and look for the server at its old address.
  absl::Status StartServerAgain(const std::string& complaint) {
    const std::optional<Duration> wait = server_policy_.OnDeath(Now());
    if (!wait.has_value()) {
      return absl::AbortedError(absl::StrCat("macaw-server died ", RestartPolicy::kLimit + 1,
                                             " times without a round being finished; ", complaint));
    }
    options_.say(absl::StrCat(complaint, "; starting it again, the workers go on"));
    server_died_ = true;
    server_start_at_ = Now() + *wait;
    return absl::OkStatus();
  }

  // Why a process ended, for the user. One of ours that ends with an error says it in a sentence.
  static std::string Complaint(const std::string& name, const Exit& exit, const std::string& log) {
    absl::string_view words = exit.words;
    const bool said = exit.signal == 0 && (absl::ConsumePrefix(&words, "macaw-server: error: ") ||
                                           absl::ConsumePrefix(&words, "macaw-worker: error: "));
    return absl::StrCat(said ? words : absl::StrCat(name, ": ", exit.Text()), " (", log, ")");
  }

  absl::Status LetWorkersLeave() {
    const TimePoint deadline = Now() + kLeaveGrace;
    for (const Worker& worker : workers_) {
      if (worker.child.has_value())
        worker.child->Signal(SIGTERM);  // the server may not have told it
    }
    while (true) {
      std::vector<pollfd> fds;
      for (const Worker& worker : workers_) {
        if (worker.child.has_value()) fds.push_back({worker.child->pidfd(), POLLIN, 0});
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
      if (fds.empty() || left <= 0) return absl::OkStatus();
      if (::poll(fds.data(), fds.size(), static_cast<int>(left)) < 0 && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "cannot wait for the workers");
      }
      for (Worker& worker : workers_) {
        if (!worker.child.has_value()) continue;
        if (!Readable(worker.child->pidfd())) continue;
        worker.child->Reap();
        worker.child.reset();
      }
      if (signals_.Take() != 0) return absl::OkStatus();
    }
  }

  static bool Readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  static TimePoint Now() { return SteadyClock().Now(); }

  const SupervisorOptions& options_;
  SignalFd& signals_;
  SignalFd& child_signals_;
  std::optional<Child> server_;
  std::string server_log_, address_;
  bool server_died_ = false;
  std::optional<TimePoint> server_start_at_;  // when to start it again
  RestartPolicy server_policy_{RestartPolicy::BackOff::kFruitlessDeaths};
  std::vector<Worker> workers_;
  Fd ready_, report_;
  LineReader ready_lines_, report_lines_;
  // Stopped children, and since when; no time: the wait for this child is over.
  std::map<pid_t, std::optional<TimePoint>> stopped_;
  bool stopping_ = false;
  bool signalled_ = false;  // the user has asked to stop
  SupervisedEnd end_ = SupervisedEnd::kFinished;
  absl::Status failure_;
  std::optional<TimePoint> kill_at_, out_of_time_at_;
  TimePoint report_at_{};  // when to read rows again
};

}  // namespace

absl::StatusOr<SupervisedEnd> Supervise(const SupervisorOptions& options) {
  MACAW_ASSIGN_OR_RETURN(SignalFd signals, SignalFd::Open());
  MACAW_ASSIGN_OR_RETURN(SignalFd child_signals, SignalFd::OpenForChildren());
  return Supervisor(options, signals, child_signals).Run();
}

}  // namespace macaw::cli
