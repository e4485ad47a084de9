#include "cli/process/steps.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/process/line_reader.h"
#include "core/executor.h"
#include "core/logging.h"

namespace macaw::cli {
namespace {

void Follow(absl::string_view line, const StepThread::Steps& steps) {
  uint32_t round = 0;
  absl::string_view rest = line;
  if (absl::ConsumePrefix(&rest, "go ") && absl::SimpleAtoi(rest, &round)) {
    steps.go_on_to(Round(round));
  } else if (rest = line; absl::ConsumePrefix(&rest, "stop ")) {
    steps.stop(std::string(rest));
  } else {
    Logger("server").Warning(absl::StrCat("no_such_step \"", line, "\""));
  }
}

}  // namespace

StepThread::StepThread(int fd, Steps steps) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([fd, stop = stop_.get(), steps = std::move(steps)] {
    NameThisThread("steps");
    LineReader lines;
    pollfd watched[] = {{fd, POLLIN, 0}, {stop, POLLIN, 0}};
    while (!lines.ended()) {
      if (::poll(watched, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (watched[1].revents != 0) return;
      if (watched[0].revents == 0) continue;
      for (const std::string& line : lines.Read(fd)) Follow(line, steps);
    }
    steps.ended();
  });
}

StepThread::~StepThread() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

}  // namespace macaw::cli
