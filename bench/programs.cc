#include "bench/programs.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
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
#include "core/files.h"
#include "identity/invite.h"
#include "identity/key.h"

namespace macaw::bench {
namespace {

constexpr double kMebibyte = 1 << 20;

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
  Start(std::move(command), log, {});
}

Program::Program(std::vector<std::string> command, const std::string& ready,
                 const std::string& log) {
  const std::string name = command.front();
  absl::StatusOr<PipePair> pipe = MakePipe();
  Check(pipe.status(), name);
  command.push_back(ready);
  command.push_back(absl::StrCat(pipe->write.get()));
  Start(std::move(command), log, {pipe->write.get()});
  pipe->write.Close();
  char text[256] = "";
  if (::read(pipe->read.get(), text, sizeof(text) - 1) <= 0)
    Check(absl::InternalError("it has not begun to serve"), name);
  address_ = std::string(text).substr(0, std::string(text).find('\n'));
}

// `kept`: descriptors that the program gets.
void Program::Start(std::vector<std::string> command, const std::string& log,
                    std::vector<int> kept) {
  ChildSpec spec;
  spec.name = command.front();
  spec.argv = std::move(command);
  spec.log = log;
  if (log.empty()) spec.output = STDERR_FILENO;
  spec.inherit = std::move(kept);
  absl::StatusOr<Child> child = Child::Spawn(spec);
  Check(child.status(), spec.name);
  child_ = *std::move(child);
}

double Program::Megabytes() const {
  const auto text = ReadFile(absl::StrCat("/proc/", child_->pid(), "/smaps_rollup"));
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
  const auto text = ReadFile(absl::StrCat("/proc/", child_->pid(), "/stat"));
  Check(text.status(), "processor time");
  const std::vector<std::string> parts = absl::StrSplit(text->substr(text->rfind(')') + 2), ' ');
  double user = 0, system = 0;
  if (!absl::SimpleAtod(parts[11], &user) || !absl::SimpleAtod(parts[12], &system)) return 0;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

size_t Program::Descriptors() const {
  std::error_code gone;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", child_->pid(), "/fd"),
                                                  gone);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

bool Program::Runs() {
  if (!child_.has_value()) return false;
  pollfd ended{.fd = child_->pidfd(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) == 1) Wait();
  return child_.has_value();
}

Program::End Program::Wait() {
  if (child_.has_value()) {
    const Exit exit = child_->Reap();
    child_.reset();
    end_ = {.cpu_seconds = exit.cpu_seconds,
            .peak_megabytes = static_cast<double>(exit.peak_bytes) / kMebibyte,
            .good = exit.ok()};
  }
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
                                const std::string& node, const std::string& client,
                                identity::Role role) {
  const identity::IdentityFiles files = identity::IdentityFiles::In(folder);
  Check(MakeDirectories(folder), "folder");
  const auto key = identity::ReadOrMakeKey(files.key);
  Check(key.status(), "key");
  const identity::NewNode invited{.grant = {.subject = {node, role}, .owns = {client}}};
  const auto code = authority.InviteNode(invited, absl::Now());
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
