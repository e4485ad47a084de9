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

AuthorityChoice Chosen(const std::string& run_dir, bool resumes, const std::string& named) {
  const absl::StatusOr<AuthorityChoice> choice = ChooseAuthority(run_dir, resumes, named);
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.value_or(AuthorityChoice());
}

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
  const AuthorityChoice again = Chosen(folder.path(), true, "");
  EXPECT_EQ(again.folder, pki);
  EXPECT_TRUE(again.remembered);
  EXPECT_EQ(Chosen(folder.path(), true, moved).folder, moved);
  EXPECT_EQ(Chosen(folder.path(), false, "").folder, "") << "a new run";
  EXPECT_EQ(Chosen(folder.path(), true, "off").folder, "");
  ASSERT_TRUE(KeepAuthority(folder.path(), "").ok());
  EXPECT_EQ(Chosen(folder.path(), true, "").folder, "");
  EXPECT_FALSE(Chosen(folder.path(), true, "").remembered);
}

TEST(KeptPlaces, AnAuthorityIsFoundFromAnotherFolder) {
  const testing_support::TemporaryFolder folder;
  ASSERT_TRUE(KeepAuthority(folder.path(), "pki").ok());
  EXPECT_EQ(Chosen(folder.path(), true, "").folder.front(), '/');
}

// Taken for none, it would leave the run's nodes and models to everybody, without a word.
TEST(KeptPlaces, AnAuthorityThatCannotBeReadIsNotNone) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "authority-path";
  ASSERT_TRUE(MakeDirectories(path).ok());  // such as a mount that is gone
  const absl::Status folder_there = ChooseAuthority(folder.path(), true, "").status();
  EXPECT_THAT(folder_there.message(), AllOf(HasSubstr(path), HasSubstr("--authority FOLDER"),
                                            HasSubstr("--authority off")));
  EXPECT_EQ(Chosen(folder.path(), true, "/pki").folder, "/pki");
  EXPECT_EQ(Chosen(folder.path(), true, "off").folder, "");
  EXPECT_EQ(Chosen(folder.path(), false, "").folder, "") << "a new run";
  std::filesystem::remove(path);
  folder.Write("authority-path", "\n");
  EXPECT_THAT(ChooseAuthority(folder.path(), true, "").status().message(), HasSubstr("is empty"));
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
