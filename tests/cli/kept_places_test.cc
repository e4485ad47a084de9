// What a run's folder remembers of its server for the one that goes on.
#include "cli/process/kept_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(KeptPlaces, APortThatTheConfigurationLeavesOpenIsTheOneBefore) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EQ(ListenAgain(folder.path(), "127.0.0.1:0"), "127.0.0.1:0");  // there was none
  folder.Write("address", "127.0.0.1:40001\n");
  EXPECT_EQ(ListenAgain(folder.path(), "127.0.0.1:0"), "127.0.0.1:40001");
  EXPECT_EQ(ListenAgain(folder.path(), ""), "127.0.0.1:40001");
  EXPECT_EQ(ListenAgain(folder.path(), "0.0.0.0:47100"), "0.0.0.0:47100");
  EXPECT_EQ(ListenAgain(folder.path(), "unix:/run/macaw.sock"), "unix:/run/macaw.sock");
}

TEST(KeptPlaces, AResumedRunHasTheAuthorityThatItBeganWith) {
  const testing_support::TemporaryFolder folder;
  const std::string pki = std::filesystem::path(folder / "pki").lexically_normal().string();
  const std::string moved = folder / "moved";
  ASSERT_TRUE(KeepAuthority(folder.path(), pki).ok());
  const AuthorityChoice again = ChooseAuthority(folder.path(), true, "");
  EXPECT_EQ(again.folder, pki);
  EXPECT_TRUE(again.remembered);
  EXPECT_EQ(ChooseAuthority(folder.path(), true, moved).folder, moved);
  EXPECT_EQ(ChooseAuthority(folder.path(), false, "").folder, "") << "a new run";
  EXPECT_EQ(ChooseAuthority(folder.path(), true, "off").folder, "");
  ASSERT_TRUE(KeepAuthority(folder.path(), "").ok());
  EXPECT_EQ(ChooseAuthority(folder.path(), true, "").folder, "");
  EXPECT_FALSE(ChooseAuthority(folder.path(), true, "").remembered);
}

TEST(KeptPlaces, AnAuthorityIsFoundFromAnotherFolder) {
  const testing_support::TemporaryFolder folder;
  ASSERT_TRUE(KeepAuthority(folder.path(), "pki").ok());
  EXPECT_EQ(ChooseAuthority(folder.path(), true, "").folder.front(), '/');
}

TEST(KeptPlaces, AnAuthorityThatIsGoneSaysHowToGoOn) {
  const absl::Status status = ExplainRemembered(absl::UnavailableError("cannot open /pki"));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), AllOf(HasSubstr("cannot open /pki"), HasSubstr("--authority off"),
                                      HasSubstr("--authority FOLDER")));
  EXPECT_TRUE(ExplainRemembered(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace macaw::cli
