// Who runs in a folder, as others see it.
#include "cli/process/lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

TEST(LookAtLock, TellsAProcessThatHoldsTheFolderFromNone) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EQ(LookAtLock(folder.path()), FolderLock::kFree) << "a copy has no lock file";
  EXPECT_FALSE(std::filesystem::exists(folder / ".lock")) << "looking makes none";
  {
    const absl::StatusOr<Fd> held = LockFolder(folder.path());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(LookAtLock(folder.path()), FolderLock::kHeld);
    // Another user may read it.
    std::filesystem::permissions(folder / ".lock", std::filesystem::perms(0444));
    EXPECT_EQ(LookAtLock(folder.path()), FolderLock::kHeld);
  }
  EXPECT_EQ(LookAtLock(folder.path()), FolderLock::kFree);
  std::filesystem::permissions(folder / ".lock", std::filesystem::perms(0644));
  EXPECT_TRUE(LockFolder(folder.path()).ok()) << "looking does not take it";
}

TEST(LookAtLock, SaysWhenNobodyCanTell) {
  const testing_support::TemporaryFolder folder;
  std::filesystem::create_symlink(".lock", folder / ".lock");  // cannot be opened, by root either
  EXPECT_EQ(LookAtLock(folder.path()), FolderLock::kUnknown);
  EXPECT_THAT(UnknownLock(folder.path()).message(),
              testing::HasSubstr(absl::StrCat(folder / ".lock", " cannot be opened or locked: ",
                                              std::strerror(ELOOP), "; run this command as")));
}

}  // namespace
}  // namespace macaw::cli
