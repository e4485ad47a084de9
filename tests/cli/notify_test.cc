#include "cli/process/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

// The socket of a service manager, as systemd would have it.
class Notify : public testing::Test {
 protected:
  Notify() : manager_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(manager_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
        << path_;
  }
  ~Notify() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }
  std::string Heard(int flags = 0) {
    char text[256];
    const ssize_t size = ::recv(manager_.get(), text, sizeof(text), flags);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

  const testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_ / "notify";
  const Fd manager_;
};

TEST_F(Notify, TellsTheManagerThatStartedThisProcess) {
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  NotifyManager("READY=1");
  EXPECT_EQ(Heard(), "READY=1");
}

TEST_F(Notify, TellsNobodyWithoutAManager) {
  NotifyManager("READY=1");
  EXPECT_EQ(Heard(MSG_DONTWAIT), "");
  ::setenv("NOTIFY_SOCKET", (path_ + "-gone").c_str(), 1);
  NotifyManager("READY=1");  // no error either
  EXPECT_EQ(Heard(MSG_DONTWAIT), "");
}

TEST_F(Notify, AWatchdogAsksUntilItIsDestroyed) {
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "2000", 1);
  ::setenv("WATCHDOG_PID", absl::StrCat(::getpid()).c_str(), 1);
  const auto asked = std::make_shared<std::atomic<int>>(0);
  {
    // No more than are read here: a full socket would hold the thread that asks.
    const Watchdog watchdog([asked] {
      if (++*asked <= 3) NotifyManager("WATCHDOG=1");
    });
    EXPECT_GT(asked.use_count(), 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Heard(), "WATCHDOG=1");
  }
  EXPECT_GE(*asked, 3);
  EXPECT_EQ(asked.use_count(), 1) << "the thread that asks has ended, with what it calls";
}

TEST_F(Notify, AWatchdogOfAnotherProcessIsNotOurs) {
  ::setenv("WATCHDOG_USEC", "2000", 1);
  EXPECT_EQ(WatchdogPeriod(), std::chrono::milliseconds(2));
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(WatchdogPeriod(), std::nullopt);
  ::unsetenv("WATCHDOG_PID");
  ::setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(WatchdogPeriod(), std::nullopt);
}

}  // namespace
}  // namespace macaw::cli
