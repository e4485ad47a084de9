#include "cli/watch/watch.h"

#include <httplib.h>

#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "cli/report/report.h"
#include "cli/results/run_paths.h"
#include "cli/watch/live.h"
#include "core/executor.h"
#include "core/status.h"
#include "proto/http/loopback.h"

namespace macaw::cli {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr int kUnavailable = 503;

class HttplibPage final : public LivePage {
 public:
  explicit HttplibPage(std::vector<std::string> runs) : runs_(std::move(runs)) {
    http::SetUp(server_);
    server_.set_pre_routing_handler([](const auto& request, auto& response) {
      if (http::NamesLoopback(request)) return httplib::Server::HandlerResponse::Unhandled;
      http::RefuseOtherNames(response);
      return httplib::Server::HandlerResponse::Handled;
    });
    server_.Get("/", [this](const auto&, auto& response) {
      Answer(response, "text/html; charset=utf-8", [](const std::string& data) {
        return absl::StrReplaceAll(
            ReportPage(data),
            {{"</html>", absl::StrCat("<script>\n", kLiveScript, "</script>\n</html>")}});
      });
    });
    server_.Get("/version", [this](const auto&, auto& response) {
      response.set_content(Version(), "text/plain");
    });
    server_.Get("/data.json", [this](const auto&, auto& response) {
      Answer(response, "application/json", [](const std::string& data) { return data; });
    });
  }
  ~HttplibPage() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(int port) {
    MACAW_RETURN_IF_ERROR(Data().status());
    const bool bound =
        port > 0 ? server_.bind_to_port(kHost, port) : (port = server_.bind_to_any_port(kHost)) > 0;
    if (!bound) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", kHost, ":", port,
                                                 ", which another program may use; see --port"));
    }
    port_ = port;
    thread_ = std::thread([this] {
      NameThisThread("http");
      server_.listen_after_bind();
    });
    while (!server_.is_running()) std::this_thread::yield();  // stop() works from here on
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
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

  void Answer(httplib::Response& response, const char* type,
              std::string (*text)(const std::string& data)) {
    const absl::StatusOr<std::string> data = Data();
    if (data.ok()) return response.set_content(text(*data), type);
    response.status = kUnavailable;
    response.set_content(absl::StrCat(data.status().message(), "\n"), "text/plain");
  }

  const std::vector<std::string> runs_;
  absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_), data_ ABSL_GUARDED_BY(mutex_);
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LivePage>> LivePage::Start(std::vector<std::string> runs, int port) {
  auto page = std::make_unique<HttplibPage>(std::move(runs));
  MACAW_RETURN_IF_ERROR(page->Listen(port));
  return page;
}

}  // namespace macaw::cli
