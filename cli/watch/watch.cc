#include "cli/watch/watch.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "cli/report/report.h"
#include "cli/results/run_paths.h"
#include "cli/watch/live.h"
#include "core/status.h"
#include "proto/http/page_server.h"

namespace macaw::cli {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr int kNotFound = 404, kUnavailable = 503;

class PolledPage final : public LivePage {
 public:
  explicit PolledPage(std::vector<std::string> runs) : runs_(std::move(runs)) {}

  absl::Status Listen(int port) {
    MACAW_RETURN_IF_ERROR(Data().status());
    auto server = http::PageServer::Start(
        kHost, port, [this](const http::PageRequest& request) { return AnswerTo(request); });
    if (!server.ok()) {
      return absl::UnavailableError(absl::StrCat(server.status().message(), "; see --port"));
    }
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  int port() const override { return server_->port(); }

 private:
  http::PageReply AnswerTo(const http::PageRequest& request) {
    if (!http::NamesLoopback(request)) return http::RefuseOtherNames();
    if (request.path == "/version") return {.type = "text/plain", .body = Version()};
    if (request.path == "/data.json")
      return Page("application/json", [](const std::string& data) { return data; });
    if (request.path != "/") return {.status = kNotFound, .body = "there is no such page\n"};
    return Page("text/html; charset=utf-8", [](const std::string& data) {
      return absl::StrReplaceAll(
          ReportPage(data),
          {{"</html>", absl::StrCat("<script>\n", kLiveScript, "</script>\n</html>")}});
    });
  }

  // The sizes of what the page is made from. Files of a run grow, or are written anew.
  std::string Version() const {
    std::string version;
    for (const std::string& run : RunFolders(runs_).value_or(runs_)) {
      for (const char* file : {"", "/metrics.jsonl", "/summary.json"}) {
        std::error_code error;
        const auto size = std::filesystem::file_size(absl::StrCat(run, file), error);
        absl::StrAppend(&version, error ? 0 : size, " ");
      }
    }
    return version;
  }

  // Reading ten long runs takes a second, so several windows of a browser share it.
  absl::StatusOr<std::string> Data() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    std::string version = Version();
    if (version_ == version) return data_;
    MACAW_ASSIGN_OR_RETURN(data_, ReportData(runs_));
    version_ = std::move(version);
    return data_;
  }

  http::PageReply Page(const char* type, std::string (*text)(const std::string& data)) {
    const absl::StatusOr<std::string> data = Data();
    if (data.ok()) return {.type = type, .body = text(*data)};
    return {.status = kUnavailable, .body = absl::StrCat(data.status().message(), "\n")};
  }

  const std::vector<std::string> runs_;
  absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_), data_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<http::PageServer> server_;  // destroyed first
};

}  // namespace

absl::StatusOr<std::unique_ptr<LivePage>> LivePage::Start(std::vector<std::string> runs, int port) {
  auto page = std::make_unique<PolledPage>(std::move(runs));
  MACAW_RETURN_IF_ERROR(page->Listen(port));
  return page;
}

}  // namespace macaw::cli
