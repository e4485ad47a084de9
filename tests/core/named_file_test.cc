#include "core/named_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include "core/fd.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A writer of its own, which replaces the file that it is given.
absl::Status WriteWhole(const std::string& path, const std::string& text) {
  return WriteNamedFile(path, [&](const std::string& at) { return AtomicWriteFile(at, text); });
}

TEST(NamedFile, IsMadeAndReplaced) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "table.csv";
  ASSERT_TRUE(WriteNamedFile(path, "a longer first text").ok());
  ASSERT_TRUE(WriteNamedFile(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
  ASSERT_TRUE(WriteWhole(path, "third").ok());
  EXPECT_EQ(*ReadFile(path), "third");
}

TEST(NamedFile, NeedsAName) {
  for (const absl::Status& refused : {WriteNamedFile("", "text"), WriteWhole("", "text")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("empty name"));
  }
}

TEST(NamedFile, BehindALinkIsWrittenAndTheLinkStays) {
  const testing_support::TemporaryFolder folder;
  folder.Write("below/target", "old");
  fs::create_symlink("below/target", folder / "near");
  fs::create_symlink("near", folder / "far");
  ASSERT_TRUE(WriteNamedFile(folder / "far", "new").ok());
  EXPECT_EQ(*ReadFile(folder / "below/target"), "new");
  ASSERT_TRUE(WriteWhole(folder / "far", "newer").ok());
  EXPECT_EQ(*ReadFile(folder / "below/target"), "newer");
  EXPECT_TRUE(fs::is_symlink(folder / "far") && fs::is_symlink(folder / "near"));
  fs::create_symlink("below/none", folder / "dangling");
  ASSERT_TRUE(WriteNamedFile(folder / "dangling", "made").ok());
  EXPECT_EQ(*ReadFile(folder / "below/none"), "made");
  fs::create_symlink("round", folder / "round");
  EXPECT_THAT(std::string(WriteNamedFile(folder / "round", "x").message()), HasSubstr("round"));
}

TEST(NamedFile, APipeStaysAndGetsTheBytes) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto received = [&](const std::function<absl::Status()>& write) {
    std::string text;
    std::thread reader([&] { text = *ReadFile(path); });
    EXPECT_TRUE(write().ok());
    reader.join();
    return text;
  };
  EXPECT_EQ(received([&] { return WriteNamedFile(path, "one"); }), "one");
  EXPECT_EQ(received([&] { return WriteWhole(path, "two"); }), "two");
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST(NamedFile, ADeviceStaysAndItsErrorIsTold) {
  const testing_support::TemporaryFolder folder;
  fs::create_symlink("/dev/null", folder / "null");
  EXPECT_TRUE(WriteNamedFile(folder / "null", "gone").ok());
  EXPECT_TRUE(fs::is_symlink(folder / "null") && fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", folder / "full");
  EXPECT_THAT(std::string(WriteNamedFile(folder / "full", "text").message()),
              HasSubstr("full: No space left on device"));
}

// As `macaw report RUN -o /dev/stdout > page.html`.
TEST(NamedFile, StandardOutputThatIsAFileGetsTheBytesBehindWhatWasPrinted) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "page.html";
  std::cout.flush();
  const Fd before(::dup(STDOUT_FILENO));
  {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    ASSERT_GE(::dup2(file.get(), STDOUT_FILENO), 0);
  }
  std::cout << "first ";
  const absl::Status written = WriteNamedFile("/dev/stdout", "second ");
  const absl::Status whole = WriteWhole("/dev/stdout", "third");
  std::cout << " last" << std::flush;
  ASSERT_GE(::dup2(before.get(), STDOUT_FILENO), 0);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_TRUE(whole.ok()) << whole;
  EXPECT_EQ(*ReadFile(path), "first second third last");
}

}  // namespace
}  // namespace macaw
