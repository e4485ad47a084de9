#include "sdk/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace macaw::sdk
