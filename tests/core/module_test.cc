#include "core/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Entry {
  const char* build_tag;
};

TEST(Module, FindsTheFunctionsOfALibrary) {
  const absl::StatusOr<Module> library = Module::Open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  const auto cosine = library->Find<double(double)>("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(library->Find<double(double)>("macaw_nothing"), nullptr);
}

TEST(Module, SaysInTheLoadersWordsWhyAFileIsNoLibrary) {
  const testing_support::TemporaryFolder folder;
  EXPECT_THAT(Module::Open("/nowhere/libmoon.so").status().message(),
              HasSubstr("/nowhere/libmoon.so"));
  EXPECT_THAT(Module::Open(folder.Write("libtext.so", std::string(100, 'x'))).status().message(),
              AllOf(HasSubstr("libtext.so"), HasSubstr("invalid ELF header")));
}

TEST(LoadEntry, SaysWhatALibraryLacks) {
  EXPECT_EQ(LoadEntry<Entry>("libm.so.6", "macaw_entry", "tag", "no entry").status(),
            absl::FailedPreconditionError("no entry"));
  EXPECT_FALSE(LoadEntry<Entry>("/nowhere.so", "macaw_entry", "tag", "no entry").ok());
}

TEST(OtherBuild, ShowsBothTags) {
  EXPECT_THAT(OtherBuild("theirs", "ours").message(),
              AllOf(HasSubstr("theirs"), HasSubstr("ours")));
  EXPECT_THAT(OtherBuild(nullptr, "ours").message(), HasSubstr("none"));
}

}  // namespace
}  // namespace macaw
