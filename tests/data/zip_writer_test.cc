#include "data/zip_writer.h"

#include <gtest/gtest.h>

#include "core/digest.h"
#include "core/files.h"
#include "data/zip.h"
#include "testing/temporary_folder.h"

namespace macaw::data {
namespace {

std::vector<ZipEntry> Entries(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<ZipEntry> entries;
  for (const auto& [name, bytes] : files)
    entries.push_back({.name = name, .bytes = BytesOf(absl::string_view(bytes))});
  return entries;
}

TEST(StoredZip, IsReadBackWithEveryFileAndNothingElse) {
  const testing_support::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"b.txt", "two"}, {"a/ü.bin", std::string("\0\1PK\3\4", 6)}, {"empty", ""}};
  ASSERT_TRUE(WriteStoredZip(folder / "x.zip", Entries(files)).ok());
  const auto archive = ZipArchive::Parse(*ReadFile(folder / "x.zip"), "x.zip");
  ASSERT_TRUE(archive.ok()) << archive.status();
  ASSERT_EQ(archive->members().size(), files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(archive->members()[i].name, files[i].first);
    EXPECT_EQ(*archive->Unpack(archive->members()[i]), files[i].second);
  }
}

TEST(StoredZip, HasBytesThatDependOnItsFilesAlone) {
  const testing_support::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {{"a", "1"}, {"b", "22"}};
  ASSERT_TRUE(WriteStoredZip(folder / "x.zip", Entries(files)).ok());
  ASSERT_TRUE(WriteStoredZip(folder / "y.zip", Entries(files)).ok());
  std::string bytes = *ReadFile(folder / "x.zip");
  EXPECT_EQ(bytes, *ReadFile(folder / "y.zip"));
  EXPECT_TRUE(IsStoredZip(bytes, Entries(files)));
  for (char& byte : bytes) {
    ++byte;
    EXPECT_FALSE(IsStoredZip(bytes, Entries(files)));
    --byte;
  }
  EXPECT_FALSE(IsStoredZip(bytes + "x", Entries(files)));
  EXPECT_FALSE(IsStoredZip(bytes.substr(1), Entries(files)));
  EXPECT_FALSE(IsStoredZip(bytes.substr(0, bytes.size() - 1), Entries(files)));
  EXPECT_FALSE(IsStoredZip("", Entries(files)));
}

}  // namespace
}  // namespace macaw::data
