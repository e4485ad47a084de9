#include "bench/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/fd.h"
#include "core/files.h"
#include "identity/invite.h"
#include "identity/key.h"

namespace macaw::bench {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void Check(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, std::string(what).c_str(),
               std::string(status.message()).c_str());
  std::fflush(nullptr);
  std::_Exit(1);  // other threads may be at work
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string ProgramPath(const std::string& name) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).replace_filename(name).string();
}

Program::Program(std::vector<std::string> command, const std::string& log) {
  Start(command, log, -1);
}

Program::Program(std::vector<std::string> command, const std::string& ready,
                 const std::string& log) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) Check(absl::InternalError("no pipe"), command.front());
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  command.push_back(ready);
  command.push_back(absl::StrCat(writing.get()));
  Start(command, log, writing.get());
  writing.Close();
  char text[256] = "";
  if (::read(reading.get(), text, sizeof(text) - 1) <= 0)
    Check(absl::InternalError("it has not begun to serve"), command.front());
  address_ = std::string(text).substr(0, std::string(text).find('\n'));
}

// `kept`: a descriptor that the program gets; -1: none.
void Program::Start(const std::vector<std::string>& command, const std::string& log, int kept) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (kept >= 0) ::fcntl(kept, F_SETFD, 0);
  if (const int file = log.empty() ? -1 : ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      file >= 0) {
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  ::execv(arguments[0], arguments.data());
  std::perror(arguments[0]);
  ::_exit(127);
}

Program::~Program() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

double Program::Megabytes() const {
  const auto text = ReadFile(absl::StrCat("/proc/", pid_, "/smaps_rollup"));
  Check(text.status(), "memory");
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    double kilobytes = 0;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (parts.size() > 1 && parts[0] == "Pss:" && absl::SimpleAtod(parts[1], &kilobytes))
      return kilobytes / 1024;
  }
  return 0;
}

double Program::CpuSeconds() const {
  const auto text = ReadFile(absl::StrCat("/proc/", pid_, "/stat"));
  Check(text.status(), "processor time");
  const std::vector<std::string> parts = absl::StrSplit(text->substr(text->rfind(')') + 2), ' ');
  double user = 0, system = 0;
  if (!absl::SimpleAtod(parts[11], &user) || !absl::SimpleAtod(parts[12], &system)) return 0;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

size_t Program::Descriptors() const {
  std::error_code gone;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", pid_, "/fd"), gone);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

bool Program::Reap(int options) {
  int status = 0;
  rusage used{};
  if (pid_ == 0 || ::wait4(pid_, &status, options, &used) != pid_) return pid_ == 0;
  pid_ = 0;
  end_ = {.cpu_seconds = Seconds(used.ru_utime) + Seconds(used.ru_stime),
          .peak_megabytes = static_cast<double>(used.ru_maxrss) / 1024,
          .good = WIFEXITED(status) && WEXITSTATUS(status) == 0};
  return true;
}

bool Program::Runs() { return !Reap(WNOHANG); }

Program::End Program::Wait() {
  Reap(0);
  return end_;
}

void RunProgram(std::vector<std::string> command) {
  const std::string name = command.front();
  const Folder folder;
  const std::string log = folder / "log";
  if (Program(std::move(command), log).Wait().good) return;
  const auto text = ReadFile(log);
  Check(absl::InternalError(text.ok() ? *text : "it failed"), name);
}

Folder::Folder() : path_(std::filesystem::temp_directory_path() / "macaw_bench_XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) Check(FileError("cannot make", path_), "folder");
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

identity::IdentityFiles Certify(identity::Authority& authority, const std::string& folder,
                                const std::string& device, const std::string& client) {
  const identity::IdentityFiles files = identity::IdentityFiles::In(folder);
  Check(MakeDirectories(folder), "folder");
  const auto key = identity::ReadOrMakeKey(files.key);
  Check(key.status(), "key");
  identity::NewNode node;
  node.grant.subject.name = device;
  node.grant.owns = {client};
  const auto code = authority.InviteNode(node, absl::Now());
  Check(code.status(), "invite");
  const auto certificate = authority.Enrol(*identity::Invite::FromCode(*code),
                                           *identity::MakeRequest(*key), absl::Now());
  Check(certificate.status(), "enrol");
  Check(AtomicWriteFile(files.certificate, certificate->Pem()), "certificate");
  Check(AtomicWriteFile(files.authority, authority.certificate().Pem()), "authority");
  return files;
}

std::string ModelDigest(const std::string& run_dir) {
  const auto text = ReadFile(run_dir + "/summary.json");
  Check(text.status(), "summary");
  const std::string key = "\"model_digest\": \"";
  const size_t at = text->find(key);
  if (at == std::string::npos)
    Check(absl::NotFoundError("there is no model_digest in " + run_dir), "summary");
  return text->substr(at + key.size(), 64);
}

}  // namespace macaw::bench
