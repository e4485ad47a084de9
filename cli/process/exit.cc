#include "cli/process/exit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/logging.h"

namespace macaw::cli {
namespace {

const char* uncaught_program = "macaw";

LogForm uncaught_form = LogForm::kPlain;

int failed = kExitFailed;  // the code of what this process could not do

// Allocates nothing: there may be no memory left.
void Print(const char* what, const char* advice) {
  char text[512];
  std::snprintf(text, sizeof(text), "%s: error: %.300s%s", uncaught_program, what, advice);
  char line[1024];
  const size_t length = FormatEnding(uncaught_form, uncaught_program, text, line);
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line, length);
}

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr uncaught = std::current_exception()) {
      std::rethrow_exception(uncaught);
    }
  } catch (const std::bad_alloc&) {
    Print("out of memory",
          ": raise the limit (ulimit -v, or the container's), or let fewer slots train at a time");
    ::_exit(failed);
  } catch (const std::system_error& error) {
    const bool threads = error.code() == std::errc::resource_unavailable_try_again;
    Print(error.what(), threads ? ": no further thread can be started; raise the limit (ulimit -u, "
                                  "ulimit -v, or the container's)"
                                : "");
    ::_exit(failed);
  } catch (const std::exception& error) {
    Print(error.what(), "");
  } catch (...) {
    Print("an exception of an unknown kind", "");
  }
  std::abort();  // a programmer's error: its core dump is worth having
}

bool ReaderHasGone() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Whether standard output is a file that has the size of its limit (ulimit -f).
bool IsAtItsLimit() {
  struct stat output {};
  rlimit limit{};
  return ::fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(output.st_mode) &&
         ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         static_cast<rlim_t>(output.st_size) >= limit.rlim_cur;
}

// Flushes standard output. Returns nullopt if all of it was written, and else errno of the failed
// write, or 0 if that is no longer known.
std::optional<int> FlushError() {
  errno = 0;
  std::cout.flush();
  std::fflush(stdout);
  if (std::cout.good() && std::ferror(stdout) == 0) return std::nullopt;
  // An earlier write has failed: one of nothing may fail in the same way.
  if (errno == 0) {
    [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, "", 0);
  }
  if (errno == 0 && IsAtItsLimit()) return EFBIG;
  return errno;
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const bool usage =
      absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) || absl::IsNotFound(status);
  return usage ? kExitUsage : kExitFailed;
}

bool WouldEndTheSame(const absl::Status& status, Starts program) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return true;
    case absl::StatusCode::kAlreadyExists:  // what the run's folder holds
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
      return program == Starts::kServer;
    case absl::StatusCode::kPermissionDenied:  // the server's refusal
    case absl::StatusCode::kUnauthenticated:
      return program == Starts::kWorker;
    default:
      return false;
  }
}

void LeaveOneForADifference() { failed = kExitUsage; }

void PrintError(absl::string_view program, absl::string_view message) {
  const std::string text = absl::StrCat(program, ": error: ", message);
  std::string line(6 * text.size() + 256, '\0');  // a byte is six at most
  line.resize(FormatEnding(uncaught_form, uncaught_program, text, line));
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

int Report(const absl::Status& status) {
  if (!status.ok()) PrintError("macaw", status.message());
  return ExitCodeOf(status);
}

int CloseOutput(const char* program, int code) {
  const std::optional<int> error = FlushError();
  if (!error.has_value() || *error == EPIPE || ReaderHasGone()) return code;
  constexpr char kWhat[] = "cannot write to standard output";
  PrintError(program, *error == 0 ? kWhat : absl::ErrnoToStatus(*error, kWhat).message());
  return code == kExitOk ? failed : code;
}

void ExplainEndings(const char* program, Endings form) {
  uncaught_program = program;
  uncaught_form = form == Endings::kLogLine ? LogFormAskedFor() : LogForm::kPlain;
  std::set_terminate(OnTerminate);
  ::signal(SIGXFSZ, SIG_IGN);
}

void HoldStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // It gets this number, the lowest that is free.
    [[maybe_unused]] const int held =
        ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace macaw::cli
