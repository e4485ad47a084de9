// The operator's protocol over a real connection, with a handler that only remembers.
#include "proto/wire/admin.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/synchronization/notification.h"
#include "proto/wire/remote.h"
#include "testing/temporary_folder.h"
#include "tests/proto/test_authority.h"

namespace macaw::wire {
namespace {

using admin::Action;
using identity::Role;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

class FakeRun final : public admin::AdminHandler {
 public:
  void Status(fleet::Reply<admin::RunStatus> reply) override {
    if (!answers) return;  // lets go of the call
    admin::RunStatus status{.run = "a run", .round = 7, .waits_for = "phone-7"};
    status.nodes = {{.name = "caf\xe9 <script>", .leased = 3}};  // not UTF-8
    std::move(reply)(std::move(status));
  }
  void Apply(admin::Change change, fleet::Reply<admin::Changed> reply) override {
    changes.push_back(change);
    if (change.node == "nobody") return std::move(reply)(absl::NotFoundError("no such node"));
    std::move(reply)(admin::Changed{.text = "done"});
  }
  admin::EventFeed& events() override { return feed; }

  bool answers = true;
  std::vector<admin::Change> changes;
  admin::EventFeed feed{4};
};

class Admin : public testing::Test {
 protected:
  Admin() : server_(*AdminServer::Start({.listen = "unix:" + socket_}, run_)) {}
  std::unique_ptr<AdminClient> Client() const {
    return *AdminClient::Dial(server_->address(), std::nullopt);
  }

  const TemporaryFolder folder_;
  const std::string socket_ = folder_ / "admin.sock";
  FakeRun run_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(Admin, TheSocketIsForThisUserAlone) {
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(Admin, AStatusIsJsonWhateverANodeIsCalled) {
  const auto json = nlohmann::json::parse(Client()->Status().value());
  EXPECT_EQ(json["run"], "a run");
  EXPECT_EQ(json["round"], 7);
  EXPECT_EQ(json["nodes"][0]["leased"], 3);
}

TEST_F(Admin, EveryChangeArrivesAsItWasAsked) {
  const auto client = Client();
  for (const Action action :
       {Action::kPause, Action::kResume, Action::kDrain, Action::kAbortRound, Action::kQuarantine,
        Action::kAdmit, Action::kGiveUp, Action::kSkipEvaluation}) {
    const auto said =
        client->Apply({.action = action, .by = "ada", .reason = "why", .node = "n", .round = 3});
    ASSERT_TRUE(said.ok()) << said.status();
    const admin::Change& change = run_.changes.back();
    EXPECT_EQ(change.action, action);
    EXPECT_EQ(change.by, "ada");
    EXPECT_EQ(change.reason, "why");
    EXPECT_EQ(change.request_id.size(), 16u);
    const bool round = action == Action::kAbortRound || action == Action::kSkipEvaluation;
    EXPECT_EQ(change.round, round ? 3u : 0u);
    const bool node =
        action == Action::kQuarantine || action == Action::kAdmit || action == Action::kGiveUp;
    EXPECT_EQ(change.node, node ? "n" : "");
  }
  EXPECT_NE(run_.changes[0].request_id, run_.changes[1].request_id);
  const auto refused = client->Apply({.action = Action::kAdmit, .node = "nobody"});
  EXPECT_TRUE(absl::IsNotFound(refused.status()));
  EXPECT_FALSE(client->Apply({.request_id = "short", .action = Action::kPause}).ok());
  EXPECT_FALSE(client->Apply({.action = Action::kPause, .reason = std::string(5000, 'x')}).ok());
}

TEST_F(Admin, ACallThatTheRunLetsGoOfIsAnError) {
  run_.answers = false;
  EXPECT_TRUE(absl::IsUnavailable(Client()->Status().status()));
}

TEST_F(Admin, AWatcherGetsWhatIsKeptAndThenWhatComes) {
  for (int i = 1; i <= 6; ++i) run_.feed.Append(absl::StrCat("line ", i));  // keeps four
  std::vector<std::string> got;
  const absl::Status status = Client()->Watch(1, [&](uint64_t number, const std::string& line) {
    got.push_back(absl::StrCat(number, ": ", line));
    if (number == 6) run_.feed.Append("line 7");  // while the watcher waits or soon will
    if (number == 7) run_.feed.Close();
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(
      got, testing::ElementsAre("3: line 3", "4: line 4", "5: line 5", "6: line 6", "7: line 7"));
}

TEST_F(Admin, AWatcherMayGoAndAServerEndsUnderOneThatWaits) {
  run_.feed.Append("line 1");
  EXPECT_TRUE(Client()->Watch(1, [](uint64_t, const std::string&) { return false; }).ok());
  absl::Notification waits;
  std::thread watcher([&] {
    const absl::Status status = Client()->Watch(1, [&](uint64_t, const std::string&) {
      waits.Notify();
      return true;
    });
    EXPECT_FALSE(status.ok());
  });
  waits.WaitForNotification();
  server_.reset();
  watcher.join();
  run_.feed.Append("line 2");  // finds nobody
}

TEST_F(Admin, ManyWatchersGetEveryLineOnceWhileLinesAreWritten) {
  admin::EventFeed& feed = run_.feed;
  feed.Append("line 1");
  std::vector<std::thread> watchers;
  for (int i = 0; i < 4; ++i) {
    watchers.emplace_back([&] {
      uint64_t last = 0;
      const absl::Status status = Client()->Watch(1, [&](uint64_t number, const std::string&) {
        EXPECT_GT(number, last);
        last = number;
        return true;
      });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(last, 500u);
    });
  }
  for (int i = 2; i <= 500; ++i) feed.Append(absl::StrCat("line ", i));
  feed.Close();
  for (std::thread& watcher : watchers) watcher.join();
}

TEST_F(Admin, GrpcsHealthServiceAnswersHereAndTheWorkersProtocolDoesNot) {
  // Called by name with an empty message.
  const auto calls = [](const std::string& address, const std::string& method) {
    const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel);
    const grpc::Slice empty;
    const grpc::ByteBuffer nothing(&empty, 1);
    auto call = stub.PrepareUnaryCall(&context, method, nothing, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.error_code();
  };
  EXPECT_EQ(calls(server_->address(), "/grpc.health.v1.Health/Check"), grpc::StatusCode::OK);
  EXPECT_EQ(calls(server_->address(), "/macaw.v1.Fleet/Hello"), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(AdminListener, OtherMachinesAreRefusedByName) {
  FakeRun run;
  const auto server = AdminServer::Start({.listen = "0.0.0.0:0"}, run);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("0.0.0.0"));
}

class FakeQueue final : public admin::QueueHandler {
 public:
  absl::StatusOr<std::string> Submit(const admin::Submission& submission) override {
    submitted.push_back(submission);
    return "queued";
  }
  absl::StatusOr<std::string> Withdraw(const std::string& name, const std::string&,
                                       const std::string&) override {
    named.push_back(name);
    return "withdrawn";
  }
  std::string Runs() override { return "[]"; }
  absl::StatusOr<std::vector<admin::ResultFile>> Results(const std::string& name) override {
    named.push_back(name);
    return std::vector<admin::ResultFile>();
  }

  std::vector<admin::Submission> submitted;
  std::vector<std::string> named;
};

class AdminQueue : public testing::Test {
 protected:
  AdminQueue()
      : server_(*AdminServer::Start({.listen = "unix:" + (folder_ / "admin.sock")}, queue_)),
        client_(*AdminClient::Dial(server_->address(), std::nullopt)) {}

  const TemporaryFolder folder_;
  FakeQueue queue_;
  std::unique_ptr<AdminServer> server_;
  std::unique_ptr<AdminClient> client_;
};

TEST_F(AdminQueue, APlanArrivesByteForByte) {
  std::string plan = "[run]\r\nrounds\t= 3\r\n# caf\u00e9 \u0085\n";
  const std::string small = plan;
  while (plan.size() < 5'000) plan += "# a line that is no key\n";
  std::string largest = plan + "[round]\ntarget = 2\n# ";
  largest.resize(1 << 20, 'x');
  for (const std::string& sent : {small, plan, largest}) {
    const auto said = client_->Submit({.name = "a run", .by = "ada", .plan = sent});
    ASSERT_TRUE(said.ok()) << said.status();
    EXPECT_EQ(queue_.submitted.back().plan, sent);
    EXPECT_EQ(queue_.submitted.back().name, "a run");
  }
}

TEST_F(AdminQueue, APlanThatCannotTravelIsRefusedBeforeItIsSent) {
  const auto message = [&](std::string plan) {
    return std::string(client_->Submit({.name = "a", .plan = std::move(plan)}).status().message());
  };
  EXPECT_THAT(message(std::string((1 << 20) + 1, '#')),
              AllOf(HasSubstr("1048577 bytes"), HasSubstr("1048576")));
  EXPECT_THAT(message("# caf\xe9\n"), HasSubstr("UTF-8"));
  EXPECT_TRUE(queue_.submitted.empty());
}

TEST_F(AdminQueue, ANameThatWouldArriveAsAnotherIsRefused) {
  for (const std::string& name :
       {std::string("a\tb"), std::string("caf\xe9"), std::string(2049, 'x')}) {
    const auto nothing = [](const admin::ResultPiece&) { return absl::OkStatus(); };
    const absl::Status said[] = {
        client_->Submit({.name = name}).status(),
        client_->Withdraw(name, "ada", "").status(),
        client_->Results(name, nothing),
        client_->Invite({.name = name, .role = "device"}).status(),
        client_->Invite({.name = "x", .role = "device", .clients = {name}}).status(),
        client_->Revoke(name, "").status(),
        client_->Apply({.action = Action::kAdmit, .node = name}).status()};
    for (const absl::Status& status : said) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("write its name"));
    }
  }
  EXPECT_TRUE(queue_.submitted.empty());
  EXPECT_TRUE(queue_.named.empty());
}

class AdminOverTls : public testing::Test {
 protected:
  AdminOverTls() {
    audit_ = *identity::Audit::Open(AuditFile());
    server_ = *AdminServer::Start(
        {.listen = ":0", .authority = authority_.get(), .audit = audit_.get()}, run_);
  }
  std::string AuditFile() const { return authority_.path() + "/audit.jsonl"; }
  absl::Status StatusFor(const std::optional<identity::IdentityFiles>& identity) const {
    return (*AdminClient::Dial(server_->address(), identity))->Status().status();
  }

  TestAuthority authority_;
  FakeRun run_;
  std::unique_ptr<identity::Audit> audit_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminOverTls, AnOperatorIsAnsweredAndEnteredUnderTheCertificatesName) {
  const auto ada =
      *AdminClient::Dial(server_->address(), authority_.Certified("ada", Role::kOperator));
  EXPECT_TRUE(ada->Status().ok());
  ASSERT_TRUE(ada->Apply({.action = Action::kPause, .by = "somebody else"}).ok());
  EXPECT_EQ(run_.changes.at(0).by, "ada");
}

TEST_F(AdminOverTls, NobodyElseIsAnsweredAndEachIsInTheAuditLog) {
  for (const Role role : {Role::kDevice, Role::kWorker}) {
    const absl::Status status = StatusFor(authority_.Certified("phone-7", role));
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"phone-7\" is no operator"));
  }
  TestAuthority other;
  EXPECT_TRUE(absl::IsUnavailable(StatusFor(other.Certified("ada", Role::kOperator))));
  EXPECT_TRUE(absl::IsUnavailable(StatusFor(std::nullopt))) << "plain text";
  EXPECT_TRUE(run_.changes.empty());
  server_.reset();
  audit_.reset();
  EXPECT_THAT(*ReadFile(AuditFile()), AllOf(HasSubstr("macaw.v1.Admin"), HasSubstr("no operator")));
}

TEST_F(AdminOverTls, AnOperatorInvitesAndRevokesNodesButNoOperators) {
  const auto ada =
      *AdminClient::Dial(server_->address(), authority_.Certified("ada", Role::kOperator));
  const auto code = ada->Invite(
      {.name = "phone-9", .role = "device", .clients = {"9", "10"}, .open_for_seconds = 60});
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_TRUE(identity::Invite::FromCode(code->code).ok());
  const auto nodes = *(*authority_).Nodes();
  ASSERT_TRUE(nodes.contains("phone-9"));
  EXPECT_THAT(nodes.at("phone-9").invite->grant->owns, testing::ElementsAre("9", "10"));
  EXPECT_FALSE(nodes.at("phone-9").invite->grant->owns_any);
  EXPECT_LT(nodes.at("phone-9").invite->until, absl::Now() + absl::Seconds(61));
  ASSERT_TRUE(ada->Invite({.name = "lab", .role = "worker", .clients = {"*"}}).ok());
  EXPECT_TRUE((*authority_).Nodes()->at("lab").invite->grant->owns_any);
  ASSERT_TRUE(ada->Invite({.name = "phone-8", .role = "device"}).ok());
  EXPECT_THAT((*authority_).Nodes()->at("phone-8").invite->grant->owns,
              testing::ElementsAre("phone-8"));

  authority_.Certified("phone-7", Role::kDevice);
  const auto revoked = ada->Revoke("phone-7", "was lost");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ((*authority_).Nodes()->at("phone-7").revoked, "was lost (by ada)");
  EXPECT_TRUE(absl::IsNotFound(ada->Revoke("nobody", "").status()));

  authority_.Certified("eve", Role::kOperator);
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  for (const char* name : {"eve", "ada"}) {
    EXPECT_THAT(message(ada->Revoke(name, "").status()), HasSubstr("is an operator"));
    EXPECT_THAT(message(ada->Invite({.name = name, .role = "device"}).status()),
                HasSubstr("is an operator"))
        << "its certificate would be replaced";
  }
  EXPECT_THAT(message(ada->Invite({.name = "x", .role = "operator"}).status()),
              HasSubstr("where the authority's folder is"));
  EXPECT_THAT(message(ada->Invite({.name = "x", .role = "king"}).status()), HasSubstr("king"));
  EXPECT_THAT(message(ada->Invite({.name = "", .role = "device"}).status()), HasSubstr("name"));
  EXPECT_THAT(message(ada->Invite({.name = "x",
                                   .role = "device",
                                   .clients = std::vector<std::string>(1000, "0123456789")})
                          .status()),
              HasSubstr("macaw pki assign"));
  EXPECT_FALSE((*authority_).Nodes()->contains("x"));
}

TEST_F(AdminOverTls, NobodyElseInvites) {
  for (const Role role : {Role::kDevice, Role::kWorker}) {
    const auto node = *AdminClient::Dial(server_->address(), authority_.Certified("phone-7", role));
    EXPECT_TRUE(absl::IsPermissionDenied(node->Invite({.name = "x", .role = "device"}).status()));
    EXPECT_TRUE(absl::IsPermissionDenied(node->Revoke("phone-7", "").status()));
  }
  EXPECT_FALSE((*authority_).Nodes()->contains("x"));
}

TEST_F(Admin, WithoutAnAuthorityThereAreNoNodesToInvite) {
  EXPECT_THAT(std::string(Client()->Invite({.name = "x", .role = "device"}).status().message()),
              HasSubstr("macaw pki"));
}

TEST_F(AdminOverTls, ARevokedOperatorIsRefusedOnAnOpenConnection) {
  const auto ada =
      *AdminClient::Dial(server_->address(), authority_.Certified("ada", Role::kOperator));
  ASSERT_TRUE(ada->Status().ok());
  ASSERT_TRUE((*authority_).Revoke("ada", "left", absl::Now()).ok());
  absl::Status refused = ada->Status().status();
  // The guard may have cut the connection in the middle of the call; the next one hears why.
  for (int i = 0; i < 10 && absl::IsUnavailable(refused); ++i) refused = ada->Status().status();
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
}

}  // namespace
}  // namespace macaw::wire
