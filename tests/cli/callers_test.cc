#include "cli/process/callers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "core/child.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using fleet::Role;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

TEST(Callers, AreKnownByTheTokenThatTheyWereGiven) {
  const TemporaryFolder folder;
  Callers callers;
  const std::string anna = callers.Add("anna", {"7", "8"}), bert = callers.Add("bert");
  EXPECT_EQ(anna.size(), 32u);
  EXPECT_NE(anna, bert);
  ASSERT_TRUE(callers.Write(folder / "callers.json").ok());
  const auto read = Callers::Read(folder / "callers.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Identify(anna)->role, Role::kNode);
  EXPECT_EQ(read->Identify(anna)->node, "anna");
  EXPECT_THAT(read->Identify(anna)->owns, testing::ElementsAre("7", "8"));
  EXPECT_EQ(read->Identify(bert)->node, "bert");
  for (const std::string& other : {std::string(), anna.substr(1), anna + "0"})
    EXPECT_EQ(read->Identify(other)->role, Role::kStranger) << other;
}

TEST(Callers, AListThatIsNoneIsRefusedWithTheReason) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    return std::string(Callers::Read(folder.Write("list", text)).status().message());
  };
  EXPECT_THAT(refusal("{"), HasSubstr("is not a list of"));
  EXPECT_THAT(refusal(R"([{"node": "a"}])"), HasSubstr("is not a list of"));
  EXPECT_THAT(refusal(R"([{"node": "a", "token": "short"}])"), HasSubstr("16 characters"));
  EXPECT_THAT(refusal(R"([{"node": "", "token": "0123456789abcdef"}])"), HasSubstr("node's name"));
  EXPECT_THAT(refusal(R"([{"node": "a", "token": "0123456789abcdef"},
                          {"node": "b", "token": "0123456789abcdef"}])"),
              HasSubstr("the same token"));
  EXPECT_FALSE(Callers::Read(folder / "nothing").ok());
}

// A token is passed in the environment, because everybody on the host can read a command line.
TEST(Child, GetsVariablesOfItsOwnBesideThoseOfItsParent) {
  const TemporaryFolder folder;
  ::setenv("MACAW_TEST_KEPT", "kept", 1);
  ::setenv(kTokenVariable, "the parent's", 1);
  auto child = Child::Spawn({.name = "shell",
                             .argv = {"/bin/sh", "-c", "echo $MACAW_TEST_KEPT $MACAW_TOKEN"},
                             .log = folder / "log",
                             .environment = {{kTokenVariable, "its own"}}});
  ::unsetenv(kTokenVariable);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE(child->Reap().ok());
  EXPECT_EQ(*ReadFile(folder / "log"), "kept its own\n");
}

}  // namespace
}  // namespace macaw::cli
