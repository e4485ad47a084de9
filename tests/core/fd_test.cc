#include "core/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/digest.h"

namespace macaw {
namespace {

Fd Open() { return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, ClosesItsDescriptor) {
  int number;
  {
    const Fd fd = Open();
    number = fd.get();
    ASSERT_TRUE(fd.open());
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(Fd, AMoveHandsTheDescriptorOver) {
  Fd from = Open();
  const int number = from.get();
  const Fd to = std::move(from);
  EXPECT_EQ(to.get(), number);
  EXPECT_FALSE(from.open());  // NOLINT(bugprone-use-after-move)
  from.Close();
  EXPECT_TRUE(IsOpen(number));
}

TEST(Fd, AnAssignmentClosesTheDescriptorThatWasHeld) {
  Fd fd = Open();
  const int first = fd.get();
  Fd other = Open();
  const int second = other.get();
  fd = std::move(other);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(fd.get(), second);
  EXPECT_TRUE(IsOpen(second));
}

TEST(Fd, WritingToAFullDeviceFailsWithItsReason) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.open());
  errno = 0;
  EXPECT_FALSE(WriteAll(full, BytesOf(absl::string_view("text"))));
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_FALSE(WriteAllAt(full, BytesOf(absl::string_view("text")), 8));
  EXPECT_EQ(errno, ENOSPC);
}

}  // namespace
}  // namespace macaw
