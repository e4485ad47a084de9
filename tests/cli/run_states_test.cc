#include "cli/simulate/run_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/simulate/owners.h"
#include "core/files.h"
#include "core/random.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

// On the disk, and nothing that it could compress.
void WriteStates(const std::string& folder, size_t bytes) {
  RandomStream random({.seed = 5});
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random.Below(256));
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(AtomicWriteFile(folder + "/0.states", text).ok());
}

TEST(RoomOfStates, CountsWhatOwnersKeep) {
  const testing_support::TemporaryFolder folder;
  const std::string run = folder / "run";
  Config config;
  config.node.state.store = "disk";
  WriteStates(run + "/state", 20'000);
  const auto room = [&] { return *RoomOfStates(config, run); };
  EXPECT_THAT(room(), testing::EndsWith(" kB in " + run + "/state/"));
  config.node.workers.owners = 3;
  WriteStates(OwnerFolder(run, 0) + "/state", 2'000'000);
  WriteStates(OwnerFolder(run, 2) + "/state", 2'000'000);
  EXPECT_THAT(room(),
              testing::MatchesRegex("4[.0-9]* MB in " + run + "/state/ and " + run + "/owners/"));
  std::filesystem::remove_all(run + "/state");
  EXPECT_THAT(room(), testing::MatchesRegex("4[.0-9]* MB in " + run + "/owners/"));
}

}  // namespace
}  // namespace macaw::cli
