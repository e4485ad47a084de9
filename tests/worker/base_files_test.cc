#include "worker/base_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "testing/temporary_folder.h"

namespace macaw::worker {
namespace {

namespace fs = std::filesystem;

fleet::Blob BaseOf(uint8_t number) {
  AlignedBuffer bytes(100);
  bytes.bytes()[0] = static_cast<std::byte>(number);
  return fleet::Blob::Of(std::move(bytes));
}

class BaseFilesTest : public testing::Test {
 protected:
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_.path()))
      names.insert(file.path().filename().string());
    return names;
  }
  static std::string NameOf(const fleet::Blob& blob) { return blob.digest.Hex() + ".base"; }
  // A file that was written so long ago.
  void WriteAged(const std::string& name, std::chrono::minutes age) {
    folder_.Write(name, "half a base");
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - age);
  }
  void Age(const fleet::Blob& blob, std::chrono::minutes age) {
    fs::last_write_time(folder_ / NameOf(blob), fs::file_time_type::clock::now() - age);
  }

  const testing_support::TemporaryFolder folder_;
  const BaseFiles bases_{folder_.path()};
};

TEST_F(BaseFilesTest, KeepsTheTwoThatWereUsedLast) {
  const fleet::Blob one = BaseOf(1), two = BaseOf(2), three = BaseOf(3);
  EXPECT_FALSE(bases_.HasAny());
  bases_.Write(one);
  EXPECT_TRUE(bases_.HasAny());
  bases_.Write(two);
  Age(one, std::chrono::minutes(9));
  Age(two, std::chrono::minutes(8));
  ASSERT_TRUE(bases_.Read(one.digest).ok());  // it is used now
  bases_.Write(three);
  EXPECT_EQ(Names(), (std::set<std::string>{NameOf(one), NameOf(three)}));
  EXPECT_TRUE(bases_.Has(three.digest));
  EXPECT_FALSE(bases_.Has(two.digest));
}

// A disk with room for two has no room for three at a time.
TEST_F(BaseFilesTest, MakesRoomBeforeItWrites) {
  const fleet::Blob one = BaseOf(1), two = BaseOf(2), three = BaseOf(3);
  bases_.Write(one);
  bases_.Write(two);
  Age(one, std::chrono::minutes(9));
  fs::create_directory(folder_ / NameOf(three));  // so that the third cannot be written
  folder_.Write(NameOf(three) + "/file", "");
  Age(three, std::chrono::minutes(20));
  bases_.Write(three);
  EXPECT_FALSE(bases_.Has(one.digest));
  EXPECT_TRUE(bases_.Has(two.digest));
}

// Another process may still be writing what is new.
TEST_F(BaseFilesTest, RemovesWhatAKilledNodeHadBegunToWrite) {
  const fleet::Blob base = BaseOf(1);
  const std::string old = NameOf(base) + ".00000000deadbeef.part",
                    fresh = NameOf(base) + ".00000000cafecafe.part", other = "notes.part";
  const auto put = [&] {
    WriteAged(old, std::chrono::minutes(11));
    WriteAged(fresh, std::chrono::minutes(1));
    WriteAged(other, std::chrono::minutes(11));
  };
  put();
  EXPECT_FALSE(bases_.Read(base.digest).ok());
  EXPECT_EQ(Names(), (std::set<std::string>{fresh, other}));
  put();
  bases_.Write(base);
  EXPECT_EQ(Names(), (std::set<std::string>{NameOf(base), fresh, other}));
}

TEST_F(BaseFilesTest, RemovesADamagedFile) {
  const fleet::Blob base = BaseOf(1);
  bases_.Write(base);
  fs::resize_file(folder_ / NameOf(base), 50);
  EXPECT_TRUE(absl::IsNotFound(bases_.Read(base.digest).status()));
  EXPECT_FALSE(bases_.Has(base.digest));
}

TEST(BaseFiles, WithoutAFolderKeepsNothing) {
  const BaseFiles none{BaseFiles::FolderIn("")};
  const fleet::Blob base = BaseOf(1);
  none.Write(base);
  EXPECT_FALSE(none.Has(base.digest));
  EXPECT_FALSE(none.HasAny());
  EXPECT_TRUE(absl::IsNotFound(none.Read(base.digest).status()));
}

}  // namespace
}  // namespace macaw::worker
