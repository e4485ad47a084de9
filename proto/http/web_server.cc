#include "proto/http/web_server.h"

#include <httplib.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/executor.h"
#include "core/status.h"
#include "proto/fleet/once.h"
#include "proto/http/loopback.h"
#include "proto/http/metrics.h"
#include "proto/http/page.h"

namespace macaw::http {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr uint64_t kRowsAtOnce = 512 << 10;  // bytes
constexpr int kUnauthorized = 401, kUnavailable = 503;

// Compares in a time that does not tell how much of the token is right.
bool SameToken(absl::string_view a, absl::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0 && !b.empty();
}

class HttplibServer final : public WebServer {
 public:
  HttplibServer(WebOptions options, admin::AdminHandler& handler)
      : options_(std::move(options)), handler_(handler) {
    SetUp(server_);
    server_.set_pre_routing_handler([this](const auto& request, auto& response) {
      return Allowed(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                        : httplib::Server::HandlerResponse::Handled;
    });
    server_.Get("/", [](const auto&, auto& response) {
      response.set_content(kPage, "text/html; charset=utf-8");
    });
    server_.Get("/status.json", [this](const auto&, auto& response) {
      Answer(response, "application/json", admin::JsonOf);
    });
    server_.Get("/metrics", [this](const auto&, auto& response) {
      Answer(response, "text/plain; version=0.0.4; charset=utf-8", MetricsText);
    });
    server_.Get("/rows.jsonl",
                [this](const auto& request, auto& response) { Rows(request, response); });
  }
  ~HttplibServer() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen() {
    port_ = options_.port;
    const bool bound = options_.port > 0 ? server_.bind_to_port(options_.host, options_.port)
                                         : (port_ = server_.bind_to_any_port(options_.host)) > 0;
    if (!bound) {
      return absl::UnavailableError(absl::StrCat("server.http: cannot listen on ", options_.host,
                                                 ":", options_.port,
                                                 ", which another program may use"));
    }
    thread_ = std::thread([this] {
      NameThisThread("http");
      server_.listen_after_bind();
    });
    while (!server_.is_running()) std::this_thread::yield();  // stop() works from here on
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  bool Allowed(const httplib::Request& request, httplib::Response& response) const {
    if (options_.token.empty()) {
      if (NamesLoopback(request)) return true;
      RefuseOtherNames(response);
      return false;
    }
    const std::string header = request.get_header_value("Authorization");
    absl::string_view token = header;
    const bool bearer = absl::ConsumePrefix(&token, "Bearer ");
    if (bearer && SameToken(token, options_.token)) return true;
    if (SameToken(request.get_param_value("token"), options_.token)) return true;
    response.status = kUnauthorized;
    response.set_header("WWW-Authenticate", "Bearer");
    response.set_content(
        "this page needs the server's token: ?token=..., or Authorization: Bearer ...\n",
        "text/plain");
    return false;
  }

  void Answer(httplib::Response& response, const char* type,
              std::string (*text)(const admin::RunStatus&)) {
    auto asked = std::make_shared<std::promise<absl::StatusOr<admin::RunStatus>>>();
    auto answer = asked->get_future();
    handler_.Status(fleet::AnswerOnce<admin::RunStatus>(
        [asked](absl::StatusOr<admin::RunStatus> status) { asked->set_value(std::move(status)); }));
    if (answer.wait_for(kPatience) == std::future_status::ready) {
      const absl::StatusOr<admin::RunStatus> status = answer.get();
      if (status.ok()) return response.set_content(text(*status), type);
    }
    response.status = kUnavailable;
    response.set_content("the run does not answer\n", "text/plain");
  }

  void Rows(const httplib::Request& request, httplib::Response& response) const {
    uint64_t from = 0;
    (void)absl::SimpleAtoi(request.get_param_value("from"), &from);
    std::ifstream file(options_.rows, std::ios::binary);
    std::string text(kRowsAtOnce, '\0');
    file.seekg(static_cast<std::streamoff>(std::min(from, uint64_t{1} << 62)));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    text.resize(text.find_last_of('\n') + 1);  // whole rows only
    response.set_header("X-Next", absl::StrCat(from + text.size()));
    response.set_content(std::move(text), "application/jsonl");
  }

  const WebOptions options_;
  admin::AdminHandler& handler_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const WebOptions& options,
                                                            admin::AdminHandler& handler) {
  auto server = std::make_unique<HttplibServer>(options, handler);
  MACAW_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace macaw::http
