#include "cli/sweep/jobs.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/process/exit.h"
#include "cli/process/line_reader.h"
#include "cli/process/programs.h"
#include "cli/process/restart_policy.h"
#include "cli/sweep/machine.h"
#include "cli/sweep/rung_result.h"
#include "core/child.h"
#include "core/clock.h"
#include "core/status.h"
#include "server/checkpoint.h"

namespace macaw::cli {
namespace {

// How often memory is measured while a job waits for room.
constexpr Duration kMeasure = std::chrono::milliseconds(200);
// A job is taken to have its full size after its first round, or after this time.
constexpr Duration kSettles = std::chrono::seconds(3);

// One task and its process.
class Running {
 public:
  Running(const Task& task, const JobLimits& limits) : task_(task), limits_(limits) {}

  const Task& task() const { return task_; }
  bool alive() const { return child_.has_value(); }
  int process() const { return alive() ? child_->pidfd() : -1; }
  int output() const { return alive() ? output_.get() : -1; }
  pid_t pid() const { return alive() ? child_->pid() : -1; }
  // Whether it takes about as much memory as it ever will.
  bool settled() const { return has_rows_ || SteadyClock().Now() - started_ > kSettles; }
  std::optional<TimePoint> again() const { return again_; }  // when it is started again

  absl::Status Start(const std::string& program) {
    again_.reset();
    words_.clear();
    lines_ = LineReader();
    MACAW_ASSIGN_OR_RETURN(PipePair pipe, MakePipe());
    ChildSpec spec;
    spec.name = task_.name;
    spec.argv = {program, "simulate", "--json", "--rounds", absl::StrCat(task_.rounds)};
    if (server::HasCheckpoint(task_.folder)) {
      spec.argv.insert(spec.argv.end(), {"--resume", task_.folder});
    } else {
      // Whatever is there was killed before its first checkpoint.
      spec.argv.insert(spec.argv.end(), {task_.config_file, "--out", task_.folder, "--force"});
    }
    if (limits_.slots > 0)
      spec.argv.insert(spec.argv.end(), {"--slots", absl::StrCat(limits_.slots)});
    spec.argv.insert(spec.argv.end(), limits_.arguments.begin(), limits_.arguments.end());
    spec.output = pipe.write.get();
    MACAW_ASSIGN_OR_RETURN(Child child, Child::Spawn(spec));
    child_.emplace(std::move(child));
    output_ = std::move(pipe.read);
    started_ = SteadyClock().Now();
    return absl::OkStatus();
  }

  // Reads what the process has written.
  void Read(const JobEvents& events) {
    uint32_t round = 0;
    for (const std::string& line : lines_.Read(output_.get())) {
      const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object()) {
        words_ = line;
      } else if (event.value("event", "") == "error") {
        words_ = event.value("message", "");
      } else if (event.value("event", "") == "round") {
        round = event.at("row").value("round", 0u);
        has_rows_ = true;
      } else if (event.value("event", "") == "message") {
        events.on_message(task_, event.value("text", ""));
      }
    }
    if (round > 0) events.on_round(task_, round);
  }

  // The process has ended, and everything has been read.
  Exit Reap(const JobEvents& events) {
    while (!lines_.ended()) Read(events);
    const Exit exit = child_->Reap();
    child_.reset();
    output_.Close();
    return exit;
  }

  // After a death by a signal. False: it dies too often.
  bool StartsAgain() {
    const TimePoint now = SteadyClock().Now();
    const std::optional<Duration> pause = policy_.OnDeath(now);
    if (pause.has_value()) again_ = now + *pause;
    return pause.has_value();
  }

  void Signal(int signal) const {
    if (alive() && signal == SIGKILL) child_->Kill();
    if (alive() && signal != SIGKILL) child_->Signal(signal);
  }

  // What the process said of its failure.
  absl::Status Failure(const Exit& exit) const {
    return absl::AbortedError(words_.empty() ? exit.Text() : words_);
  }

 private:
  const Task& task_;
  const JobLimits& limits_;
  std::optional<Child> child_;
  Fd output_;
  LineReader lines_;
  std::string words_;  // its error, or its last line that is no event
  bool has_rows_ = false;
  TimePoint started_;
  RestartPolicy policy_;
  std::optional<TimePoint> again_;
};

class Runner {
 public:
  Runner(const std::vector<Task>& tasks, const JobLimits& limits, SignalFd& signals,
         const JobEvents& events, std::string program)
      : limits_(limits), signals_(signals), events_(events), program_(std::move(program)) {
    for (const Task& task : tasks) waiting_.push_back(&task);
  }

  absl::StatusOr<bool> Run() {
    while (true) {
      if (!ending()) MACAW_RETURN_IF_ERROR(StartWhatFits());
      if (running_.empty() && (waiting_.empty() || ending())) return !ending();
      MACAW_RETURN_IF_ERROR(Wait());
      MACAW_RETURN_IF_ERROR(Attend());
    }
  }

 private:
  bool ending() const { return signals_seen_ > 0; }

  absl::Status StartWhatFits() {
    const TimePoint now = SteadyClock().Now();
    for (const auto& job : running_) {
      if (job->again().has_value() && *job->again() <= now)
        MACAW_RETURN_IF_ERROR(job->Start(program_));
    }
    while (!waiting_.empty() && running_.size() < limits_.jobs && Fits()) {
      const Task& task = *waiting_.front();
      waiting_.pop_front();
      if (const auto result = FinishedRun(task); result.has_value() && CanGoOn(*result, task)) {
        MACAW_RETURN_IF_ERROR(events_.on_end(task, *result));
        continue;
      }
      auto job = std::make_unique<Running>(task, limits_);
      MACAW_RETURN_IF_ERROR(job->Start(program_));
      running_.push_back(std::move(job));
      events_.on_begin(task);
    }
    return absl::OkStatus();
  }

  // Whether one more job has room. How much a job takes is known once one has trained a round.
  bool Fits() {
    if (running_.empty()) return true;
    uint64_t sum = 0;
    bool known = true;
    for (const auto& job : running_) {
      const uint64_t bytes = job->alive() ? MemoryOfTree(job->pid()) : 0;
      if (job->settled()) largest_ = std::max(largest_, bytes);
      known = known && (job->settled() || largest_ > 0);
      sum += std::max(bytes, largest_);  // one that has just begun will grow
    }
    known = known && largest_ > 0;
    const bool fits = known && sum + largest_ <= limits_.memory;
    if (known && !fits && !told_) {
      told_ = true;
      events_.say(absl::StrCat("memory     only ", running_.size(), " at a time fit into ",
                               limits_.memory >> 20, " MB: a job takes ", largest_ >> 20, " MB"));
    }
    return fits;
  }

  // Blocks until something happens or is due.
  absl::Status Wait() {
    polled_ = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    std::optional<TimePoint> due;
    const auto at = [&](TimePoint time) { due = due.has_value() ? std::min(*due, time) : time; };
    const TimePoint now = SteadyClock().Now();
    for (const auto& job : running_) {
      polled_.push_back({.fd = job->process(), .events = POLLIN, .revents = 0});
      polled_.push_back({.fd = job->output(), .events = POLLIN, .revents = 0});
      if (job->again().has_value()) at(*job->again());
    }
    if (!waiting_.empty() && running_.size() < limits_.jobs && !ending()) at(now + kMeasure);
    int patience = -1;
    if (due.has_value()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - now);
      patience = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    if (::poll(polled_.data(), polled_.size(), patience) < 0 && errno != EINTR)
      return absl::ErrnoToStatus(errno, "cannot wait for the jobs");
    return absl::OkStatus();
  }

  absl::Status Attend() {
    int signals = 0;
    while (signals_.Take() != 0) ++signals;
    signals_seen_ += signals;
    std::vector<Running*> ended;
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& job = *running_[i];
      if (!job.alive()) continue;
      const bool over = polled_[1 + 2 * i].revents != 0;
      if (!over && polled_[2 + 2 * i].revents != 0) job.Read(events_);
      if (over) ended.push_back(&job);
    }
    for (Running* job : ended) MACAW_RETURN_IF_ERROR(End(*job));
    if (signals > 0) Interrupt();
    return absl::OkStatus();
  }

  void Interrupt() {
    // A process that waits to be started again has nothing to end.
    std::erase_if(running_, [](const auto& job) { return !job->alive(); });
    for (const auto& job : running_) job->Signal(signals_seen_ == 1 ? SIGINT : SIGKILL);
  }

  absl::Status End(Running& job) {
    const Exit exit = job.Reap(events_);
    if ((exit.signal != 0 || exit.code == kExitInterrupted) && !ending()) {
      events_.say(absl::StrCat("died       ", job.task().name, ": ", exit.Text()));
      if (job.StartsAgain()) return absl::OkStatus();
    }
    const Task& task = job.task();
    const absl::Status failure = job.Failure(exit);
    std::erase_if(running_, [&](const auto& other) { return other.get() == &job; });
    const std::optional<RunResult> result =
        exit.ok() ? FinishedRun(task) : std::optional<RunResult>();
    if (result.has_value()) return events_.on_end(task, *result);
    // Told to end, it did so in order, was killed, or its end crossed the signal.
    if (ending()) return absl::OkStatus();
    return events_.on_end(task, failure);
  }

  const JobLimits limits_;
  SignalFd& signals_;
  const JobEvents& events_;
  const std::string program_;
  std::deque<const Task*> waiting_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<pollfd> polled_;  // the signals, then process and output of each of running_
  int signals_seen_ = 0;
  uint64_t largest_ = 0;  // bytes of the largest job seen so far
  bool told_ = false;
};

}  // namespace

absl::StatusOr<bool> RunJobs(const std::vector<Task>& tasks, const JobLimits& limits,
                             SignalFd& signals, const JobEvents& events) {
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  return Runner(tasks, limits, signals, events, programs + "/macaw").Run();
}

}  // namespace macaw::cli
