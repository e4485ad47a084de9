// The status page's server, over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/fd.h"
#include "core/files.h"
#include "proto/http/metrics.h"
#include "proto/http/web_server.h"
#include "testing/temporary_folder.h"

namespace macaw::http {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::TemporaryFolder;

admin::RunStatus SomeStatus() {
  admin::RunStatus status{.run = "mnist",
                          .state = admin::RunState::kRunning,
                          .round = 7,
                          .rounds = 10,
                          .completed = 6,
                          .cohort = 10,
                          .waiting = 1,
                          .leased = 2,
                          .counted = 7,
                          .nodes_lost = 3,
                          .latest_row = R"({"round": 6, "test_accuracy": 0.875})",
                          .program = "macaw-server 0.1.7",
                          .waits_for = "<b>"};
  status.nodes = {{.name = "<script>alert(1)</script> \"q\" \\",
                   .silent_seconds = 4,
                   .late = true,
                   .leased = 2}};
  return status;
}

class FakeRun final : public admin::AdminHandler {
 public:
  void Status(fleet::Reply<admin::RunStatus> reply) override { std::move(reply)(SomeStatus()); }
  void Apply(admin::Change, fleet::Reply<admin::Changed> reply) override {
    std::move(reply)(absl::UnimplementedError("not here"));
  }
  admin::EventFeed& events() override { return feed; }
  admin::EventFeed feed;
};

class Web : public testing::Test {
 protected:
  std::unique_ptr<WebServer> Start(const std::string& token = "") {
    return *WebServer::Start({.token = token, .rows = rows_}, run_);
  }
  const TemporaryFolder folder_;
  const std::string rows_ =
      folder_.Write("metrics.jsonl", "{\"round\": 1}\n{\"round\": 2}\n{\"rou");
  FakeRun run_;
};

TEST_F(Web, AnyAddressOfIpv6IsAnyAddressOfIpv4Too) {
  const auto server = WebServer::Start({.host = "::", .token = "secret", .rows = rows_}, run_);
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  for (const char* host : {"127.0.0.1", "::1"}) {
    httplib::Client client(host, (*server)->port());
    const auto answer = client.Get("/metrics?token=secret");
    ASSERT_TRUE(answer) << host;
    EXPECT_EQ(answer->status, 200) << host;
  }
}

TEST_F(Web, ThePageIsOneFileThatNamesNoOtherPlaceAndHasNothingOfTheRunInIt) {
  const auto server = Start();
  httplib::Client client("127.0.0.1", server->port());
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body,
              AllOf(HasSubstr("</html>"), Not(HasSubstr("src=")), Not(HasSubstr("href=")),
                    Not(HasSubstr("innerHTML")), Not(HasSubstr("alert(1)"))));
  EXPECT_THAT(page->get_header_value("Content-Security-Policy"), HasSubstr("default-src 'none'"));
}

TEST_F(Web, AStatusIsJsonInWhichNamesAreText) {
  const auto server = Start();
  httplib::Client client("127.0.0.1", server->port());
  const auto answer = client.Get("/status.json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
  const auto json = nlohmann::json::parse(answer->body);
  EXPECT_EQ(json["nodes"][0]["name"], "<script>alert(1)</script> \"q\" \\");
  EXPECT_EQ(json["nodes"][0]["late"], true);
  EXPECT_EQ(client.Get("/elsewhere")->status, 404);
  EXPECT_EQ(client.Post("/status.json", "", "text/plain")->status, 404);
}

TEST_F(Web, HeadIsAnsweredWithTheHeadAlone) {
  const auto server = Start();
  httplib::Client client("127.0.0.1", server->port());
  const auto answer = client.Head("/status.json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "");
  EXPECT_NE(answer->get_header_value("Content-Length"), "0");
}

TEST_F(Web, RowsComeWholeAndGoOnWhereTheReaderStands) {
  const auto server = Start();
  httplib::Client client("127.0.0.1", server->port());
  const auto all = client.Get("/rows.jsonl?from=0");
  EXPECT_EQ(all->body, "{\"round\": 1}\n{\"round\": 2}\n");
  const auto second = client.Get("/rows.jsonl?from=13");
  EXPECT_EQ(second->body, "{\"round\": 2}\n");
  const auto end = client.Get("/rows.jsonl?from=" + all->get_header_value("X-Next"));
  EXPECT_EQ(end->body, "");
  EXPECT_EQ(end->get_header_value("X-Next"), all->get_header_value("X-Next"));
  EXPECT_EQ(client.Get("/rows.jsonl?from=99999999")->body, "");
}

TEST_F(Web, WithATokenNobodyElseIsAnswered) {
  const auto server = Start("s3cret");
  httplib::Client client("127.0.0.1", server->port());
  for (const std::string path : {"/", "/status.json", "/metrics", "/rows.jsonl"}) {
    EXPECT_EQ(client.Get(path)->status, 401) << path;
    EXPECT_EQ(client.Get(path + "?token=s3cre")->status, 401) << path;
    EXPECT_EQ(client.Get(path + "?token=s3crets3cret")->status, 401) << path;
    EXPECT_EQ(client.Get(path + "?token=s3cret")->status, 200) << path;
    EXPECT_EQ(client.Get(path, {{"Authorization", "Bearer s3cret"}})->status, 200) << path;
    EXPECT_EQ(client.Get(path, {{"Authorization", "s3cret"}})->status, 401) << path;
  }
}

TEST_F(Web, APageOfAnotherSiteCannotReadItThroughABrowser) {
  const auto server = Start();
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.Get("/status.json", {{"Host", "evil.example:80"}})->status, 403);
  EXPECT_EQ(client.Get("/status.json", {{"Host", "127.evil.example"}})->status, 403);
  EXPECT_EQ(client.Get("/status.json", {{"Host", "localhost:1234"}})->status, 200);
  EXPECT_EQ(client.Get("/status.json", {{"Host", "[::1]:1234"}})->status, 200);
}

TEST_F(Web, ATakenPortIsAnErrorThatNamesIt) {
  const auto server = Start();
  const auto second = WebServer::Start({.port = server->port()}, run_);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(server->port())));
}

// What callers without a token may cost.

Fd Caller(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return fd;
}
bool Sends(const Fd& fd, const std::string& bytes) {
  return send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
}
// Whether a request is answered while others do what they do.
bool IsAnswered(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(std::chrono::seconds(10));
  const auto answer = client.Get("/metrics?token=s3cret");
  return answer && answer->status == 200;
}
size_t OpenDescriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST_F(Web, ConnectionsThatSayNothingTakeFewDescriptorsAndKeepNobodyOut) {
  const auto server = Start("s3cret");
  const size_t before = OpenDescriptors();
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Caller(server->port()));
  EXPECT_TRUE(IsAnswered(server->port()));  // so the server has seen them all
  EXPECT_LT(OpenDescriptors(), before + silent.size() + 30);
}

TEST_F(Web, ALineWithoutEndIsCutShort) {
  const auto server = Start("s3cret");
  const Fd caller = Caller(server->port());
  size_t sent = 0;
  ASSERT_TRUE(Sends(caller, "GET / HTTP/1.1\r\nX: "));
  const std::string bytes(64 << 10, 'x');
  for (; sent < (size_t{256} << 20) && Sends(caller, bytes); sent += bytes.size()) continue;
  EXPECT_LT(sent, size_t{64} << 20);  // what the system's buffers take, and no more
  EXPECT_TRUE(IsAnswered(server->port()));
}

TEST_F(Web, ARequestThatDripsIsGivenUpAndHoldsUpNobody) {
  const auto server = Start("s3cret");
  std::vector<Fd> slow;
  for (int i = 0; i < 8; ++i) slow.push_back(Caller(server->port()));
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
  bool dripping = true;
  while (dripping && passed() < std::chrono::seconds(15)) {
    dripping = false;
    for (const Fd& fd : slow) dripping = Sends(fd, "G") || dripping;
    EXPECT_TRUE(IsAnswered(server->port()));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_FALSE(dripping) << "2 seconds are the limit";
}

TEST_F(Web, AReplyThatNobodyReadsHoldsUpNobody) {
  const auto server = Start("s3cret");
  std::vector<Fd> deaf;
  for (int i = 0; i < 8; ++i) {
    deaf.push_back(Caller(server->port()));
    ASSERT_TRUE(Sends(deaf.back(), "GET /?token=s3cret HTTP/1.1\r\n\r\n"));
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(IsAnswered(server->port()));
}

TEST(Metrics, AreInPrometheusFormWithNamesEscaped) {
  const std::string text = MetricsText(SomeStatus());
  EXPECT_THAT(text, AllOf(HasSubstr("macaw_rounds_completed_total 6\n"),
                          HasSubstr("macaw_run_state{state=\"running\"} 1\n"),
                          HasSubstr("macaw_nodes_late 1\n"),
                          HasSubstr("macaw_build_info{version=\"0.1.7\"} 1\n"),
                          HasSubstr("macaw_nodes_lost_total 3\n"),
                          HasSubstr("macaw_run_state{state=\"paused\"} 0\n"),
                          HasSubstr("macaw_clients{state=\"counted\"} 7\n"),
                          HasSubstr("macaw_metric{name=\"test_accuracy\"} 0.875\n"),
                          HasSubstr("\\\"q\\\" \\\\\"} 2\n")));
}

// The names of Macaw's metrics in a text.
std::set<std::string> NamesIn(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find("macaw_"); at != std::string::npos; at = text.find("macaw_", at)) {
    size_t end = at;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
      ++end;
    }
    names.insert(text.substr(at, end - at));
    at = end;
  }
  return names;
}

// A line for each family: its name, its label if it has one, and its help.
std::string TableOf(const std::string& text) {
  std::string table = "| metric | is |\n|---|---|\n";
  std::string name, help;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "# HELP ")) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      std::tie(name, help) = parts;
    } else if (!name.empty() && absl::ConsumePrefix(&line, name)) {  // its first sample
      const bool labelled = absl::ConsumePrefix(&line, "{");
      const absl::string_view label = labelled ? line.substr(0, line.find('=')) : "";
      absl::StrAppend(&table, "| `", name, labelled ? "{" : "", label, labelled ? "}" : "", "` | ",
                      help, " |\n");
      name.clear();
    }
  }
  return table;
}

TEST(Metrics, TheDashboardAndTheTableNameThoseThatExist) {
  const std::set<std::string> known = NamesIn(MetricsText(SomeStatus()));
  const std::string dashboard = *ReadFile(MACAW_SOURCE_DIR "/deploy/grafana.json");
  EXPECT_TRUE(nlohmann::json::accept(dashboard));
  const std::set<std::string> named = NamesIn(dashboard);
  EXPECT_GE(named.size(), 8u);
  const std::set<std::string> in_rules = NamesIn(*ReadFile(MACAW_SOURCE_DIR "/deploy/alerts.yaml"));
  EXPECT_GE(in_rules.size(), 8u);
  for (const std::string& name : in_rules) EXPECT_TRUE(known.contains(name)) << name;
  for (const std::string& name : named) EXPECT_TRUE(known.contains(name)) << name;
  EXPECT_THAT(*ReadFile(MACAW_SOURCE_DIR "/deploy/README.md"),
              HasSubstr(TableOf(MetricsText(SomeStatus()))))
      << "copy the table into deploy/README.md";
}

}  // namespace
}  // namespace macaw::http
