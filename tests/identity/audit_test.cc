#include "identity/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"

namespace macaw::identity {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

class AuditTest : public testing::Test {
 protected:
  std::vector<LogEntry> Written() {
    ChainedLog log = *ChainedLog::Open(path_);
    std::vector<LogEntry> entries;
    EXPECT_TRUE(
        log.ReadOn([&](const LogEntry& e) { return entries.push_back(e), absl::OkStatus(); }).ok());
    return entries;
  }
  testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_ / "audit.jsonl";
};

TEST_F(AuditTest, WritesWhoWasRefusedWhatAndWhy) {
  (*Audit::Open(path_))->Refused({"phone-7", "ipv4:10.0.0.1:5", "/Lease", "revoked"}, kNow);
  const auto entries = Written();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].what, "refused");
  EXPECT_EQ(entries[0].details.at("who"), "phone-7");
  EXPECT_EQ(entries[0].details.at("why"), "revoked");
  EXPECT_EQ(entries[0].time, kNow);
}

TEST_F(AuditTest, WritesARefusalOnceAMinuteWithHowOftenItCame) {
  auto audit = *Audit::Open(path_);
  for (int i = 0; i < 100; ++i) audit->Refused({"a", "", "/Lease", "revoked"}, kNow);
  audit->Refused({"a", "", "/Lease", "revoked"}, kNow + absl::Minutes(1));
  audit->Refused({"b", "", "/Lease", "revoked"}, kNow + absl::Minutes(1));
  audit.reset();  // writes all of it
  std::vector<std::string> times;
  for (const LogEntry& entry : Written()) times.push_back(entry.details.at("times"));
  EXPECT_THAT(times, testing::ElementsAre("1", "99", "1", "1"));
}

TEST_F(AuditTest, TellsAMostNumberOfKindsApart) {
  auto audit = *Audit::Open(path_);
  for (size_t i = 0; i < 3 * Audit::kMostKinds; ++i)
    audit->Refused({absl::StrCat("guess-", i), "", "/Lease", "no"}, kNow);
  audit->Refused({"last", "", "/Lease", "no"}, kNow + absl::Minutes(1));
  audit.reset();
  const auto entries = Written();
  ASSERT_EQ(entries.size(), Audit::kMostKinds + 2);
  EXPECT_EQ(entries[Audit::kMostKinds].details.at("times"), absl::StrCat(2 * Audit::kMostKinds));
}

}  // namespace
}  // namespace macaw::identity
