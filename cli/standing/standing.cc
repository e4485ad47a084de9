#include "cli/standing/standing.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/writer.h"
#include "cli/identity/certificates.h"
#include "cli/process/exit.h"
#include "cli/process/kept_places.h"
#include "cli/process/lock.h"
#include "cli/process/notify.h"
#include "cli/process/programs.h"
#include "cli/process/restart_policy.h"
#include "cli/results/ending.h"
#include "cli/standing/idle_fleet.h"
#include "cli/standing/page_address.h"
#include "cli/standing/queue.h"
#include "cli/standing/queue_page.h"
#include "cli/standing/start_policy.h"
#include "core/child.h"
#include "core/files.h"
#include "core/listen_tcp.h"
#include "core/logging.h"
#include "core/spelling.h"
#include "core/status.h"
#include "proto/wire/address.h"
#include "proto/wire/admin.h"

namespace macaw::cli {
namespace {

// Keys of ServerFields that say where this server is reached. It decides them itself.
constexpr std::array kOwnKeys = {"server.listen", "server.admin", "server.http"};

bool IsEmptyText(const Value& value) {
  const auto* text = value.As<std::string>();
  return text != nullptr && text->empty();
}

// Wakes the main thread when the queue has changed. Thread-safe.
class Bell {
 public:
  static absl::StatusOr<Bell> Make() {
    Bell bell;
    bell.fd_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (bell.fd_.get() < 0) return absl::ErrnoToStatus(errno, "no eventfd");
    return bell;
  }
  void Ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(fd_.get(), &one, sizeof(one));
  }
  void Silence() const {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(fd_.get(), &rung, sizeof(rung));
  }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// Answers operators.
class Desk final : public admin::QueueHandler {
 public:
  Desk(RunQueue& queue, const Bell& bell) : queue_(queue), bell_(bell) {}

  absl::StatusOr<std::string> Submit(const admin::Submission& submission) override {
    MACAW_RETURN_IF_ERROR(CheckRunName(submission.name));
    MACAW_RETURN_IF_ERROR(CheckSubmittedPlan(submission.name, submission.plan));
    MACAW_RETURN_IF_ERROR(queue_.Submit(submission, absl::Now()));
    Logger("queue").Info(absl::StrCat("submitted run=", submission.name, " by=", submission.by));
    bell_.Ring();
    const uint64_t ahead = queue_.ahead_of(submission.name);
    return ahead == 0 ? absl::StrCat("the run \"", submission.name, "\" begins")
                      : absl::StrCat("the run \"", submission.name, "\" waits for ", ahead,
                                     ahead == 1 ? " other" : " others");
  }

  absl::StatusOr<std::string> Withdraw(const std::string& name, const std::string& by,
                                       const std::string& reason) override {
    const std::string why = absl::StrCat("withdrawn by ", by, reason.empty() ? "" : ": ", reason);
    MACAW_ASSIGN_OR_RETURN(const bool running, queue_.Withdraw(name, why, absl::Now()));
    Logger("queue").Info(absl::StrCat("withdrawn run=", name, " by=", by));
    bell_.Ring();
    return running ? absl::StrCat("the run \"", name, "\" ends after its last whole round")
                   : absl::StrCat("the run \"", name, "\" is withdrawn");
  }

  std::string Runs() override { return JsonOf(queue_.runs()); }

  absl::StatusOr<std::vector<admin::ResultFile>> Results(const std::string& name) override {
    return queue_.Results(name);
  }

 private:
  RunQueue& queue_;
  const Bell& bell_;
};

// What became of a run whose server has ended by itself.
std::pair<QueuedState, std::string> EndOf(const Exit& exit, const std::string& folder) {
  if (exit.code == kExitInterrupted) return {QueuedState::kInterrupted, "drained or interrupted"};
  if (exit.code != kExitOk) return {QueuedState::kFailed, exit.Text()};
  const absl::StatusOr<std::string> text = ReadFile(folder + "/summary.json");
  const auto summary = nlohmann::json::parse(text.value_or(""), nullptr, false);
  const bool stopped = summary.is_object() && summary.value("end", "") == "stopped";
  return {QueuedState::kFinished, stopped ? "stopped by its own rule" : ""};
}

// Does the queued runs, each in a server process of its own. Between two runs this process answers
// the fleet. While a run's process is started again it does not answer: it would tell the workers
// that their sessions are unknown. Used on the main thread only.
class Runner {
 public:
  Runner(const StandingOptions& options, std::string program, RunQueue& queue,
         const Doorkeeper& door)
      : options_(options), program_(std::move(program)), queue_(queue), door_(door) {}

  int fd() const { return child_.has_value() ? child_->pidfd() : -1; }
  // When to call Attend at the latest, in ms; -1: when there is news of fd() or of the queue.
  int patience() const {
    if (!again_.has_value()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*again_ - SteadyClock().Now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  // Does whatever is due: notes an end, begins the next run, ends one that was withdrawn.
  absl::Status Attend() {
    if (child_.has_value() && HasEnded()) MACAW_RETURN_IF_ERROR(NoteEnd());
    if (again_.has_value() && SteadyClock().Now() >= *again_) MACAW_RETURN_IF_ERROR(Start());
    while (!child_.has_value() && !again_.has_value()) {
      MACAW_ASSIGN_OR_RETURN(const std::optional<std::string> next, queue_.Begin(absl::Now()));
      if (!next.has_value()) break;
      run_ = *next;
      policy_ = RestartPolicy();
      starts_ = StartPolicy(options_.run_starts);
      MACAW_RETURN_IF_ERROR(Start());
    }
    if (run_.empty() && !idle_.has_value()) {
      MACAW_ASSIGN_OR_RETURN(IdleFleet idle, IdleFleet::Open(options_.listen, door_.authority.get(),
                                                             door_.audit.get()));
      idle_.emplace(std::move(idle));
    }
    if (child_.has_value() && !told_ && IsWithdrawn()) {
      told_ = true;
      child_->Signal(SIGINT);  // ends after the last whole round
    }
    return absl::OkStatus();
  }

  // The open run goes on at the next start of the standing server.
  void Leave() {
    if (!child_.has_value()) return;
    if (!told_) child_->Signal(SIGTERM);  // with durable commits the open round is kept
    const Exit exit = child_->Reap();
    child_.reset();
    if (exit.signal != 0 || exit.code == kExitInterrupted || exit.code == kExitFailed) return;
    const auto [state, why] = EndOf(exit, queue_.FolderOf(run_));
    queue_.End(run_, state, why, absl::Now())
        .IgnoreError();  // it is done again, and is over at once
  }

 private:
  bool HasEnded() const {
    pollfd process{.fd = child_->pidfd(), .events = POLLIN, .revents = 0};
    return ::poll(&process, 1, 0) > 0;
  }
  bool IsWithdrawn() const {
    const std::vector<QueuedRun> runs = queue_.runs();
    const auto found = std::ranges::find(runs, run_, &QueuedRun::name);
    return found != runs.end() && found->withdrawn;
  }

  absl::Status Start() {
    idle_.reset();
    again_.reset();
    told_ = false;
    const std::string folder = queue_.FolderOf(run_);
    ChildSpec spec;
    spec.name = run_;
    spec.argv = {program_,        "--run-dir",           folder,
                 "--config",      folder + "/plan.toml", "--listen",
                 options_.listen, "--resume-if-begun"};
    if (!options_.authority.empty())
      spec.argv.insert(spec.argv.end(), {"--authority", options_.authority});
    if (!options_.run_admin.empty())
      spec.argv.insert(spec.argv.end(), {"--admin", options_.run_admin});
    if (!options_.run_http.empty()) {
      spec.argv.insert(spec.argv.end(), {"--http", options_.run_http});
      if (!options_.http_token.empty())
        spec.argv.insert(spec.argv.end(), {"--http-token", options_.http_token});
    }
    spec.log = folder + "/standing.log";
    spec.environment = {{"NOTIFY_SOCKET", ""}};  // this process speaks to the service manager
    absl::StatusOr<Child> child = Child::Spawn(spec);
    if (!child.ok()) return TryAgain(std::string(child.status().message()));
    child_.emplace(*std::move(child));
    Logger("queue").Info(absl::StrCat("runs run=", run_, " process=", child_->pid()));
    return absl::OkStatus();
  }

  absl::Status NoteEnd() {
    const Exit exit = child_->Reap();
    child_.reset();
    if (exit.signal != 0 && !IsWithdrawn()) {
      const std::optional<Duration> pause = policy_.OnDeath(SteadyClock().Now());
      Logger("queue").Warning(absl::StrCat("died run=", run_, " ", exit.Text()));
      if (pause.has_value()) {
        again_ = SteadyClock().Now() + *pause;
        return absl::OkStatus();
      }
      return End(QueuedState::kFailed, exit.Text());
    }
    const bool passes = exit.signal == 0 && exit.code == kExitFailed;
    if (passes && !IsWithdrawn()) return TryAgain(exit.Text());
    if (passes || exit.signal != 0) return End(QueuedState::kInterrupted, exit.Text());
    const auto [state, why] = EndOf(exit, queue_.FolderOf(run_));
    return End(state, why);
  }

  // A full disk, or a port that is taken: the run and those behind it wait until that is put right.
  // What ends its server at each start without a round is its own trouble.
  absl::Status TryAgain(const std::string& why) {
    const uint32_t rounds = LastRow(queue_.FolderOf(run_)).value_or(0);
    const std::optional<Duration> pause = starts_.OnFailure(rounds);
    if (!pause.has_value()) {
      return End(
          QueuedState::kFailed,
          absl::StrCat(why, "; at ", Counted(starts_.in_vain(), "start"),
                       " without a round. Put that right and submit it again by another name"));
    }
    Logger("queue").Warning(absl::StrCat("starts_again run=", run_, " ", why));
    again_ = SteadyClock().Now() + *pause;
    queue_.Note(run_, absl::StrCat("its server was started again after ", why)).IgnoreError();
    return absl::OkStatus();
  }

  absl::Status End(QueuedState state, const std::string& why) {
    Logger("queue").Info(
        absl::StrCat("ended run=", run_, " ", NameOf(state), why.empty() ? "" : ": ", why));
    return queue_.End(std::exchange(run_, ""), state, why, absl::Now());
  }

  const StandingOptions options_;
  const std::string program_;
  RunQueue& queue_;
  const Doorkeeper& door_;
  std::optional<IdleFleet> idle_;
  std::string run_;  // being done; "": none
  std::optional<Child> child_;
  bool told_ = false;               // it was asked to end
  std::optional<TimePoint> again_;  // when its server is started again
  RestartPolicy policy_;            // of deaths by a signal
  StartPolicy starts_;              // of ends with kExitFailed
};

// The address with a port: one for the standing server and all its runs, so that workers find each
// of them there. Where none is named, one that is free now.
absl::StatusOr<std::string> WithPort(const std::string& listen) {
  MACAW_ASSIGN_OR_RETURN(wire::Address address, wire::ParseAddress(listen));
  if (!address.is_unix && address.port == 0)
    MACAW_RETURN_IF_ERROR(ListenTcp(address.host, address.port).status());
  return address.Text();
}

}  // namespace

absl::Status CheckSubmittedPlan(const std::string& name, const std::string& plan) {
  MACAW_ASSIGN_OR_RETURN(const Document document, ParseDocument(plan, name, "/"));
  std::vector<std::string> taken;
  for (const Field& field : ServerFields()) taken.push_back(field.key);
  for (const Field& field : AllFields()) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Value> value, Lookup(document, {}, field.key));
    if (!value.has_value() || IsEmptyText(*value)) continue;
    const bool own = std::ranges::find(kOwnKeys, field.key) != kOwnKeys.end();
    if (own || std::ranges::find(taken, field.key) == taken.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": ", field.key,
          own ? " is this server's own affair: leave it out"
              : " is nothing that a plan decides: submit what `macaw plan CONFIG --out FILE` writes"));
    }
  }
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  const absl::StatusOr<Config> config = ReadConfig(document, {}, catalogue);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.status().message(), " (`macaw plan CONFIG --out FILE` writes a complete plan)"));
  }
  return SpecOf(*config).status();
}

absl::StatusOr<int> Stand(const StandingOptions& asked, SignalFd& signals) {
  StandingOptions options = asked;
  MACAW_ASSIGN_OR_RETURN(options.listen, WithPort(asked.listen));
  MACAW_RETURN_IF_ERROR(MakeDirectories(options.folder));
  MACAW_ASSIGN_OR_RETURN(const Fd lock, LockFolder(options.folder));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<RunQueue> queue, RunQueue::Open(options.folder));
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  MACAW_ASSIGN_OR_RETURN(const Bell bell, Bell::Make());
  MACAW_ASSIGN_OR_RETURN(const AuthorityChoice authority,
                         ChooseAuthority("", /*resumes=*/false, options.authority));
  MACAW_ASSIGN_OR_RETURN(const Doorkeeper door, OpenDoor(authority.folder));
  Desk desk(*queue, bell);
  // Always there: the first operator is not enrolled yet.
  MACAW_ASSIGN_OR_RETURN(
      const std::unique_ptr<wire::AdminServer> here,
      wire::AdminServer::Start({.listen = absl::StrCat("unix:", options.folder, "/queue.sock")},
                               desk));
  std::unique_ptr<wire::AdminServer> elsewhere;
  if (!options.admin.empty()) {
    MACAW_ASSIGN_OR_RETURN(elsewhere, wire::AdminServer::Start({.listen = options.admin,
                                                                .authority = door.authority.get(),
                                                                .audit = door.audit.get()},
                                                               desk));
  }
  std::unique_ptr<QueuePage> page;
  if (!options.run_http.empty()) {  // rather than that each run fails
    MACAW_RETURN_IF_ERROR(
        ReadPageAddress(options.run_http, options.http_token, "--run-http", "--http-token")
            .status());
  }
  if (!options.http.empty()) {
    MACAW_ASSIGN_OR_RETURN(const PageAddress at, ReadPageAddress(options.http, options.http_token,
                                                                 "--http", "--http-token"));
    MACAW_ASSIGN_OR_RETURN(page, QueuePage::Start(at, options.run_http, *queue));
    Logger("queue").Info(absl::StrCat("status_page http://", at.host, ":", page->port(), "/"));
  }
  const std::string address = (elsewhere != nullptr ? elsewhere : here)->address();
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(options.folder + "/queue-address", here->address() + "\n"));
  Runner runner(options, programs + "/macaw-server", *queue, door);
  MACAW_RETURN_IF_ERROR(runner.Attend());
  Logger("queue").Info(absl::StrCat("workers_dial ", options.listen));
  Logger("queue").Info(absl::StrCat("waits_for_runs ", address));
  NotifyManager("READY=1");

  const Watchdog watchdog([&bell] { bell.Ring(); });

  while (true) {
    MACAW_RETURN_IF_ERROR(runner.Attend());
    std::array<pollfd, 3> news{{{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                                {.fd = bell.fd(), .events = POLLIN, .revents = 0},
                                {.fd = runner.fd(), .events = POLLIN, .revents = 0}}};
    if (::poll(news.data(), news.size(), runner.patience()) < 0 && errno != EINTR)
      return absl::ErrnoToStatus(errno, "poll");
    if (signals.Take() != 0) break;
    bell.Silence();
    NotifyManager("WATCHDOG=1");
  }
  runner.Leave();
  return kExitOk;
}

}  // namespace macaw::cli
