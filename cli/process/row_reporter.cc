#include "cli/process/row_reporter.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

constexpr char kWarning[] = "warning";  // no column of metrics.jsonl has this name

}  // namespace

RowReporter::RowReporter(int fd) : fd_(fd) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

std::string WarningIn(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(kWarning, "") : "";
}

void RowReporter::Warn(const std::string& text) {
  const nlohmann::json line = {{kWarning, text}};
  Report(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RowReporter::Report(const std::string& row) {
  if (fd_ < 0) return;
  if (pending_.size() + row.size() < kMaxPending) absl::StrAppend(&pending_, row, "\n");
  Write();
}

void RowReporter::Finish(Duration patience) {
  const int wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(patience).count());
  while (fd_ >= 0 && !pending_.empty()) {
    pollfd one{fd_, POLLOUT, 0};
    const int ready = ::poll(&one, 1, wait);
    if (ready == 0 || (ready < 0 && errno != EINTR)) return;
    Write();
  }
}

void RowReporter::Write() {
  while (!pending_.empty()) {
    const ssize_t written = ::write(fd_, pending_.data(), pending_.size());
    if (written > 0) {
      pending_.erase(0, static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      return;
    } else if (written < 0 && errno != EINTR) {
      fd_ = -1;  // the reader is gone
      return;
    }
  }
}

}  // namespace macaw::cli
