#include "core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/digest.h"

// Replaces the C library's fsync in this program, to record which files and folders are synced.
namespace {
std::set<std::string>& Synced() {
  static auto* const synced = new std::set<std::string>;
  return *synced;
}
}  // namespace
extern "C" int fsync(int fd) {
  std::error_code ignored;
  Synced().insert(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored));
  return static_cast<int>(syscall(SYS_fsync, fd));
}
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  static const testing_support::TemporaryFolder folder;  // of this process
  return folder / name;
}

TEST(FileError, NamesThePathAndTheReason) {
  errno = ENOENT;
  const absl::Status missing = FileError("cannot open", "/some/file");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("cannot open /some/file: No such file"));
  EXPECT_EQ(FileError("cannot write", "f", EACCES).code(), absl::StatusCode::kPermissionDenied);
}

TEST(AtomicWriteFile, ReplacesTheWholeContent) {
  const std::string path = TempPath("atomic");
  ASSERT_TRUE(AtomicWriteFile(path, "a longer first version").ok());
  ASSERT_TRUE(AtomicWriteFile(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
}

TEST(AtomicWriteFile, LeavesNoTemporaryFileWhenItFails) {
  const absl::Status status = AtomicWriteFile(TempPath("no/such/folder/file"), "text");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("no/such/folder/file"), std::string::npos);
}

TEST(AtomicFile, TwoWritersOfOneFileUseDifferentTemporaryFiles) {
  const std::string path = TempPath("contested");
  AtomicFile first = *AtomicFile::Create(path), second = *AtomicFile::Create(path);
  ASSERT_TRUE(first.WriteAt(0, BytesOf("first")).ok());
  ASSERT_TRUE(second.WriteAt(0, BytesOf("second")).ok());
  EXPECT_TRUE(std::move(first).Commit().ok());
  EXPECT_EQ(*ReadFile(path), "first");
  EXPECT_TRUE(std::move(second).Commit().ok());
  EXPECT_EQ(*ReadFile(path), "second");
}

TEST(MakeDirectories, SyncsTheParentsOfNewFolders) {
  const std::string folder =
      std::filesystem::canonical(std::filesystem::path(TempPath("x")).parent_path()).string();
  std::filesystem::remove_all(folder + "/new");
  Synced().clear();
  ASSERT_TRUE(MakeDirectories(folder + "/new/and/deep/").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/new/and/deep"));
  for (const char* holder : {"", "/new", "/new/and"})
    EXPECT_TRUE(Synced().contains(folder + holder)) << folder << holder;
  Synced().clear();
  ASSERT_TRUE(MakeDirectories(folder + "/new/and/deep").ok());
  EXPECT_TRUE(Synced().empty());  // nothing is new
}

TEST(AtomicFile, RemovesWhatKilledWritersOfItHaveLeft) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "table.data";
  AtomicFile other = *AtomicFile::Create(path);  // at work for long
  const std::string abandoned = path + ".0123456789abcdef.part";
  const std::vector<std::string> strange = {path + ".part", path + ".0123.part",
                                            folder / "table.0123456789abcdef.part"};
  for (const std::string& file : strange) std::ofstream(file) << "x";
  std::ofstream(abandoned) << "half of it";
  const auto files = [&] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.path()))
      ++count;
    return count;
  };
  EXPECT_TRUE(AtomicFile::Create(path).ok());
  EXPECT_EQ(files(), 5u) << "it is new";
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  EXPECT_TRUE(AtomicFile::Create(path).ok());
  EXPECT_FALSE(FileExists(abandoned));
  for (const std::string& file : strange) EXPECT_TRUE(FileExists(file)) << file;
  ASSERT_TRUE(std::move(other).Commit().ok());
  EXPECT_EQ(files(), 4u);
}

TEST(AtomicFile, AppearsCompletelyOrNotAtAll) {
  const std::string path = TempPath("pieces");
  std::filesystem::remove(path);
  {
    AtomicFile file = *AtomicFile::Create(path);
    ASSERT_TRUE(file.WriteAt(0, BytesOf("lost")).ok());
  }
  EXPECT_FALSE(FileExists(path));
  AtomicFile file = *AtomicFile::Create(path);
  ASSERT_TRUE(file.WriteAt(4, BytesOf("second")).ok());
  ASSERT_TRUE(file.WriteAt(0, BytesOf("one,")).ok());
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(std::move(file).Commit().ok());
  EXPECT_EQ(*ReadFile(path), "one,second");
}

TEST(LineFile, WritesOverItsTailAndLosesNothingInBetween) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "rows";
  {
    LineFile file = *LineFile::Open(path, 0);
    for (const char* line : {"one", "two", "three"}) ASSERT_TRUE(file.Append(line).ok());
  }
  LineFile file = *LineFile::Open(path, 4, LineFile::Tail::kWriteOver);
  EXPECT_EQ(file.offset(), 4u);
  EXPECT_EQ(*ReadFile(path), "one\ntwo\nthree\n") << "a process that dies here has lost nothing";
  ASSERT_TRUE(file.Append("two").ok());
  EXPECT_EQ(*ReadFile(path), "one\ntwo\nthree\n");
  EXPECT_EQ(file.offset(), 8u);
  ASSERT_TRUE(file.CutTail().ok());
  EXPECT_EQ(*ReadFile(path), "one\ntwo\n");
}

TEST(LineFile, ContinuesAtTheOffsetOfACheckpoint) {
  const std::string path = TempPath("lines");
  std::filesystem::remove(path);
  {
    LineFile file = *LineFile::Open(path, 0);
    ASSERT_TRUE(file.Append("one").ok());
    EXPECT_EQ(file.offset(), 4u);
    ASSERT_TRUE(file.Append("two").ok());
  }
  LineFile file = *LineFile::Open(path, 4);
  ASSERT_TRUE(file.Append("three").ok());
  EXPECT_EQ(*ReadFile(path), "one\nthree\n");
  EXPECT_EQ(LineFile::Open(path, 1000).status().code(), absl::StatusCode::kDataLoss);
}

// A link that leads to itself is a path beyond which nobody can see, also for root.
TEST(Files, AFileThatCannotBeSeenIsNotCalledMissing) {
  const testing_support::TemporaryFolder folder;
  const std::string loop = folder / "loop";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(MissingFile(folder / "none", "no such run"), absl::NotFoundError("no such run"));
  EXPECT_EQ(MissingFile(folder / "none/file", "no such run"), absl::NotFoundError("no such run"));
  EXPECT_EQ(MissingFile(loop + "/file", "no such run").message(),
            "cannot open " + loop + "/file: Too many levels of symbolic links");
}

TEST(MappedFile, ShowsTheBytesAndRefusesAFolder) {
  const std::string path = TempPath("mapped");
  ASSERT_TRUE(AtomicWriteFile(path, "bytes").ok());
  const MappedFile file = *MappedFile::Open(path);
  EXPECT_EQ(file.bytes().size(), 5u);
  EXPECT_FALSE(MappedFile::Open(testing::TempDir()).ok());
}

}  // namespace
}  // namespace macaw
