#include "core/executor.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/notification.h"

namespace macaw {
namespace {

TEST(Executor, UrgentTasksRunFirstAndInOrder) {
  std::string order;
  absl::Notification begun, go;
  {
    Executor executor("test", 1);
    executor.Post([&] {
      begun.Notify();
      go.WaitForNotification();
    });
    begun.WaitForNotification();
    for (const char c : {'c', 'd'}) executor.Post([&order, c] { order += c; });
    for (const char c : {'a', 'b'}) executor.PostUrgent([&order, c] { order += c; });
    go.Notify();
  }
  EXPECT_EQ(order, "abcd");
}

TEST(Executor, WaitIdleAlsoWaitsForUrgentTasks) {
  Executor executor("test", 1);
  int ran = 0;
  executor.PostUrgent([&] { ++ran; });
  executor.WaitIdle();
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace macaw
