// The fleet API over TLS: who gets in, who does not, and what is said and written about it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "core/fd.h"
#include "core/random.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "identity/openssl.h"
#include "identity/verify.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/wire/credentials.h"
#include "proto/wire/remote.h"
#include "tests/proto/link_contract.h"
#include "tests/proto/test_authority.h"

namespace macaw::fleet {

class TlsFixture : public LinkFixture {
 public:
  TlsFixture() {
    server_ = *wire::FleetServer::Start({.listen = ":0", .authority = authority_.get()}, *handler_);
    link_ = *wire::Dial({.server = server_->address(), .identity = authority_.Certified("w")});
  }

 private:
  wire::TestAuthority authority_;
  std::unique_ptr<wire::FleetServer> server_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Tls, LinkContract, TlsFixture);

}  // namespace macaw::fleet

namespace macaw::wire {
namespace {

using identity::IdentityFiles;
using identity::Role;
using testing::AllOf;
using testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    audit_ = *identity::Audit::Open(AuditFile());
    server_ = *FleetServer::Start({.listen = ":0",
                                   .max_part_clients = 1000,
                                   .authority = authority_.get(),
                                   .audit = audit_.get()},
                                  handler_);
  }
  std::string AuditFile() const { return authority_.path() + "/audit.jsonl"; }
  absl::StatusOr<std::unique_ptr<fleet::FleetLink>> DialAs(const IdentityFiles& files) const {
    return Dial({.server = server_->address(), .identity = files});
  }
  absl::Status HelloAs(const IdentityFiles& files) const {
    const auto link = DialAs(files);
    return link.ok() ? (*link)->Hello({1, 0, "test"}).status() : link.status();
  }
  // What the server wrote about refused calls; it cannot be asked afterwards.
  std::string AuditText() {
    server_.reset();
    audit_.reset();
    return *ReadFile(AuditFile());
  }

  TestAuthority authority_;
  fleet::FakeHandler handler_;
  std::unique_ptr<identity::Audit> audit_;
  std::unique_ptr<FleetServer> server_;
};

TEST_F(TlsTest, ACertificateSaysWhoACallerIs) {
  const std::pair<Role, fleet::Role> roles[] = {{Role::kDevice, fleet::Role::kDevice},
                                                {Role::kWorker, fleet::Role::kNode},
                                                {Role::kOperator, fleet::Role::kOperator}};
  for (const auto& [role, expected] : roles) {
    ASSERT_TRUE(HelloAs(authority_.Certified("phone-7", role)).ok());
    EXPECT_EQ(handler_.caller().node, "phone-7");
    EXPECT_EQ(handler_.caller().role, expected);
    EXPECT_THAT(handler_.caller().owns, testing::ElementsAre("phone-7"));
  }
  EXPECT_EQ(AuditText(), "");
}

TEST_F(TlsTest, ACallerWithoutACertificateMayEnrolAndNothingElse) {
  const auto channel = grpc::CreateChannel(
      server_->address(),
      CredentialsToEnrol(authority_.InviteFor("a"), std::make_shared<FoundAuthority>()));
  grpc::ClientContext context;
  v1::HelloReply reply;
  const grpc::Status status = v1::Fleet::Stub(channel).Hello(&context, {}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("enrol the node first"));
  EXPECT_THAT(AuditText(), HasSubstr("has shown no certificate"));
}

TEST_F(TlsTest, APlainConnectionIsNotAnswered) {
  const auto link = *Dial({.server = server_->address()});
  EXPECT_TRUE(absl::IsUnavailable(link->Hello({1, 0, "plain text"}).status()));
}

TEST_F(TlsTest, ACertificateOfAnotherFleetIsRefused) {
  TestAuthority other;
  const IdentityFiles files = other.Certified("phone-7");
  // The device sends nothing to a server of another authority …
  const absl::Status cautious = HelloAs(files);
  EXPECT_TRUE(absl::IsUnavailable(cautious)) << cautious;
  EXPECT_THAT(cautious.message(), HasSubstr("is not from the authority \"test\" of this fleet"));
  // … and one that trusts this server is refused by it.
  ASSERT_TRUE(AtomicWriteFile(files.authority, (*authority_).certificate().Pem()).ok());
  const absl::Status refused = HelloAs(files);
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_THAT(AuditText(), HasSubstr("is not from the authority"));
}

TEST_F(TlsTest, ARevokedNodeIsRefusedAtItsNextCallOnAnOpenConnection) {
  const auto link = *DialAs(authority_.Certified("phone-7"));
  ASSERT_TRUE(link->Hello({1, 0, "test"}).ok());
  ASSERT_TRUE((*authority_).Revoke("phone-7", "lost in a bus", absl::Now()).ok());
  const absl::Status status = link->Hello({1, 0, "test"}).status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("was revoked: lost in a bus"));
  const std::string audit = AuditText();
  EXPECT_THAT(audit, HasSubstr("\"who\":\"phone-7\""));
  EXPECT_THAT(audit, HasSubstr("/macaw.v1.Fleet/Hello"));
  EXPECT_THAT(audit, HasSubstr("was revoked"));
}

TEST_F(TlsTest, ANodeWhoseCertificateRanOutIsToldSoBeforeItDials) {
  const IdentityFiles files = authority_.Certified("phone-7", Role::kDevice,
                                                   absl::Now() - absl::Hours(48), absl::Hours(24));
  EXPECT_THAT(HelloAs(files).message(), HasSubstr("was valid until"));
  const IdentityFiles early =
      authority_.Certified("phone-8", Role::kDevice, absl::Now() + absl::Hours(72));
  EXPECT_THAT(HelloAs(early).message(), HasSubstr("the clock is off by"));
}

TEST_F(TlsTest, ACertificateThatRunsOutIsRefusedOnAnOpenConnection) {
  // Ten seconds are left, for a machine that does much else.
  const IdentityFiles files = authority_.Certified(
      "phone-7", Role::kDevice, absl::Now() - absl::Hours(24) + absl::Seconds(10), absl::Hours(24));
  const auto link = *DialAs(files);
  ASSERT_TRUE(link->Hello({1, 0, "test"}).ok());
  // The server may have cut the connection at that moment; the next call dials again.
  absl::Status status;
  while (status.ok() || absl::IsUnavailable(status)) status = link->Hello({1, 0, "test"}).status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("was valid until"));
  EXPECT_THAT(AuditText(), HasSubstr("was valid until"));
}

// Shows a certificate that our own programs would not show, and believes any server.
std::shared_ptr<grpc::Channel> CarelessChannel(const std::string& address,
                                               const IdentityFiles& files) {
  using grpc::experimental::IdentityKeyCertPair;
  using grpc::experimental::NoOpCertificateVerifier;
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          std::vector<IdentityKeyCertPair>{{*ReadFile(files.key), *ReadFile(files.certificate)}}));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<NoOpCertificateVerifier>());
  return grpc::CreateChannel(address, grpc::experimental::TlsCredentials(options));
}

TEST_F(TlsTest, RefusesAnExpiredCertificate) {
  const absl::Time now = absl::Now();
  const std::pair<IdentityFiles, const char*> shown[] = {
      {authority_.Certified("phone-7", Role::kDevice, now - absl::Hours(48), absl::Hours(24)),
       "was valid until"},
      {authority_.Certified("phone-8", Role::kDevice, now + absl::Hours(72)),
       "the clock is off by"}};
  for (const auto& [files, why] : shown) {
    grpc::ClientContext context;
    v1::HelloReply reply;
    const grpc::Status status =
        v1::Fleet::Stub(CarelessChannel(server_->address(), files)).Hello(&context, {}, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr(why));
  }
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("was valid until"), HasSubstr("the clock is off by")));
}

TEST_F(TlsTest, ALinkGoesOnWithTheCertificateThatReplacedItsFirst) {
  // The last ten seconds of a day: it is due, and its successor lives for a day.
  const IdentityFiles files = authority_.Certified(
      "phone-7", Role::kDevice, absl::Now() - absl::Hours(24) + absl::Seconds(10), absl::Hours(24));
  const auto link = *DialAs(files);
  const auto hello = [&] { return link->Hello({1, 0, "test"}).status(); };
  const auto first = *identity::Certificate::FromPem(*ReadFile(files.certificate));
  ASSERT_TRUE(hello().ok());
  const absl::Status renewed = RenewCertificate(server_->address(), files);
  ASSERT_TRUE(renewed.ok()) << renewed;
  absl::Status status;
  while (status.ok() && identity::CheckTime(first, absl::Now()).ok()) {
    status = hello();
    absl::SleepFor(absl::Milliseconds(5));  // a name may make 2,000 calls a second
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(hello().ok());
}

TEST_F(TlsTest, AnInviteIsGoodOnceAndForItsOwnFleetAlone) {
  const auto invite = authority_.InviteFor("phone-7");
  const IdentityFiles files = authority_.FilesOf("phone-7");
  ASSERT_TRUE(Enrol(server_->address(), invite, files).ok());
  EXPECT_TRUE(HelloAs(files).ok());

  const absl::Status twice = Enrol(server_->address(), invite, authority_.FilesOf("thief"));
  EXPECT_TRUE(absl::IsUnauthenticated(twice)) << twice;
  EXPECT_THAT(twice.message(), HasSubstr("was used already"));

  TestAuthority other;
  const absl::Status elsewhere =
      Enrol(server_->address(), other.InviteFor("phone-7"), other.FilesOf("phone-7"));
  EXPECT_TRUE(absl::IsUnavailable(elsewhere)) << elsewhere;
  EXPECT_THAT(elsewhere.message(), HasSubstr("not of the fleet that the invite is for"));
  EXPECT_FALSE(FileExists(other.FilesOf("phone-7").certificate));

  EXPECT_THAT(AuditText(), HasSubstr("/macaw.v1.Enrolment/Enrol"));
}

TEST_F(TlsTest, AnInviteThatIsLateIsRefused) {
  const auto invite = authority_.InviteFor("phone-7", Role::kDevice, absl::Now() - absl::Hours(48));
  const IdentityFiles files = authority_.FilesOf("phone-7");
  const absl::Status late = Enrol(server_->address(), invite, files);
  EXPECT_TRUE(absl::IsUnauthenticated(late)) << late;
  EXPECT_FALSE(FileExists(files.certificate));
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("/macaw.v1.Enrolment/Enrol"), HasSubstr("has run out")));
}

TEST_F(TlsTest, AVersionOfTheFutureIsRefused) {
  const auto link = *DialAs(authority_.Certified("phone-7"));
  const absl::Status status = link->Hello({2, 0, "of tomorrow"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("\"who\":\"phone-7\""),
                                 HasSubstr("speaks version 1 of the protocol, the caller 2")));
}

TEST_F(TlsTest, WhatIsTooLargeIsRefused) {
  const auto channel = CarelessChannel(server_->address(), authority_.Certified("phone-7"));
  const auto commit = [&](const v1::CommitRequest& request) {
    grpc::ClientContext context;
    v1::CommitReply reply;
    return v1::Fleet::Stub(channel).Commit(&context, request, &reply).error_code();
  };
  {  // the first message over a connection is small
    grpc::ClientContext context;
    v1::HelloRequest hello;
    hello.set_major(1);
    v1::HelloReply reply;
    ASSERT_TRUE(v1::Fleet::Stub(channel).Hello(&context, hello, &reply).ok());
  }
  v1::CommitRequest large;
  large.add_evaluations()->set_failure(std::string(5 << 20, 'x'));
  EXPECT_EQ(commit(large), grpc::StatusCode::RESOURCE_EXHAUSTED);  // gRPC reads no more of it
  v1::CommitRequest many;  // 600 kB that would be many megabytes once parsed
  for (int i = 0; i < 300'000; ++i) many.add_evaluations();
  EXPECT_EQ(commit(many), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("\"who\":\"phone-7\""),
                                 HasSubstr("/macaw.v1.Fleet/Commit"), HasSubstr("entries")));
}

TEST_F(TlsTest, ANodeRenewsItsCertificateAndKeepsItsKey) {
  // In the last third of its 30 days.
  const IdentityFiles files =
      authority_.Certified("phone-7", Role::kDevice, absl::Now() - absl::Hours(24 * 25));
  const std::string key = *ReadFile(files.key), before = *ReadFile(files.certificate);
  ASSERT_TRUE(RenewCertificate(server_->address(), files).ok());
  EXPECT_EQ(*ReadFile(files.key), key);
  EXPECT_NE(*ReadFile(files.certificate), before);
  EXPECT_TRUE(HelloAs(files).ok());
  ASSERT_TRUE((*authority_).Revoke("phone-7", "", absl::Now()).ok());
  EXPECT_FALSE(RenewCertificate(server_->address(), files).ok());
}

TEST_F(TlsTest, ACertificateThatHasEndedRenewsItselfAndDoesNothingElse) {
  const IdentityFiles files =
      authority_.Certified("phone-7", Role::kDevice, absl::Now() - absl::Hours(24 * 40));
  const absl::Status ended = HelloAs(files);
  EXPECT_TRUE(absl::IsUnauthenticated(ended)) << ended;
  EXPECT_THAT(ended.message(), HasSubstr("was valid until"));
  const absl::Status renewed = RenewCertificate(server_->address(), files);
  ASSERT_TRUE(renewed.ok()) << renewed;
  EXPECT_TRUE(HelloAs(files).ok());

  const IdentityFiles old =
      authority_.Certified("phone-8", Role::kDevice, absl::Now() - absl::Hours(24 * 130));
  EXPECT_THAT(RenewCertificate(server_->address(), old).message(), HasSubstr("was valid until"));
  EXPECT_THAT(AuditText(), AllOf(HasSubstr("/macaw.v1.Fleet/Hello"), HasSubstr("phone-8"),
                                 HasSubstr("/macaw.v1.Enrolment/Renew")));
}

Fd ConnectTo(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  Fd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  return fd;
}

TEST_F(TlsTest, GarbageAndSilentConnectionsKeepNobodyOut) {
  RandomStream random(StreamKey{.seed = 1});
  std::vector<Fd> strangers;
  for (int i = 0; i < 60; ++i) {
    strangers.push_back(ConnectTo(server_->address()));
    if (i % 3 == 0) continue;  // says nothing
    std::string bytes(100 + 50 * static_cast<size_t>(i), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    // Half of these begin like a handshake: a record of TLS and its length.
    if (i % 3 == 1) bytes.replace(0, 5, std::string("\x16\x03\x01\x02\x00", 5));
    EXPECT_TRUE(WriteAll(strangers.back(), BytesOf(bytes)));
  }
  EXPECT_TRUE(HelloAs(authority_.Certified("phone-7")).ok());
  EXPECT_THAT(AuditText(), HasSubstr("Handshake failed"));
}

// The server waits ten seconds for a handshake.
TEST_F(TlsTest, HangsUpOnWhoTakesTooLongToShakeHands) {
  const Fd silent = ConnectTo(server_->address()), slow = ConnectTo(server_->address());
  EXPECT_TRUE(WriteAll(slow, BytesOf(std::string("\x16\x03\x01", 3))));
  for (const Fd* stranger : {&silent, &slow}) {
    char byte = 0;
    EXPECT_LE(read(stranger->get(), &byte, 1), 0);  // returns once the server has hung up
  }
}

// Whether the server shakes hands with a client that speaks at most this version.
bool ShakesHands(const std::string& address, int version) {
  const Fd fd = ConnectTo(address);
  const std::unique_ptr<SSL_CTX, identity::FreeWith<SSL_CTX_free>> context(
      SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_max_proto_version(context.get(), version);
  const unsigned char h2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), h2, sizeof(h2));
  const std::unique_ptr<SSL, identity::FreeWith<SSL_free>> session(SSL_new(context.get()));
  SSL_set_fd(session.get(), fd.get());
  return SSL_connect(session.get()) == 1;
}

TEST_F(TlsTest, SpeaksNoOlderVersionThan13) {
  EXPECT_TRUE(ShakesHands(server_->address(), TLS1_3_VERSION));
  EXPECT_FALSE(ShakesHands(server_->address(), TLS1_2_VERSION));
  EXPECT_THAT(AuditText(), HasSubstr("no shared cipher"));
}

TEST_F(TlsTest, AnAddressOfOtherMachinesNeedsAnAuthorityAndAnIdentity) {
  fleet::FakeHandler handler;
  EXPECT_THAT(FleetServer::Start({.listen = "0.0.0.0:0"}, handler).status().message(),
              HasSubstr("macaw pki init"));
  EXPECT_THAT(Dial({.server = "fl.example.org:47100"}).status().message(),
              HasSubstr("macaw-worker enrol"));
  EXPECT_TRUE(
      FleetServer::Start({.listen = "0.0.0.0:0", .authority = authority_.get()}, handler).ok());
}

}  // namespace
}  // namespace macaw::wire
