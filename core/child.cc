#include "core/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw {
namespace {

// Everything the child does before exec. Only async-signal-safe calls: the parent may have had
// other threads.
struct Launch {
  std::vector<char*> argv, environment;
  std::vector<int> inherit;
  pid_t parent = 0;
  const char* folder = nullptr;
  int null = -1, output = -1, failure = -1;

  [[noreturn]] void Run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // the parent died before the line above took effect
    sigset_t none;
    sigemptyset(&none);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(signal, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    bool good = ::dup2(null, 0) >= 0 && ::dup2(output, 1) >= 0 && ::dup2(output, 2) >= 0;
    if (folder != nullptr) good = good && ::chdir(folder) == 0;
    for (const int fd : inherit) good = good && ::fcntl(fd, F_SETFD, 0) == 0;
    if (good) ::execve(argv[0], argv.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t ignored = ::write(failure, &error, sizeof(error));
    ::_exit(127);
  }
};

// The environment as NAME=VALUE. The added variables replace those of this process.
std::vector<std::string> EnvironmentWith(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool replaced = std::ranges::any_of(added, [&](const auto& variable) {
      return absl::StartsWith(*entry, variable.first + "=");
    });
    if (!replaced) entries.emplace_back(*entry);
  }
  for (const auto& [name, value] : added) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

absl::StatusOr<PipePair> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  return PipePair{Fd(ends[0]), Fd(ends[1])};
}

std::string Exit::Text() const {
  std::string text = absl::StrCat("exit code ", code);
  if (signal != 0) {
    text = absl::StrCat(
        "killed by signal ", signal, " (", ::strsignal(signal),
        signal == SIGKILL ? "; the system does this, too, when memory runs out" : "", ")");
  }
  if (!words.empty()) absl::StrAppend(&text, ": ", words);
  return text;
}

absl::StatusOr<Child> Child::Spawn(const ChildSpec& spec) {
  MACAW_ASSIGN_OR_RETURN(PipePair failure, MakePipe());
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.open()) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  Fd log;
  struct stat before {};
  if (spec.output < 0) {
    log = Fd(::open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", spec.log));
    if (::fstat(log.get(), &before) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", spec.log));
  }

  Launch launch;
  for (const std::string& argument : spec.argv)
    launch.argv.push_back(const_cast<char*>(argument.c_str()));
  launch.argv.push_back(nullptr);
  std::vector<std::string> environment = EnvironmentWith(spec.environment);
  for (std::string& entry : environment) launch.environment.push_back(entry.data());
  launch.environment.push_back(nullptr);
  launch.inherit = spec.inherit;
  launch.parent = ::getpid();
  launch.null = null.get();
  launch.output = spec.output < 0 ? log.get() : spec.output;
  if (!spec.folder.empty()) launch.folder = spec.folder.c_str();
  launch.failure = failure.write.get();

  Child child;
  child.name_ = spec.name;
  if (spec.output < 0) child.log_ = spec.log;
  child.log_begin_ = static_cast<uint64_t>(before.st_size);
  child.pid_ = ::fork();
  if (child.pid_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot start ", spec.name));
  if (child.pid_ == 0) launch.Run();
  MACAW_ASSIGN_OR_RETURN(child.pidfd_, Watch(child.pid_));

  // The pipe closes on a successful exec; from then on the child has its own group and dies with
  // us.
  failure.write.Close();
  int error = 0;
  ssize_t got;
  do {
    got = ::read(failure.read.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(error))) {
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot run ", spec.argv[0],
                            spec.folder.empty() ? "" : absl::StrCat(" in ", spec.folder)));
  }
  return child;
}

Child::Child(Child&& other) noexcept
    : name_(std::move(other.name_)),
      log_(std::move(other.log_)),
      log_begin_(other.log_begin_),
      pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      stopped_(other.stopped_) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(log_, other.log_);
  std::swap(log_begin_, other.log_begin_);
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(stopped_, other.stopped_);
  return *this;
}

Child::~Child() { Finish(); }

void Child::Finish() {
  if (pid_ <= 0) return;
  Kill();
  Reap();
}

void Child::Signal(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

void Child::Kill() const {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

bool Child::Stopped() {
  siginfo_t info{};
  while (pid_ > 0 &&
         ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    stopped_ = info.si_code == CLD_STOPPED;
    info = {};
  }
  return stopped_;
}

Exit Child::Reap() {
  Exit exit;
  int status = 0;
  pid_t got;
  // Also kills what the process started. It is not reaped yet, so the id of the group is still its
  // own.
  siginfo_t info{};
  do {
    got = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  } while (got < 0 && errno == EINTR);
  ::kill(-pid_, SIGKILL);
  rusage used{};
  do {
    got = ::wait4(pid_, &status, 0, &used);
  } while (got < 0 && errno == EINTR);
  exit.cpu_seconds = SecondsOf(used.ru_utime) + SecondsOf(used.ru_stime);
  exit.peak_bytes = static_cast<uint64_t>(used.ru_maxrss) << 10;
  pid_ = -1;
  pidfd_.Close();
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.code = WEXITSTATUS(status);
  }
  if (!log_.empty() && (exit.code != 0 || exit.signal == SIGABRT))
    exit.words = LastErrorLine(log_, log_begin_);
  return exit;
}

absl::StatusOr<Fd> Watch(pid_t pid) {
  // By number: glibc 2.36 declares pidfd_open() without C linkage.
  Fd watched(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!watched.open())
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot watch process ", pid));
  return watched;
}

void KillWatched(const Fd& watched) {
  (void)::syscall(SYS_pidfd_send_signal, watched.get(), SIGKILL, nullptr, 0);
}

std::string FindOnPath(const std::string& command) {
  const char* const path = ::getenv("PATH");
  if (absl::StrContains(command, '/') || path == nullptr) return command;
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    std::string file = absl::StrCat(folder, "/", command);
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return command;
}

namespace {

// The text of a process's last line, whatever form the log has (FormatEnding in core/logging.h).
std::string TextOfEnding(absl::string_view line) {
  constexpr absl::string_view kBefore = R"("room":"end","message":")";
  if (absl::ConsumePrefix(&line, "<3>")) return std::string(line);
  const size_t at = line.find(kBefore);
  if (!absl::StartsWith(line, "{") || at == line.npos || !absl::ConsumeSuffix(&line, "\"}"))
    return std::string(line);
  return absl::StrReplaceAll(line.substr(at + kBefore.size()),
                             {{R"(\u000a)", " "}, {R"(\")", "\""}, {R"(\\)", "\\"}});
}

}  // namespace

std::string LastErrorLine(const std::string& log, uint64_t begin) {
  const absl::StatusOr<std::string> text = ReadFile(log);
  if (!text.ok() || text->size() < begin) return "";
  // A crash may leave megabytes of output; the end is enough.
  constexpr size_t kTail = 1 << 16;
  absl::string_view tail = absl::string_view(*text).substr(begin);
  tail.remove_prefix(tail.size() - std::min(tail.size(), kTail));
  std::string last, last_error, verdict;
  for (const absl::string_view raw : absl::StrSplit(tail, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty()) continue;
    last = TextOfEnding(line);
    if (absl::StrContains(last, "error")) last_error = last;
    if (absl::StrContains(last, ": error: ")) verdict = last;
  }
  return !verdict.empty() ? verdict : !last_error.empty() ? last_error : last;
}

}  // namespace macaw
