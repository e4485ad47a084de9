#include "identity/authority.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "core/fd.h"
#include "core/files.h"
#include "identity/verify.h"
#include "testing/temporary_folder.h"
#include "tests/identity/now.h"

namespace macaw::identity {
namespace {

using fixtures::kNow;
using testing::HasSubstr;

class AuthorityTest : public testing::Test {
 protected:
  AuthorityTest() {
    EXPECT_TRUE(Authority::Create(folder_.path(), "fleet", kNow).ok());
    authority_ = *Authority::Open(folder_.path());
  }
  Invite InviteFor(const std::string& name, NewNode node = {}) {
    node.grant.subject.name = name;
    if (node.grant.owns.empty()) node.grant.owns = {name};
    return *Invite::FromCode(*authority_->InviteNode(node, kNow));
  }
  absl::StatusOr<Certificate> Enrol(const Invite& invite, const PrivateKey& key,
                                    absl::Time now = kNow) {
    return authority_->Enrol(invite, *MakeRequest(key), now);
  }
  absl::Status Identify(const Certificate& certificate, absl::Time now = kNow) {
    return authority_->Identify(certificate.Pem(), now).status();
  }

  testing_support::TemporaryFolder folder_;
  std::unique_ptr<Authority> authority_;
  const PrivateKey key_ = *PrivateKey::Generate();
};

TEST_F(AuthorityTest, EnrolsANodeWithItsInviteAndThenKnowsIt) {
  const Invite invite = InviteFor("phone-7");
  EXPECT_TRUE(invite.Pins(authority_->certificate()));
  const auto certificate = Enrol(invite, key_);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_EQ(certificate->subject(), (Subject{"phone-7", Role::kDevice}));
  EXPECT_TRUE(certificate->IsOf(key_));
  const auto grant = authority_->Identify(certificate->Pem(), kNow);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_THAT((*grant)->owns, testing::ElementsAre("phone-7"));
  EXPECT_FALSE((*grant)->owns_any);
}

TEST_F(AuthorityTest, SaysWhoseEachClientIs) {
  EXPECT_TRUE((*authority_->Owners())->empty());
  const Invite invite = InviteFor("phone-7", {.grant = {.owns = {"7", "8"}}});
  EXPECT_TRUE((*authority_->Owners())->empty()) << "it has not enrolled";
  ASSERT_TRUE(Enrol(invite, key_).ok());
  EXPECT_THAT(**authority_->Owners(), testing::UnorderedElementsAre(testing::Pair("7", "phone-7"),
                                                                    testing::Pair("8", "phone-7")));
  EXPECT_EQ(*authority_->Owners(), *authority_->Owners()) << "made once";
  const auto elsewhere = *Authority::Open(folder_.path());
  ASSERT_TRUE(elsewhere->Assign("phone-7", {"8"}, false, kNow).ok());
  EXPECT_THAT(**authority_->Owners(), testing::ElementsAre(testing::Pair("8", "phone-7")));
  ASSERT_TRUE(elsewhere->Revoke("phone-7", "lost", kNow).ok());
  EXPECT_TRUE((*authority_->Owners())->empty());
}

TEST_F(AuthorityTest, TakesAnInviteOnceButAgainForTheSameKey) {
  const Invite invite = InviteFor("phone-7");
  const Certificate lost = *Enrol(invite, key_);  // suppose that the answer was lost
  const auto again = Enrol(invite, key_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Identify(*again).ok());
  const auto thief = Enrol(invite, *PrivateKey::Generate());
  EXPECT_TRUE(absl::IsUnauthenticated(thief.status()));
  EXPECT_THAT(thief.status().message(), HasSubstr("was used already, with another key"));
}

TEST_F(AuthorityTest, RefusesAnInviteThatIsLateReplacedOrMadeUp) {
  const Invite late = InviteFor("late");
  EXPECT_THAT(Enrol(late, key_, kNow + kInviteLifetime).status().message(), HasSubstr("run out"));
  const Invite first = InviteFor("twice"), second = InviteFor("twice");
  EXPECT_THAT(Enrol(first, key_).status().message(), HasSubstr("not known here"));
  EXPECT_TRUE(Enrol(second, key_).ok());
  Invite made_up = second;
  made_up.secret[0] ^= 1;
  EXPECT_TRUE(absl::IsUnauthenticated(Enrol(made_up, key_).status()));
}

TEST_F(AuthorityTest, RevocationBitesAtOnceAlsoFromAnotherProcess) {
  const Certificate certificate = *Enrol(InviteFor("phone-7"), key_);
  ASSERT_TRUE(Identify(certificate).ok());
  const auto other = *Authority::Open(folder_.path());
  ASSERT_TRUE(other->Revoke("phone-7", "lost in a bus", kNow).ok());
  const absl::Status status = Identify(certificate);
  EXPECT_TRUE(absl::IsUnauthenticated(status));
  EXPECT_THAT(status.message(), HasSubstr("was revoked: lost in a bus"));
  EXPECT_TRUE(
      absl::IsUnauthenticated(authority_->Renew(certificate, *MakeRequest(key_), kNow).status()));
  EXPECT_TRUE(absl::IsNotFound(other->Revoke("nobody", "", kNow)));
  // A new invite lets it in again, with a certificate of its own.
  const Certificate later = *Enrol(InviteFor("phone-7"), key_);
  EXPECT_TRUE(Identify(later).ok());
  EXPECT_FALSE(Identify(certificate).ok());
}

TEST_F(AuthorityTest, ANodeThatEnrolsAgainPutsItsOldCertificateOutOfUse) {
  const Certificate old = *Enrol(InviteFor("phone-7"), key_);
  const Invite invite = InviteFor("phone-7");
  EXPECT_TRUE(Identify(old).ok());  // until the invite is used
  ASSERT_TRUE(Enrol(invite, *PrivateKey::Generate()).ok());
  EXPECT_THAT(Identify(old).message(), HasSubstr("has enrolled again"));
}

TEST_F(AuthorityTest, AnInviteChangesNothingBeforeItIsUsed) {
  const Certificate device = *Enrol(InviteFor("phone-7"), key_);
  NewNode as_operator;
  as_operator.grant.subject.role = Role::kOperator;
  const Invite invite = InviteFor("phone-7", as_operator);
  EXPECT_EQ((*authority_->Identify(device.Pem(), kNow))->subject.role, Role::kDevice);
  const absl::Time due = kNow + 3 * kNodeLifetime / 4;
  EXPECT_EQ(authority_->Renew(device, *MakeRequest(key_), due)->subject().role, Role::kDevice);
  EXPECT_EQ(Enrol(invite, key_)->subject().role, Role::kOperator);
}

TEST_F(AuthorityTest, GivesANodeOtherClientsWithoutANewCertificate) {
  const Certificate device = *Enrol(InviteFor("phone-7"), key_);
  ASSERT_TRUE(authority_->Assign("phone-7", {"a", "b"}, false, kNow).ok());
  EXPECT_THAT((*authority_->Identify(device.Pem(), kNow))->owns, testing::ElementsAre("a", "b"));
  ASSERT_TRUE(authority_->Assign("phone-7", {}, true, kNow).ok());
  EXPECT_TRUE((*authority_->Identify(device.Pem(), kNow))->owns_any);
  EXPECT_TRUE(absl::IsNotFound(authority_->Assign("nobody", {}, true, kNow)));
}

TEST_F(AuthorityTest, RenewsWithoutPuttingThePresentCertificateOutOfUse) {
  const Certificate first = *Enrol(InviteFor("phone-7"), key_);
  EXPECT_FALSE(IsDue(first, kNow + kNodeLifetime / 2));
  const absl::Time later = kNow + 3 * kNodeLifetime / 4;
  EXPECT_TRUE(IsDue(first, later));
  const auto second = authority_->Renew(first, *MakeRequest(key_), later);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(Identify(first, later).ok());
  EXPECT_TRUE(Identify(*second, later + kNodeLifetime / 2).ok());
  EXPECT_THAT(Identify(first, kNow + kNodeLifetime).message(), HasSubstr("renew it"));
}

TEST_F(AuthorityTest, RenewsForAWhileAfterTheEnd) {
  const Certificate certificate = *Enrol(InviteFor("phone-7"), key_);
  const auto may = [&](const Certificate& shown, absl::Time now) {
    return authority_->CheckMayRenew(shown.Pem(), now);
  };
  const absl::Time end = certificate.validity().until, later = end + absl::Hours(24 * 60);
  EXPECT_FALSE(Identify(certificate, later).ok());
  EXPECT_TRUE(may(certificate, kNow).ok());
  EXPECT_TRUE(may(certificate, later).ok());
  EXPECT_THAT(may(certificate, end + kRenewalGrace).message(), HasSubstr("was valid until"));
  const auto renewed = authority_->Renew(certificate, *MakeRequest(key_), later);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_TRUE(Identify(*renewed, later).ok());
  ASSERT_TRUE(authority_->Revoke("phone-7", "stolen", later).ok());
  for (const Certificate& shown : {certificate, *renewed})
    EXPECT_THAT(may(shown, later).message(), HasSubstr("was revoked: stolen"));
}

// The backup is older than the renewal.
TEST_F(AuthorityTest, RenewsWhatARestoredRegistryDoesNotKnow) {
  const Certificate first = *Enrol(InviteFor("phone-7"), key_);
  const std::string path = folder_ / "registry.jsonl", backup = *ReadFile(path);
  const absl::Time later = kNow + 3 * kNodeLifetime / 4;
  const Certificate second = *authority_->Renew(first, *MakeRequest(key_), later);
  ASSERT_TRUE(AtomicWriteFile(path, backup).ok());
  EXPECT_THAT(Identify(second, later).message(), HasSubstr("is not in the registry"));
  ASSERT_TRUE(authority_->CheckMayRenew(second.Pem(), later).ok());
  const absl::Time then = later + absl::Hours(1);
  const auto third = authority_->Renew(second, *MakeRequest(key_), then);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE(Identify(*third, then).ok());
  // Once is enough, and only for the key that enrolled.
  EXPECT_FALSE(authority_->Renew(second, *MakeRequest(key_), then + absl::Seconds(1)).ok());
  const PrivateKey other = *PrivateKey::Generate();
  ASSERT_TRUE(Enrol(InviteFor("phone-7"), other).ok());
  EXPECT_FALSE(authority_->CheckMayRenew(second.Pem(), then).ok());
}

// Each is a line of the registry for good.
TEST_F(AuthorityTest, RenewsWhatIsDueAndNotAgainAndAgain) {
  const Certificate first = *Enrol(InviteFor("phone-7"), key_);
  const std::string request = *MakeRequest(key_);
  const absl::Status early = authority_->Renew(first, request, kNow).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(early)) << early;
  const absl::Time later = kNow + 3 * kNodeLifetime / 4;
  const auto second = authority_->Renew(first, request, later);
  ASSERT_TRUE(second.ok()) << second.status();
  const std::string before = *ReadFile(folder_ / "registry.jsonl");
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(
        absl::IsUnavailable(authority_->Renew(first, request, later + absl::Seconds(i)).status()));
  }
  EXPECT_EQ(*ReadFile(folder_ / "registry.jsonl"), before);
  // An answer that was lost is given later, and the new certificate has its own time.
  EXPECT_TRUE(authority_->Renew(first, request, later + kNodeLifetime / 50).ok());
  EXPECT_TRUE(authority_->Renew(*second, request, later + 3 * kNodeLifetime / 4).ok());
}

TEST_F(AuthorityTest, SeesARegistryThatWasPutInThePlaceOfTheFirst) {
  const Certificate certificate = *Enrol(InviteFor("phone-7"), key_);
  const std::string path = folder_ / "registry.jsonl", earlier = *ReadFile(path);
  const uint64_t changes = authority_->Changes();
  {
    const auto other = *Authority::Open(folder_.path());
    ASSERT_TRUE(other->Revoke("phone-7", "lost in a bus", kNow).ok());
    ASSERT_TRUE(AtomicWriteFile(path, *ReadFile(path)).ok());  // another inode, the same text
  }
  EXPECT_THAT(Identify(certificate).message(), HasSubstr("was revoked"));
  EXPECT_NE(authority_->Changes(), changes);
  ASSERT_TRUE(AtomicWriteFile(path, earlier).ok());  // put back from a copy
  EXPECT_TRUE(Identify(certificate).ok());
  ASSERT_TRUE(authority_->Revoke("phone-7", "again", kNow).ok());
  EXPECT_THAT(*ReadFile(path), HasSubstr("again"));
}

TEST_F(AuthorityTest, WaitsForARegistryThatIsWrittenOverInPlace) {
  const Certificate certificate = *Enrol(InviteFor("phone-7"), key_);
  const std::string path = folder_ / "registry.jsonl", earlier = *ReadFile(path);
  ASSERT_TRUE(authority_->Revoke("phone-7", "lost in a bus", kNow).ok());
  std::ofstream file(path, std::ios::trunc);  // the same inode, as cp does
  EXPECT_TRUE(absl::IsUnavailable(Identify(certificate)));
  // The half of it ends with a line, and without the certificate.
  const size_t half = earlier.find('\n') + 1;
  file << earlier.substr(0, half) << std::flush;
  EXPECT_TRUE(absl::IsUnavailable(Identify(certificate)));
  file << earlier.substr(half) << std::flush;
  absl::Status status = Identify(certificate);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  while (absl::IsUnavailable(status)) status = Identify(certificate);
  EXPECT_TRUE(status.ok()) << status;
}

// The signed head is a pipe here, so Open waits in the middle until another process has entered a
// line and signed it.
TEST_F(AuthorityTest, OpensWhileAnotherProcessEntersALine) {
  InviteFor("first");
  const std::string head = folder_ / "registry.jsonl.head";
  std::filesystem::remove(head);
  ASSERT_EQ(::mkfifo(head.c_str(), 0600), 0);
  auto opened =
      std::async(std::launch::async, [this] { return Authority::Open(folder_.path()).status(); });
  Fd pipe(::open(head.c_str(), O_WRONLY | O_CLOEXEC));  // once Open reads it
  InviteFor("second");                                  // writes a new head in its place
  ASSERT_TRUE(WriteAll(pipe, BytesOf(*ReadFile(head))));
  pipe.Close();
  const absl::Status status = opened.get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(AuthorityTest, SaysWhatTheBearerOfARefusedCertificateHasProven) {
  const Certificate certificate = *Enrol(InviteFor("phone-7"), key_);
  EXPECT_EQ(StandingOf(Identify(certificate, kNow + absl::Hours(24 * 365))), Standing::kKnown);
  ASSERT_TRUE(authority_->Revoke("phone-7", "lost in a bus", kNow).ok());
  EXPECT_EQ(StandingOf(Identify(certificate)), Standing::kBanned);
  const Certificate made_up = *MakeAuthorityCertificate(
      *PrivateKey::Generate(), "phone-7", {kNow - absl::Hours(1), kNow + absl::Hours(1)});
  for (int i = 0; i < 2; ++i) {  // the second time it is remembered
    const absl::Status status = Identify(made_up);
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_EQ(StandingOf(status), Standing::kStranger);
  }
}

TEST_F(AuthorityTest, ChangesNoFileOfANodeAndNoneOfTheServerWhenItTakesInAnother) {
  const std::string before =
      *ReadFile(folder_ / "server.crt") + *ReadFile(folder_ / "authority.crt");
  const Certificate first = *Enrol(InviteFor("a"), key_);
  ASSERT_TRUE(Enrol(InviteFor("b"), *PrivateKey::Generate()).ok());
  EXPECT_TRUE(Identify(first).ok());
  EXPECT_EQ(*ReadFile(folder_ / "server.crt") + *ReadFile(folder_ / "authority.crt"), before);
}

TEST_F(AuthorityTest, RenewsTheServersCertificateWhenItIsDue) {
  EXPECT_FALSE(*authority_->RenewServer(kNow));
  const absl::Time later = kNow + 3 * kServerLifetime / 4;
  EXPECT_TRUE(*authority_->RenewServer(later));
  EXPECT_FALSE(*authority_->RenewServer(later));
  const auto server = ReadIdentity(authority_->server_files());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Verify(server->certificate, authority_->certificate(), Side::kServer, later).ok());
}

TEST_F(AuthorityTest, IsNotMadeOverAnotherOne) {
  EXPECT_TRUE(absl::IsAlreadyExists(Authority::Create(folder_.path(), "again", kNow)));
  EXPECT_TRUE(authority_->Identify(Enrol(InviteFor("a"), key_)->Pem(), kNow).ok());
  EXPECT_THAT(Authority::Open(folder_ / "nothing").status().message(),
              HasSubstr("macaw pki init --dir"));
}

TEST_F(AuthorityTest, KeepsNoSecretOfAnInvite) {
  const Invite invite = InviteFor("a");
  const std::string registry = *ReadFile(folder_ / "registry.jsonl");
  EXPECT_EQ(registry.find(invite.Code()), std::string::npos);
  EXPECT_THAT(registry, HasSubstr(invite.SecretDigest().Hex()));
}

TEST_F(AuthorityTest, InvitesNoServerAndNoNonsense) {
  NewNode node;
  node.grant.subject = {"x", Role::kServer};
  EXPECT_FALSE(authority_->InviteNode(node, kNow).ok());
  node.grant.subject = {"../x", Role::kDevice};
  EXPECT_FALSE(authority_->InviteNode(node, kNow).ok());
  node.grant.subject = {"x", Role::kDevice};
  node.lifetime = absl::Seconds(1);
  EXPECT_FALSE(authority_->InviteNode(node, kNow).ok());
}

}  // namespace
}  // namespace macaw::identity
