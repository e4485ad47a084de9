#include "identity/chained_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/identity/now.h"

namespace macaw::identity {
namespace {

using fixtures::kNow;
using testing::ElementsAre;
using testing::HasSubstr;

class ChainedLogTest : public testing::Test {
 protected:
  ChainedLog Open() { return *ChainedLog::Open(path_); }
  absl::Status Add(ChainedLog& log, const std::string& what) {
    return log.Append(
        [this](const LogEntry& entry) { return seen_.push_back(entry.what), absl::OkStatus(); },
        [&] {
          return LogEntry{.time = kNow, .what = what, .details = {{"who", "a \"b\"\n"}}};
        });
  }
  // What is in the file, or the error of reading it.
  static absl::StatusOr<std::vector<LogEntry>> Read(const std::string& path) {
    auto log = ChainedLog::Open(path);
    if (!log.ok()) return log.status();
    std::vector<LogEntry> entries;
    const absl::Status status = log->ReadOn(
        [&](const LogEntry& entry) { return entries.push_back(entry), absl::OkStatus(); });
    if (!status.ok()) return status;
    return entries;
  }

  testing_support::TemporaryFolder folder_;
  std::string path_ = folder_ / "log.jsonl";
  std::vector<std::string> seen_;
};

TEST_F(ChainedLogTest, KeepsWhatWasAdded) {
  ChainedLog log = Open();
  ASSERT_TRUE(Add(log, "one").ok());
  ASSERT_TRUE(Add(log, "two").ok());
  EXPECT_THAT(seen_, ElementsAre("one", "two"));
  const auto entries = Read(path_);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[1].number, 2u);
  EXPECT_EQ((*entries)[1].time, kNow);
  EXPECT_EQ((*entries)[1].details.at("who"), "a \"b\"\n");
}

TEST_F(ChainedLogTest, IsOneChainForSeveralWriters) {
  ChainedLog first = Open(), second = Open();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Add(first, "first").ok());
    ASSERT_TRUE(Add(second, "second").ok());
  }
  // Each saw what the other one had added before it.
  EXPECT_EQ(first.lines() + 1, second.lines());
  EXPECT_EQ(Read(path_)->size(), 6u);
}

TEST_F(ChainedLogTest, NoticesALineThatWasChangedTakenOutOrPutIn) {
  ChainedLog log = Open();
  for (const char* what : {"one", "two", "three"}) ASSERT_TRUE(Add(log, what).ok());
  const std::string text = *ReadFile(path_);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const auto broken = [&](const std::string& changed, absl::string_view where) {
    const std::string path = folder_.Write("changed.jsonl", changed);
    const auto entries = Read(path);
    EXPECT_TRUE(absl::IsDataLoss(entries.status())) << changed;
    EXPECT_THAT(entries.status().message(), HasSubstr(where));
  };
  broken(absl::StrReplaceAll(text, {{"\"two\"", "\"too\""}}), "line 3");
  broken(lines[0] + "\n" + lines[2] + "\n", "line 2");
  broken(lines[1] + "\n" + lines[2] + "\n", "line 1");
  broken(lines[0] + "\n" + lines[0] + "\n", "line 2");
  broken(lines[0] + "\nnonsense\n", "line 2");
  // Lines cut off the end show in the head alone.
  const std::string cut = folder_.Write("cut.jsonl", lines[0] + "\n");
  ChainedLog shorter = *ChainedLog::Open(cut);
  ASSERT_TRUE(shorter.ReadOn([](const LogEntry&) { return absl::OkStatus(); }).ok());
  EXPECT_NE(shorter.head(), log.head());
}

TEST_F(ChainedLogTest, GoesOnBehindALineThatACrashLeftIncomplete) {
  {
    ChainedLog log = Open();
    ASSERT_TRUE(Add(log, "one").ok());
  }
  std::ofstream(path_, std::ios::app) << "{\"n\":2,\"ti";
  ChainedLog log = Open();
  ASSERT_TRUE(Add(log, "two").ok());
  EXPECT_EQ(Read(path_)->size(), 2u);
}

TEST_F(ChainedLogTest, AddsNothingWhenTheCallerDecidesSoAtTheLastMoment) {
  ChainedLog log = Open();
  const auto nothing = [](const LogEntry&) { return absl::OkStatus(); };
  EXPECT_TRUE(absl::IsNotFound(
      log.Append(nothing, []() -> absl::StatusOr<LogEntry> { return absl::NotFoundError("no"); })));
  EXPECT_EQ(*FileSize(path_), 0u);
}

}  // namespace
}  // namespace macaw::identity
