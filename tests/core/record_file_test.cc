#include "core/record_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/digest.h"
#include "core/files.h"
#include "testing/file_limit.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

TEST(RecordFile, AppendsThePiecesOfARecordOneBehindTheOther) {
  const testing_support::TemporaryFolder folder;
  RecordFile file = *RecordFile::Open(folder / "log", 0);
  ASSERT_TRUE(file.Append({BytesOf("he"), BytesOf(""), BytesOf("ad")}).ok());
  ASSERT_TRUE(file.Append({BytesOf("tail")}).ok());
  EXPECT_EQ(file.end(), 8u);
  EXPECT_TRUE(file.Sync().ok());
  EXPECT_EQ(*ReadFile(folder / "log"), "headtail");
}

TEST(RecordFile, CutsOffWhatFollowsTheEnd) {
  const testing_support::TemporaryFolder folder;
  ASSERT_TRUE(AtomicWriteFile(folder / "log", "whole, torn").ok());
  RecordFile file = *RecordFile::Open(folder / "log", 6);
  EXPECT_EQ(*ReadFile(folder / "log"), "whole,");
  ASSERT_TRUE(file.Append({BytesOf("!")}).ok());
  EXPECT_EQ(*ReadFile(folder / "log"), "whole,!");
}

TEST(RecordFile, AddsNothingIfARecordCannotBeWrittenWhole) {
  const testing_support::TemporaryFolder folder;
  RecordFile file = *RecordFile::Open(folder / "log", 0);
  ASSERT_TRUE(file.Append({BytesOf("first ")}).ok());
  {
    const testing_support::FileLimit full(9);
    const absl::Status status = file.Append({BytesOf("sec"), BytesOf("ond ")});
    EXPECT_NE(status.message().find(folder / "log"), status.message().npos) << status;
    EXPECT_EQ(*ReadFile(folder / "log"), "first ");
  }
  ASSERT_TRUE(file.Append({BytesOf("third")}).ok());
  EXPECT_EQ(*ReadFile(folder / "log"), "first third");
}

TEST(RecordFile, IsCreatedWithItsPermissions) {
  const testing_support::TemporaryFolder folder;
  ASSERT_TRUE(RecordFile::Open(folder / "secret", 0, 0600).ok());
  const auto permissions = std::filesystem::status(folder / "secret").permissions();
  EXPECT_EQ(permissions, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(RecordFile::Open(folder / "no/such", 0).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace macaw
