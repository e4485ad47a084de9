#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/fleet/client_table.h"
#include "testing/local_link.h"
#include "tests/server/tiny_run.h"

// Access control of a real coordinator.
namespace macaw::server {
namespace {

using absl::StatusCode;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using fleet::Caller;
using fleet::Role;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

Caller NodeCaller(const std::string& name) { return {.role = Role::kNode, .node = name}; }

TEST(Callers, AStrangerIsToldNothing) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker honest(fleet::MakeLocalLink(*coordinator, NodeCaller("honest")), "honest");
  ASSERT_TRUE(honest.Register().ok());
  const fleet::CommitRequest part = *honest.WorkOnPart();

  FakeWorker stranger(fleet::MakeLocalLink(*coordinator, {.role = Role::kStranger}), "stranger");
  fleet::FleetLink& link = stranger.link();
  EXPECT_EQ(link.Hello({}).status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(stranger.Register().status().message()), HasSubstr("MACAW_TOKEN"));
  for (const SessionId session : {honest.session(), SessionId(1)}) {
    EXPECT_EQ(link.Lease({.session = session, .wait = FromSeconds(1)}).status().code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(link.Heartbeat({.session = session}).status().code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(link.Release({.session = session, .leaving = true}).status().code(),
              StatusCode::kPermissionDenied);
    fleet::CommitRequest theirs = part;
    theirs.session = session;
    EXPECT_EQ(link.Commit(theirs).status().code(), StatusCode::kPermissionDenied);
  }
  EXPECT_FALSE(link.Fetch({.digest = part.part->broadcast, .size = 1}).ok());
  EXPECT_EQ(honest.Commit(part).verdict, fleet::Verdict::kAccepted);
}

// Session numbers are secret, but access depends on the caller's identity, not on knowing a number.
TEST(Callers, ANodeSpeaksForItselfOnly) {
  const TemporaryFolder quiet, disturbed;
  Finish(TinyOptions(quiet.path(), 2));
  const auto coordinator = StartTiny(TinyOptions(disturbed.path(), 2));
  FakeWorker honest(fleet::MakeLocalLink(*coordinator, NodeCaller("honest")), "honest");
  ASSERT_TRUE(honest.Register().ok());
  const fleet::CommitRequest part = *honest.WorkOnPart();

  FakeWorker other(fleet::MakeLocalLink(*coordinator, NodeCaller("other")), "honest");
  EXPECT_EQ(other.Register().status().code(), StatusCode::kPermissionDenied) << "another's name";
  other.identity().name = "other";
  ASSERT_TRUE(other.Register().ok());
  fleet::FleetLink& link = other.link();
  const SessionId session = honest.session();
  EXPECT_EQ(link.Lease({.session = session, .wait = FromSeconds(1)}).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(link.Heartbeat({.session = session}).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(link.Release({.session = session, .leaving = true}).status().code(),
            StatusCode::kPermissionDenied);
  fleet::CommitRequest empty{.session = session, .commit_id = UINT64_MAX};
  EXPECT_EQ(link.Commit(empty).status().code(), StatusCode::kPermissionDenied);
  ASSERT_TRUE(link.Release({.session = other.session(), .leaving = true}).ok());

  EXPECT_EQ(honest.Commit(part).verdict, fleet::Verdict::kAccepted);
  honest.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(RunBytes(quiet.path()), RunBytes(disturbed.path()));
}

TEST(Callers, AnOwnerBringsTheClientsThatItWasEnteredWith) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  Caller caller = NodeCaller("anna");
  caller.owns_any = false;
  caller.owns = {"7"};
  FakeWorker anna(fleet::MakeLocalLink(*coordinator, caller), "anna");
  const auto bring = [&](const std::string& client) {
    const fleet::ClientTable table{.rows = {10}, .names = {client}};
    anna.identity().owner = true;
    anna.identity().clients = 1;
    anna.identity().central_test_rows = 0;
    anna.identity().data_digest = DigestOf("rows of " + client);
    anna.identity().table = fleet::Blob::Of(table.Encode());
    return anna.Register().status();
  };
  const absl::Status refused = bring("6");
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not own a client named \"6\""));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("macaw pki assign anna --client 6 enters"));
  EXPECT_THAT(std::string(bring("a b, \"c\"").message()),
              HasSubstr("--client 'a b, \"c\"' enters it"));
  EXPECT_TRUE(bring("7").ok());
}

// As after `macaw pki assign NAME --clients ""`.
TEST(Callers, AnOwnerThatWasEnteredWithoutClientsBringsNone) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  Caller caller = NodeCaller("anna");
  caller.owns_any = false;
  FakeWorker anna(fleet::MakeLocalLink(*coordinator, caller), "anna");
  const fleet::ClientTable table{.rows = {10}, .names = {"7"}};
  anna.identity().owner = true;
  anna.identity().clients = 1;
  anna.identity().central_test_rows = 0;
  anna.identity().table = fleet::Blob::Of(table.Encode());
  EXPECT_EQ(anna.Register().status().code(), StatusCode::kPermissionDenied);
}

// Whoever came first would have the client, and its owner would be refused.
TEST(Callers, NobodyBringsAClientThatTheRegistryGivesToAnother) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 1);
  ClientOwners owners = {{"5", "phone-5"}};
  options.owners = [&] { return std::make_shared<const ClientOwners>(owners); };
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(fleet::MakeLocalLink(*coordinator, NodeCaller("worker-0")), "worker-0");
  const absl::Status refused = worker.Register().status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("a client named \"5\""), HasSubstr("\"phone-5\"")));
  owners = {{"5", "worker-0"}, {"99", "phone-5"}};
  EXPECT_TRUE(worker.Register().ok());
  owners = {{"3", "phone-5"}};
  Caller any = NodeCaller("lab");
  FakeWorker lab(fleet::MakeLocalLink(*coordinator, any), "lab");
  lab.identity().owner = true;
  EXPECT_EQ(lab.Register().status().code(), StatusCode::kPermissionDenied)
      << "it was entered with clients of any name, but not with this one";
}

TEST(Callers, ADeviceBringsItsOwnClientsAndTrainsNoOthers) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  const Caller device = {
      .role = Role::kDevice, .node = "phone-7", .owns_any = false, .owns = {"phone-7"}};
  FakeWorker worker(fleet::MakeLocalLink(*coordinator, device), "phone-7");
  const absl::Status status = worker.Register().status();  // with clients that others have, too
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trains its own clients alone"));
}

TEST(Callers, AnOperatorTrainsNothing) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(
      fleet::MakeLocalLink(*coordinator, Caller{.role = Role::kOperator, .node = "anna"}), "anna");
  EXPECT_THAT(std::string(worker.Register().status().message()), HasSubstr("is an operator"));
}

}  // namespace
}  // namespace macaw::server
