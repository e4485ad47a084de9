#include "identity/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/node_files.h"
#include "identity/verify.h"
#include "testing/temporary_folder.h"
#include "tests/identity/now.h"

namespace macaw::identity {
namespace {

using fixtures::kNow;
using testing::HasSubstr;

const Validity kADay = {kNow, kNow + absl::Hours(24)};

struct TestAuthority {
  explicit TestAuthority(const std::string& name)
      : key(*PrivateKey::Generate()), certificate(*MakeAuthorityCertificate(key, name, kADay)) {}
  Certificate Certify(const Subject& subject, const Validity& validity = kADay) const {
    return *Issue({key, certificate}, *MakeRequest(*PrivateKey::Generate()), subject, validity);
  }
  PrivateKey key;
  Certificate certificate;
};

TEST(Certificate, SaysWhoseItIsAndWhenItIsValid) {
  const TestAuthority authority("fleet");
  const Certificate made = authority.Certify({"phone-7", Role::kDevice});
  const auto read = Certificate::FromPem(made.Pem());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->subject(), (Subject{"phone-7", Role::kDevice}));
  EXPECT_EQ(read->validity().from, kADay.from);
  EXPECT_EQ(read->validity().until, kADay.until);
  EXPECT_EQ(read->serial(), made.serial());
  EXPECT_EQ(read->serial().size(), 32u);
  EXPECT_NE(read->serial(), authority.Certify({"phone-7", Role::kDevice}).serial());
  EXPECT_EQ(read->Fingerprint(), made.Fingerprint());
}

TEST(Certificate, IsVerifiedForItsSideOfAConnectionAlone) {
  const TestAuthority authority("fleet");
  for (const Role role : {Role::kDevice, Role::kWorker, Role::kOperator}) {
    const Certificate certificate = authority.Certify({"a", role});
    EXPECT_TRUE(Verify(certificate, authority.certificate, Side::kClient, kNow).ok());
    EXPECT_TRUE(
        absl::IsUnauthenticated(Verify(certificate, authority.certificate, Side::kServer, kNow)));
  }
  const Certificate server = authority.Certify({"server", Role::kServer});
  EXPECT_TRUE(Verify(server, authority.certificate, Side::kServer, kNow).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Verify(server, authority.certificate, Side::kClient, kNow)));
  // The authority itself is nobody's peer.
  EXPECT_FALSE(Verify(authority.certificate, authority.certificate, Side::kClient, kNow).ok());
}

TEST(Certificate, OfAnotherAuthorityOfTheSameNameIsNotBelieved) {
  const TestAuthority ours("fleet"), theirs("fleet");
  const absl::Status status =
      Verify(theirs.Certify({"phone-7", Role::kDevice}), ours.certificate, Side::kClient, kNow);
  EXPECT_TRUE(absl::IsUnauthenticated(status));
  EXPECT_THAT(status.message(),
              HasSubstr("device \"phone-7\" is not from the authority \"fleet\""));
}

TEST(Certificate, SignedWithACertificateThatMaySignNothingIsNotBelieved) {
  const TestAuthority authority("fleet");
  const PrivateKey key = *PrivateKey::Generate();
  const Certificate node = *Issue({authority.key, authority.certificate}, *MakeRequest(key),
                                  {"a", Role::kDevice}, kADay);
  const Certificate forged =
      *Issue({key, node}, *MakeRequest(*PrivateKey::Generate()), {"b", Role::kOperator}, kADay);
  EXPECT_TRUE(absl::IsUnauthenticated(Verify(forged, authority.certificate, Side::kClient, kNow)));
}

TEST(Certificate, OutOfItsTimeIsRefusedWithHowFarTheClockIsOff) {
  const TestAuthority authority("fleet");
  const Certificate certificate = authority.Certify({"phone-7", Role::kDevice});
  const auto at = [&](absl::Time now) {
    return std::string(Verify(certificate, authority.certificate, Side::kClient, now).message());
  };
  EXPECT_EQ(at(kADay.from), "");
  EXPECT_THAT(at(kADay.from - absl::Hours(72)), HasSubstr("the clock is off by 3 days or more"));
  EXPECT_THAT(at(kADay.from - absl::Minutes(5)), HasSubstr("off by 5m or more"));
  EXPECT_EQ(at(kADay.until - absl::Seconds(1)), "");
  EXPECT_THAT(at(kADay.until), HasSubstr("was valid until 2027-01-16 08:00 UTC"));
}

TEST(Certificate, IsNotSignedForARequestWhoseSenderLacksTheKey) {
  const TestAuthority authority("fleet");
  std::string request = *MakeRequest(*PrivateKey::Generate());
  // A letter near the end lies in the signature.
  char& letter = request[request.find("-----END") - 12];
  letter = letter == 'A' ? 'B' : 'A';
  const auto issued =
      Issue({authority.key, authority.certificate}, request, {"a", Role::kDevice}, kADay);
  EXPECT_FALSE(issued.ok());
  EXPECT_FALSE(
      Issue({authority.key, authority.certificate}, "no request", {"a", Role::kDevice}, kADay)
          .ok());
  EXPECT_THAT(Issue({authority.key, authority.certificate}, std::string(20'000, 'A'),
                    {"a", Role::kDevice}, kADay)
                  .status()
                  .message(),
              HasSubstr("larger than 16 kB"));
}

TEST(Certificate, HasANameThatMayStandInFilesAndLogs) {
  for (const char* name : {"phone-7", "a", "lab_3.example.org", "7"})
    EXPECT_TRUE(CheckName(name).ok()) << name;
  for (const std::string& name :
       {std::string(), std::string("-a"), std::string(".."), std::string("a b"), std::string("a/b"),
        std::string("a\nb"), std::string("ä"), std::string(65, 'a')})
    EXPECT_FALSE(CheckName(name).ok()) << name;
}

TEST(IdentityFiles, MustBelongTogether) {
  const testing_support::TemporaryFolder folder;
  const TestAuthority authority("fleet");
  const IdentityFiles files = IdentityFiles::In(folder.path());
  const PrivateKey key = *ReadOrMakeKey(files.key);
  folder.Write("authority.crt", authority.certificate.Pem());
  folder.Write("node.crt", authority.Certify({"a", Role::kDevice}).Pem());
  EXPECT_THAT(ReadIdentity(files).status().message(), HasSubstr("is not the certificate of"));
  const Certificate right = *Issue({authority.key, authority.certificate}, *MakeRequest(key),
                                   {"a", Role::kDevice}, kADay);
  folder.Write("node.crt", right.Pem());
  EXPECT_TRUE(ReadIdentity(files).ok());
  EXPECT_TRUE(right.IsOf(*ReadOrMakeKey(files.key)));  // the same key again
  EXPECT_EQ(std::filesystem::status(files.key).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace macaw::identity
