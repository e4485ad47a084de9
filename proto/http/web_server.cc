#include "proto/http/web_server.h"

#include <algorithm>
#include <fstream>
#include <future>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "proto/fleet/once.h"
#include "proto/http/metrics.h"
#include "proto/http/page.h"
#include "proto/http/page_gate.h"
#include "proto/http/page_server.h"

namespace macaw::http {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr uint64_t kRowsAtOnce = 512 << 10;  // bytes
constexpr int kNotFound = 404, kUnavailable = 503;

class StatusPage final : public WebServer {
 public:
  StatusPage(WebOptions options, admin::AdminHandler& handler)
      : options_(std::move(options)), gate_(options_.token), handler_(handler) {}

  absl::Status Listen() {
    auto server =
        PageServer::Start(options_.host, options_.port,
                          [this](const PageRequest& request) { return AnswerTo(request); });
    if (!server.ok()) {
      return absl::UnavailableError(absl::StrCat("server.http: ", server.status().message()));
    }
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  int port() const override { return server_->port(); }

 private:
  PageReply AnswerTo(const PageRequest& request) {
    if (auto refusal = gate_.Refusal(request); refusal.has_value()) return *std::move(refusal);
    if (request.path == "/")
      return {.type = "text/html; charset=utf-8", .body = std::string(kPage)};
    if (request.path == "/status.json") return Status("application/json", admin::JsonOf);
    if (request.path == "/metrics")
      return Status("text/plain; version=0.0.4; charset=utf-8", MetricsText);
    if (request.path == "/rows.jsonl") return Rows(request);
    return {.status = kNotFound, .body = "there is no such page\n"};
  }

  PageReply Status(const char* type, std::string (*text)(const admin::RunStatus&)) {
    auto asked = std::make_shared<std::promise<absl::StatusOr<admin::RunStatus>>>();
    auto answer = asked->get_future();
    handler_.Status(fleet::AnswerOnce<admin::RunStatus>(
        [asked](absl::StatusOr<admin::RunStatus> status) { asked->set_value(std::move(status)); }));
    if (answer.wait_for(kPatience) == std::future_status::ready) {
      const absl::StatusOr<admin::RunStatus> status = answer.get();
      if (status.ok()) return {.type = type, .body = text(*status)};
    }
    return {.status = kUnavailable, .body = "the run does not answer\n"};
  }

  PageReply Rows(const PageRequest& request) const {
    uint64_t from = 0;
    (void)absl::SimpleAtoi(request.Parameter("from"), &from);
    std::ifstream file(options_.rows, std::ios::binary);
    std::string text(kRowsAtOnce, '\0');
    file.seekg(static_cast<std::streamoff>(std::min(from, uint64_t{1} << 62)));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    text.resize(text.find_last_of('\n') + 1);  // whole rows only
    const uint64_t next = from + text.size();
    return {.type = "application/jsonl",
            .body = std::move(text),
            .headers = {{"X-Next", absl::StrCat(next)}}};
  }

  const WebOptions options_;
  const PageGate gate_;
  admin::AdminHandler& handler_;
  std::unique_ptr<PageServer> server_;  // destroyed first
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const WebOptions& options,
                                                            admin::AdminHandler& handler) {
  auto server = std::make_unique<StatusPage>(options, handler);
  MACAW_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace macaw::http
