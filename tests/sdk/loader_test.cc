#include "sdk/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::sdk {
namespace {

using testing::HasSubstr;

std::string Refusal(const std::string& path) {
  Catalogue catalogue = Catalogue::Builtins();
  const absl::Status status = Loader::Load(path, catalogue);
  EXPECT_TRUE(catalogue.plugins().empty());
  return std::string(status.message());
}

TEST(Loader, SaysWhatIsWrongWithAFileThatIsNoPlugin) {
  EXPECT_THAT(Refusal("/nowhere/libmoon.so"), HasSubstr("/nowhere/libmoon.so"));
  const testing_support::TemporaryFolder folder;
  const std::string text = folder / "libtext.so";
  ASSERT_TRUE(AtomicWriteFile(text, "not a library").ok());
  EXPECT_THAT(Refusal(text), HasSubstr("libtext.so"));
}

TEST(Loader, AddsWhatAPlugInContributesOrNothingOfIt) {
  const auto load = [](const char* contribution, Catalogue& catalogue) {
    EXPECT_EQ(::setenv("MACAW_TEST_CONTRIBUTION", contribution, 1), 0);
    return Loader::Load(MACAW_CONTRIBUTIONS, catalogue);
  };
  Catalogue catalogue = Catalogue::Builtins();
  ASSERT_TRUE(
      catalogue
          .AddModel({"mine", "",
                     [](const auto&, int64_t) { return std::vector<std::string>{"linear 1"}; }})
          .ok());
  const std::pair<const char*, const char*> failures[] = {
      {"taken", "the model \"logistic\" exists already"},
      {"fails", "the licence server is away"},
      {"throws", "out of luck"}};
  for (const auto& [contribution, why] : failures) {
    const absl::Status status = load(contribution, catalogue);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(MACAW_CONTRIBUTIONS), HasSubstr(why)));
    EXPECT_EQ(catalogue.models().size(), 1u) << contribution;
    EXPECT_TRUE(catalogue.data_sources().empty()) << contribution;
    EXPECT_TRUE(catalogue.plugins().empty()) << contribution;
  }
  const absl::Status whole = load("whole", catalogue);
  ASSERT_TRUE(whole.ok()) << whole;
  EXPECT_TRUE(catalogue.models().contains("small-net"));
  EXPECT_TRUE(catalogue.data_sources().contains("nowhere"));
  ASSERT_EQ(catalogue.plugins().size(), 1u);
  EXPECT_THAT(catalogue.plugins()[0], testing::StartsWith("contributions 0.1 "));
  // Its names are taken now, by itself.
  EXPECT_THAT(std::string(load("whole", catalogue).message()), HasSubstr("exists already"));
  EXPECT_EQ(catalogue.plugins().size(), 1u);
}

}  // namespace
}  // namespace macaw::sdk
