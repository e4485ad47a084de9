#include "state/sync_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "testing/temporary_folder.h"

namespace macaw::state {
namespace {

using testing_support::TemporaryFolder;

TEST(SyncFolder, AcceptsMissingFoldersAndFilesThatDisappear) {
  const TemporaryFolder folder;
  EXPECT_TRUE(SyncFolder(folder.path()).ok());
  folder.Write("1-0.states", "states");
  folder.Write("appendonlydir/appendonly.aof.1.incr.aof", "commands");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  const absl::Status status = SyncFolder(folder.path());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SyncFolder(folder / "not yet").ok());
}

TEST(SyncFolder, SaysWhatItCannotSync) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "");
  EXPECT_THAT(std::string(SyncFolder(file + "/states").message()), testing::HasSubstr(file));
}

}  // namespace
}  // namespace macaw::state
