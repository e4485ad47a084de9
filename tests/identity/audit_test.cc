#include "identity/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/files.h"
#include "identity/certificate.h"
#include "identity/signed_head.h"
#include "testing/temporary_folder.h"
#include "tests/identity/now.h"

namespace macaw::identity {
namespace {

using fixtures::kNow;

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

Refusal Known(const std::string& who, const std::string& call = "/Lease") {
  return {Standing::kKnown, who, "10.0.0.1", call, "no"};
}

TEST_F(AuditTest, WritesWhoWasRefusedWhatAndWhy) {
  (*Audit::Open(path_))
      ->Refused({Standing::kBanned, "phone-7", "10.0.0.1", "/Lease", "was revoked: lost"}, kNow);
  const auto entries = Written();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].what, "refused");
  EXPECT_EQ(entries[0].details.at("who"), "phone-7");
  EXPECT_EQ(entries[0].details.at("why"), "was revoked: lost");
  EXPECT_EQ(entries[0].time, kNow);
}

TEST_F(AuditTest, WritesARefusalOnceAMinuteWithHowOftenItCame) {
  auto audit = *Audit::Open(path_);
  for (int i = 0; i < 100; ++i) audit->Refused(Known("a"), kNow);
  audit->Refused(Known("a"), kNow + absl::Minutes(1));
  audit->Refused(Known("b"), kNow + absl::Minutes(1));
  audit.reset();  // writes all of it
  std::vector<std::string> times;
  for (const LogEntry& entry : Written()) times.push_back(entry.details.at("times"));
  EXPECT_THAT(times, testing::ElementsAre("1", "99", "1", "1"));
}

TEST_F(AuditTest, GoesOnAfterTheClockWasSetBack) {
  auto audit = *Audit::Open(path_);
  const absl::Time earlier = kNow - absl::Hours(24 * 40);
  for (int i = 0; i < 3; ++i) audit->Refused(Known("a"), kNow);
  for (int i = 0; i < 3; ++i) audit->Refused(Known("a"), earlier);
  audit->Refused(Known("b"), kNow - absl::Seconds(1));
  audit.reset();
  std::vector<std::string> times;
  for (const LogEntry& entry : Written()) times.push_back(entry.details.at("times"));
  EXPECT_THAT(times, testing::ElementsAre("1", "2", "1", "2", "1"));
}

// Calls that come at once may come in another order than their times.
TEST_F(AuditTest, ACallThatComesAMomentLateBeginsNoMinute) {
  auto audit = *Audit::Open(path_);
  for (int i = 0; i < 10; ++i) audit->Refused(Known("a"), kNow - absl::Milliseconds(i));
  audit.reset();
  std::vector<std::string> times;
  for (const LogEntry& entry : Written()) times.push_back(entry.details.at("times"));
  EXPECT_THAT(times, testing::ElementsAre("1", "9"));
}

TEST_F(AuditTest, AStrangersNameIsOnlyClaimed) {
  (*Audit::Open(path_))->Refused({.who = "phone-7", .why = "not from the authority"}, kNow);
  EXPECT_EQ(Written()[0].details.at("claims"), "phone-7");
  EXPECT_FALSE(Written()[0].details.contains("who"));
}

// What a stranger chooses: name, address, call, and the names and numbers in the reason.
TEST_F(AuditTest, StrangersHideNobody) {
  auto audit = *Audit::Open(path_);
  for (int i = 0; i < 3000; ++i) {
    audit->Refused({.who = absl::StrCat("phone-", i),
                    .from = absl::StrCat("10.0.0.", i),
                    .call = absl::StrCat("/", i),
                    .why = absl::StrCat("the certificate of device \"", i, "\" is not from …")},
                   kNow);
    // Reasons of which there are too many are one line together.
    audit->Refused({.why = std::string(static_cast<size_t>(i % 60), 'x')}, kNow);
  }
  audit->Refused(Known("phone-8"), kNow);
  audit->Refused({Standing::kBanned, "thief", "", "/Lease", "was revoked"}, kNow);
  audit.reset();
  std::vector<std::string> who;
  size_t lines = 0;
  for (const LogEntry& entry : Written()) {
    ++lines;
    if (entry.details.contains("who")) who.push_back(entry.details.at("who"));
  }
  EXPECT_THAT(who, testing::ElementsAre("phone-8", "thief"));
  EXPECT_LE(lines, 2 * (Audit::kMostOfStrangers + 1) + 2);
}

TEST_F(AuditTest, ANodeFillsItsOwnBudgetAlone) {
  auto audit = *Audit::Open(path_);
  for (int i = 0; i < 1000; ++i) {
    audit->Refused(Known("loud", absl::StrCat("/", i)), kNow);
    audit->Refused({Standing::kBanned, "loud", "", absl::StrCat("/", i), "another's"}, kNow);
  }
  audit->Refused(Known("quiet"), kNow);
  audit.reset();
  const auto entries = Written();
  EXPECT_LE(entries.size(), 2 * (Audit::kMostOfNode + Audit::kMostOfBanned + 2) + 1);
  EXPECT_THAT(entries, testing::Contains(testing::Field(
                           &LogEntry::details,
                           testing::Contains(testing::Pair(std::string("who"), "quiet")))));
}

TEST_F(AuditTest, KeepsSoManyFilesOfASize) {
  auto audit = *Audit::Open(path_, {.most_bytes = 2000});
  for (int i = 0; i < 400; ++i) audit->Refused(Known(absl::StrCat("node-", i)), kNow);
  audit.reset();
  uint64_t bytes = 0;
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    bytes += file.file_size();
    ++files;
  }
  EXPECT_EQ(files, Audit::kFiles);
  EXPECT_LT(bytes, Audit::kFiles * 2500u);
  // A file says which one it follows, and the newest refusal is in the newest file.
  EXPECT_EQ(Written().front().what, "goes_on");
  EXPECT_EQ(Written().back().details.at("who"), "node-399");
}

TEST_F(AuditTest, TwoProcessesBeginOneNewFile) {
  auto first = *Audit::Open(path_, {.most_bytes = 2000});
  auto second = *Audit::Open(path_, {.most_bytes = 2000});
  for (int i = 0; i < 30; ++i) {
    first->Refused(Known(absl::StrCat("a-", i)), kNow);
    second->Refused(Known(absl::StrCat("b-", i)), kNow);
  }
  first.reset();
  second.reset();
  size_t refused = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    ChainedLog log = *ChainedLog::Open(file.path());
    EXPECT_TRUE(log.ReadOn([&](const LogEntry& e) {
                     refused += e.what == "refused" ? 1 : 0;
                     return absl::OkStatus();
                   })
                    .ok());
    // The newest may be small; a file that is no longer written to is full.
    if (file.path() != path_) {
      EXPECT_GT(file.file_size(), 2000u) << file.path();
    }
  }
  EXPECT_EQ(refused, 60u);
}

TEST_F(AuditTest, KeepsItsFilesWhileNoNewOneCanBeOpened) {
  auto audit = *Audit::Open(path_, {.most_bytes = 500});
  const auto refuse = [&](const std::string& who) {
    audit->Refused(Known(who), kNow);
    audit.reset();  // writes it
    audit = *Audit::Open(path_, {.most_bytes = 500});
  };
  for (int i = 0; i < 10; ++i) refuse(absl::StrCat("a-", i));
  const std::string older = *ReadFile(folder_ / "audit.1.jsonl");
  ASSERT_TRUE(std::filesystem::create_directory(path_ + ".next"));  // in the way
  for (int i = 0; i < 10; ++i) refuse(absl::StrCat("b-", i));
  EXPECT_EQ(*ReadFile(folder_ / "audit.1.jsonl"), older);
  EXPECT_EQ(Written().back().details.at("who"), "b-9");
}

TEST_F(AuditTest, TheSignedHeadIsThatOfTheLastLine) {
  const PrivateKey key = *PrivateKey::Generate();
  const Certificate authority =
      *MakeAuthorityCertificate(key, "test", {kNow, kNow + absl::Hours(1)});
  (*Audit::Open(path_, {.key = &key}))->Refused(Known("a"), kNow);
  const auto head = ReadSignedHead(path_, authority);
  ASSERT_TRUE(head.ok()) << head.status();
  ASSERT_TRUE(head->has_value());
  EXPECT_EQ((*head)->lines, 1u);
  EXPECT_EQ((*head)->head, Written()[0].line);
  // Another authority's, another log's, and another number are not believed.
  const Certificate other =
      *MakeAuthorityCertificate(*PrivateKey::Generate(), "other", {kNow, kNow + absl::Hours(1)});
  EXPECT_TRUE(absl::IsDataLoss(ReadSignedHead(path_, other).status()));
  const std::string text = *ReadFile(path_ + kHeadSuffix);
  folder_.Write("registry.jsonl.head", text);
  EXPECT_TRUE(absl::IsDataLoss(ReadSignedHead(folder_ / "registry.jsonl", authority).status()));
  folder_.Write("audit.jsonl.head", absl::StrReplaceAll(text, {{"\"lines\":1", "\"lines\":0"}}));
  EXPECT_TRUE(absl::IsDataLoss(ReadSignedHead(path_, authority).status()));
}

}  // namespace
}  // namespace macaw::identity
