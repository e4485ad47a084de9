// A real run over mutual TLS, and nodes with good certificates that reach for what is not theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "identity/audit.h"
#include "proto/fleet/client_table.h"
#include "proto/wire/remote.h"
#include "server/paced_calls.h"
#include "testing/fake_handler.h"
#include "tests/proto/test_authority.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using identity::Role;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::TemporaryFolder;

class Attack : public testing::Test {
 protected:
  Attack() {
    audit_ = *identity::Audit::Open(AuditFile());
    server_ = *wire::FleetServer::Start(
        {.listen = ":0", .authority = authority_.get(), .audit = audit_.get()}, paced_);
  }
  std::string AuditFile() const { return authority_.path() + "/audit.jsonl"; }
  FakeWorker WorkerAs(const std::string& name, Role role) {
    return FakeWorker(
        *wire::Dial({.server = server_->address(), .identity = authority_.Certified(name, role)}),
        name);
  }
  // What the server wrote about refused calls; it cannot be asked afterwards.
  std::string AuditText() {
    server_.reset();
    audit_.reset();
    return *ReadFile(AuditFile());
  }

  const TemporaryFolder folder_;
  wire::TestAuthority authority_;
  std::unique_ptr<Coordinator> coordinator_ = StartTiny(TinyOptions(folder_.path(), 2));
  PacedCalls paced_{*coordinator_};
  std::unique_ptr<identity::Audit> audit_;
  std::unique_ptr<wire::FleetServer> server_;
};

TEST_F(Attack, ADeviceDoesNotGetTheClientOfAnother) {
  FakeWorker phone = WorkerAs("phone-7", Role::kDevice);
  const fleet::ClientTable table{.rows = {10}, .names = {"phone-8"}};
  phone.identity().owner = true;
  phone.identity().clients = 1;
  phone.identity().central_test_rows = 0;
  phone.identity().table = fleet::Blob::Of(table.Encode());
  EXPECT_TRUE(absl::IsPermissionDenied(phone.Register().status()));
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("\"who\":\"phone-7\""),
                                 HasSubstr("/macaw.v1.Fleet/Register"), HasSubstr("phone-8")));
}

TEST_F(Attack, ADeviceIsNotTheTestSet) {
  FakeWorker phone = WorkerAs("phone-7", Role::kDevice);
  const fleet::ClientTable table{.rows = {10}, .names = {"phone-7"}};
  phone.identity().owner = true;
  phone.identity().clients = 1;
  phone.identity().central_test_rows = 1000;
  phone.identity().table = fleet::Blob::Of(table.Encode());
  const absl::Status refused = phone.Register().status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("data.test_fraction"));
  EXPECT_THAT(AuditText(), HasSubstr("no test set for all"));
}

TEST_F(Attack, ADeviceDoesNotWorkForAWorker) {
  FakeWorker honest = WorkerAs("honest", Role::kWorker);
  ASSERT_TRUE(honest.Register().ok());
  FakeWorker phone = WorkerAs("phone-7", Role::kDevice);
  EXPECT_TRUE(absl::IsPermissionDenied(phone.Register().status())) << "clients that many have";
  phone.identity().name = "honest";
  EXPECT_TRUE(absl::IsPermissionDenied(phone.Register().status())) << "another's name";
  EXPECT_TRUE(absl::IsPermissionDenied(
      phone.link()
          .Lease({.session = honest.session(), .wanted = 1, .wait = FromSeconds(1)})
          .status()));
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("trains its own clients alone"),
                                 HasSubstr("/macaw.v1.Fleet/Register"),
                                 HasSubstr("/macaw.v1.Fleet/Lease"), HasSubstr("for itself")));
}

TEST_F(Attack, ACommitIsCountedOnceWhoeverReplaysIt) {
  const TemporaryFolder undisturbed;
  Finish(TinyOptions(undisturbed.path(), 2));
  FakeWorker honest = WorkerAs("honest", Role::kWorker);
  FakeWorker phone = WorkerAs("phone-7", Role::kDevice);
  ASSERT_TRUE(honest.Register().ok());
  while (const auto commit = honest.Work()) {
    EXPECT_TRUE(absl::IsPermissionDenied(phone.link().Commit(*commit).status())) << "too early";
    EXPECT_EQ(honest.Commit(*commit).verdict, fleet::Verdict::kAccepted);
    EXPECT_TRUE(absl::IsPermissionDenied(phone.link().Commit(*commit).status())) << "a replay";
    EXPECT_EQ(honest.Commit(*commit).verdict, fleet::Verdict::kDuplicate);
  }
  ASSERT_TRUE(coordinator_->Wait().ok());
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(folder_.path()));
  // Its own worker repeats a commit whose answer was lost; that is no attack.
  EXPECT_THAT(AuditText(),
              AllOf(HasSubstr("\"who\":\"phone-7\""), HasSubstr("/macaw.v1.Fleet/Commit"),
                    Not(HasSubstr("\"who\":\"honest\""))));
}

TEST_F(Attack, ADeviceThatRegistersWithoutEndLeavesFewRecords) {
  FakeWorker worker = WorkerAs("loud", Role::kWorker);
  int taken = 0;
  absl::Status last;
  for (int i = 0; i < 100; ++i) {
    ++worker.identity().incarnation;
    last = worker.Register().status();
    taken += last.ok() ? 1 : 0;
  }
  EXPECT_GE(taken, 20);
  EXPECT_LT(taken, 40);
  EXPECT_TRUE(absl::IsUnavailable(last)) << last;
  EXPECT_THAT(last.message(), HasSubstr("registers too often"));
  FakeWorker honest = WorkerAs("honest", Role::kWorker);
  EXPECT_TRUE(honest.Register().ok());
}

TEST_F(Attack, ADeviceWhoseLeasesNeverArriveLeavesFewRecords) {
  FakeWorker worker = WorkerAs("loud", Role::kWorker);
  ASSERT_TRUE(worker.Register().ok());
  int leased = 0;
  for (int i = 0; i < 100; ++i) {
    const auto reply = worker.link().Lease(
        {.session = worker.session(), .wanted = 1, .wait = std::chrono::seconds(10)});
    ASSERT_TRUE(reply.ok()) << reply.status();
    leased += reply->training.has_value() ? 1 : 0;
  }
  EXPECT_GE(leased, 20);
  EXPECT_LT(leased, 60);
}

TEST(PacedCallsTest, AReasonThatChangesWithEachCommitStays) {
  fleet::FakeHandler handler;
  PacedCalls paced(handler);
  for (uint64_t i = 0; i < 100; ++i) {
    fleet::CommitRequest request{.commit_id = i};
    request.ask.emplace().declined = absl::StrCat("reason ", i);
    paced.Commit({.node = "loud"}, std::move(request), [](auto) {});
  }
  std::set<std::string> reasons;
  for (const fleet::CommitRequest& request : handler.TakeCommitted()) {
    reasons.insert(request.ask->declined);
    EXPECT_TRUE(request.ask->paced) << "leases that never arrived have an allowance";
  }
  EXPECT_GE(reasons.size(), 20u);
  EXPECT_LT(reasons.size(), 30u);
}

}  // namespace
}  // namespace macaw::server
