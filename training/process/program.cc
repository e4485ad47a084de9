#include "training/process/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::training::process {
namespace {

constexpr size_t kLongestAnswer = 1 << 20, kLongestPrinted = 1 << 12;
constexpr size_t kLastLines = 6;                         // of what it printed, to say why it ended
constexpr Duration kTick = std::chrono::seconds(1);      // between two pieces of work
constexpr Duration kFarewell = std::chrono::seconds(2);  // to end by itself
constexpr double kForever = 1e9;                         // seconds

int Milliseconds(Duration duration) {
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> Program::Start(const ProgramOptions& options, int memory,
                                                        int rows, uint32_t slot) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a channel to workers.command");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  MACAW_ASSIGN_OR_RETURN(PipePair output, MakePipe());
  for (const Fd* fd : {&ours, &output.read}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  ChildSpec spec{.name = options.command.front(),
                 .argv = options.command,
                 .output = output.write.get(),
                 .folder = options.folder,
                 .environment = {{"MACAW_CHANNEL", absl::StrCat(theirs.get())},
                                 {"MACAW_MEMORY", absl::StrCat(memory)},
                                 {"MACAW_SLOT", absl::StrCat(options.first_slot + slot)},
                                 {"MACAW_SLOTS", absl::StrCat(options.slots)}},
                 .inherit = {theirs.get(), memory}};
  if (rows >= 0) {
    spec.environment.emplace_back("MACAW_ROWS", absl::StrCat(rows));
    spec.inherit.push_back(rows);
  }
  spec.argv.front() = FindOnPath(options.command.front());
  absl::StatusOr<Child> child = Child::Spawn(spec);
  if (!child.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("workers.command: ", child.status().message()));
  }
  return std::unique_ptr<Program>(
      new Program(options, slot, *std::move(child), std::move(ours), std::move(output.read)));
}

Program::~Program() {
  if (!ended_) (void)End(SteadyClock().Now() + kFarewell);
}

absl::StatusOr<std::string> Program::Ask(absl::string_view line, WorkCounter* work) {
  if (ended_) return absl::FailedPreconditionError("the program has ended");
  std::string unsent = absl::StrCat(line, "\n");
  const TimePoint begin = SteadyClock().Now(),
                  deadline = begin + FromSeconds(std::min(options_.turn_seconds, kForever));
  TimePoint tick = begin + kTick;
  while (true) {
    std::array<pollfd, 3> fds = {
        {{channel_.get(), static_cast<short>(unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0},
         {output_.get(), POLLIN, 0},
         {child_.pidfd(), POLLIN, 0}}};
    const TimePoint now = SteadyClock().Now();
    (void)::poll(fds.data(), fds.size(), Milliseconds(std::min(deadline, tick) - now));
    if (SteadyClock().Now() >= tick) {
      tick += kTick;
      if (work != nullptr) work->Count();
    }
    if (fds[1].revents != 0) ReadOutput();
    const bool gone = !Send(unsent) || !Receive() || fds[2].revents != 0;
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string answer = received_.substr(0, end);
      received_.erase(0, end + 1);
      if (work != nullptr) work->Count();
      return answer;
    }
    if (gone) {
      const Exit exit = End(SteadyClock().Now() + kFarewell);
      return absl::AbortedError(absl::StrCat("its program ended: ", exit.Text()));
    }
    if (received_.size() > kLongestAnswer) {
      (void)End(TimePoint());
      return absl::AbortedError(absl::StrCat("its program answered more than ", kLongestAnswer,
                                             " bytes without an end of line"));
    }
    if (SteadyClock().Now() < deadline) continue;
    (void)End(TimePoint());
    return absl::AbortedError(absl::StrCat("its program took longer than ", options_.turn_seconds,
                                           " s (workers.turn_seconds) and was killed"));
  }
}

bool Program::Send(std::string& line) {
  while (!line.empty()) {
    const ssize_t sent = ::send(channel_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    line.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

bool Program::Receive() {
  std::array<char, 1 << 16> piece;
  while (received_.size() <= kLongestAnswer) {
    const ssize_t got = ::recv(channel_.get(), piece.data(), piece.size(), 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    received_.append(piece.data(), static_cast<size_t>(got));
  }
  return true;
}

void Program::ReadOutput() {
  std::array<char, 1 << 16> piece;
  while (output_.open()) {
    const ssize_t got = ::read(output_.get(), piece.data(), piece.size());
    if (got < 0) return;
    if (got == 0) output_.Close();
    printed_.append(piece.data(), static_cast<size_t>(got));
    const std::vector<std::string> lines = absl::StrSplit(printed_, '\n');
    for (size_t i = 0; i + 1 < lines.size(); ++i) Print(lines[i]);
    printed_ = lines.back();
    if (printed_.size() > kLongestPrinted) Print(std::exchange(printed_, ""));
  }
}

void Program::Print(absl::string_view line) {
  line = absl::StripTrailingAsciiWhitespace(line);
  if (line.empty()) return;
  last_lines_.emplace_back(absl::StripLeadingAsciiWhitespace(line));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  Logger("program").Info(absl::StrCat("slot=", slot_, " ", line));
}

Exit Program::End(TimePoint deadline) {
  ended_ = true;
  channel_.Close();
  while (true) {
    std::array<pollfd, 2> fds = {{{child_.pidfd(), POLLIN, 0}, {output_.get(), POLLIN, 0}}};
    const TimePoint now = SteadyClock().Now();
    if (now >= deadline) break;
    (void)::poll(fds.data(), fds.size(), Milliseconds(deadline - now));
    if (fds[1].revents != 0) ReadOutput();
    if (fds[0].revents != 0) break;
  }
  child_.Kill();
  Exit exit = child_.Reap();
  ReadOutput();
  Print(std::exchange(printed_, ""));
  // The end of a trace, its last line first, since long messages are cut at their end.
  if (exit.code != 0) {
    std::ranges::reverse(last_lines_);
    exit.words = absl::StrJoin(last_lines_, " | ");
  }
  return exit;
}

}  // namespace macaw::training::process
