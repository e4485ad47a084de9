#include "testing/program.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macaw::testing_support {

Printed RunShell(const std::string& command) {
  Program shell("/bin/sh", {"-c", command});
  Printed printed;
  printed.exit = shell.Wait();
  printed.text = shell.text();
  return printed;
}

Program::Program(const std::string& name, std::vector<std::string> arguments,
                 const std::string& output) {
  ChildSpec spec;
  spec.name = name;
  spec.argv = std::move(arguments);
  spec.argv.insert(spec.argv.begin(),
                   absl::StrContains(name, '/') ? name : absl::StrCat(MACAW_BIN_DIR, "/", name));
  spec.log = output;
  PipePair pipe;
  if (output.empty()) {
    absl::StatusOr<PipePair> made = MakePipe();
    if (made.ok()) pipe = *std::move(made);
    spec.output = pipe.write.get();
    printed_ = std::move(pipe.read);
  }
  absl::StatusOr<Child> child = Child::Spawn(spec);
  if (!child.ok()) {
    text_ = child.status().ToString();
    return;
  }
  child_ = *std::move(child);
  pid_ = child_->pid();
}

void Program::Signal(int signal) const {
  if (child_.has_value()) child_->Signal(signal);
}

bool Program::running() const {
  if (!child_.has_value()) return false;
  pollfd ended{.fd = child_->pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 0;
}

bool Program::ReadMore() {
  char piece[1 << 14];
  while (printed_.open()) {
    const ssize_t got = ::read(printed_.get(), piece, sizeof(piece));
    if (got > 0) {
      text_.append(piece, static_cast<size_t>(got));
      return true;
    }
    if (got == 0 || errno != EINTR) printed_.Close();
  }
  return false;
}

bool Program::WaitFor(const std::string& text) {
  while (!absl::StrContains(text_, text)) {
    if (!ReadMore()) return false;
  }
  return true;
}

int Program::Wait() {
  if (!child_.has_value()) return exit_;
  while (ReadMore()) {
  }
  constexpr int kSignalled = 128;
  const Exit exit = child_->Reap();
  child_.reset();
  exit_ = exit.signal != 0 ? kSignalled + exit.signal : exit.code;
  return exit_;
}

}  // namespace macaw::testing_support
