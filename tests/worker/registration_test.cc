#include "worker/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "data/options.h"
#include "testing/temporary_folder.h"

namespace macaw::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The server could only tell that the lines of the table are not as many as its clients.
TEST(Registration, NamesTheClientWhoseNameNoServerTakes) {
  const testing_support::TemporaryFolder folder;
  const auto table = [&](const std::string& name, bool by_name) {
    const std::string path = folder.Write("a.csv", "who,x,y\nann,1,0\n\"" + name + "\",2,1\n");
    const auto dataset = data::OpenDataset(
        {.source = "csv", .path = path, .test_fraction = 0, .client_column = "who"}, {});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return TableOf(**dataset, by_name);
  };
  EXPECT_THAT(table("bob", true)->names, ElementsAre("ann", "bob"));
  const auto refused = table("bo\nb", true);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("client 1, \"bo\\nb\""), HasSubstr("line break")));
  const auto numbered = table("bo\nb", false);
  ASSERT_TRUE(numbered.ok()) << numbered.status();
  EXPECT_THAT(numbered->names, IsEmpty());
}

}  // namespace
}  // namespace macaw::worker
