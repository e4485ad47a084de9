#include "proto/wire/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/fd.h"
#include "core/files.h"
#include "proto/wire/remote.h"
#include "testing/fake_handler.h"
#include "testing/test_address.h"

namespace macaw::wire {
namespace {

using fleet::FakeHandler;

Fd Connect(const std::string& path) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, path.data(), path.size());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) fd.Close();
  return fd;
}

bool HungUp(const Fd& fd) {
  char byte;
  return read(fd.get(), &byte, 1) <= 0;  // else the server's settings, which it sends first
}

// In a process of its own, which may have few descriptors: connects until it is hung up on. The
// callers' ends are descriptors of this process, too. Then writes a file, and calls over a
// connection that it had and over a new one once there is room again.
[[noreturn]] void FillWithConnections() {
  const auto check = [](bool good, const char* what) {
    if (!good) std::fprintf(stderr, "failed: %s\n", what), std::fflush(stderr), std::_Exit(1);
  };
  const rlimit few{.rlim_cur = 256, .rlim_max = 256};
  check(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
  const SocketFolder folder;
  FakeHandler handler;
  auto server = FleetServer::Start({.listen = folder.address()}, handler);
  check(server.ok(), "start");
  const auto link = *Dial({.server = folder.address()});
  check(link->Hello({1, 0, "before"}).ok(), "a call before");
  std::vector<Fd> idle;
  while (idle.size() < 1000) {
    idle.push_back(Connect(folder.path()));
    check(idle.back().open(), "the listener has used the last descriptor");
    if (HungUp(idle.back())) break;
  }
  check(idle.size() > 50 && idle.size() < 200, "hung up on at last");
  check(AtomicWriteFile(folder.folder() + "/checkpoint", "bytes").ok(), "a file");
  check(link->Hello({1, 0, "amid"}).ok(), "a call of a worker that was there");
  unlink((folder.folder() + "/checkpoint").c_str());
  idle.clear();
  // Its end of them is closed when it has noticed.
  const auto late = *Dial({.server = folder.address()});
  while (!late->Hello({1, 0, "after"}).ok()) continue;
  server->reset();
  std::fprintf(stderr, "all is well\n");
  std::_Exit(0);
}

TEST(ListenerDeathTest, ManyConnectionsLeaveDescriptorsForFilesAndForThoseWhoWereThere) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(FillWithConnections(), testing::ExitedWithCode(0),
              "connections_refused.*256 files.*LimitNOFILE.*all is well");
}

TEST(Listener, KeepsASocketsFileToItsUserAndRemovesItAtTheEnd) {
  const SocketFolder folder;
  Address address = *ParseAddress(folder.address());
  {
    const auto listener = *Listener::Bind(address, 0);
    struct stat info {};
    ASSERT_EQ(stat(folder.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600);
  }
  EXPECT_FALSE(FileExists(folder.path()));
}

TEST(Listener, FindsAFreePortAndSaysWhenOneIsTaken) {
  Address first = *ParseAddress(":0");
  const auto listener = *Listener::Bind(first, 0);
  EXPECT_GT(first.port, 0);
  Address second = first;
  EXPECT_TRUE(absl::IsUnavailable(Listener::Bind(second, 0).status()));
}

// A service manager starts the server again: at boot the address comes later.
TEST(Listener, AnAddressThatTheMachineDoesNotHaveMayComeYet) {
  Address elsewhere{.host = "203.0.113.7"};
  const absl::Status status = Listener::Bind(elsewhere, 0).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("no such address"), std::string::npos) << status;
}

TEST(Listener, AnyAddressOfIpv6IsAnyAddressOfIpv4Too) {
  Address address = *ParseAddress("[::]:0");
  const auto bound = Listener::Bind(address, 0);  // without IPv6: on IPv4 alone
  ASSERT_TRUE(bound.ok()) << bound.status();
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(address.port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  // A port that some program has on IPv4 is in use.
  Address second = *ParseAddress("127.0.0.1:0");
  const auto taken = *Listener::Bind(second, 0);
  Address any{.host = "::", .port = second.port};
  EXPECT_TRUE(absl::IsUnavailable(Listener::Bind(any, 0).status()));
  const Fd v6(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!v6.open()) GTEST_SKIP() << "no IPv6 here";
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_port = htons(static_cast<uint16_t>(address.port));
  loopback.sin6_addr = in6addr_loopback;
  EXPECT_EQ(connect(v6.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback)), 0);
}

TEST(Listener, ListensOnEveryAddressOfAName) {
  Address address = *ParseAddress("localhost:0");
  const auto listener = *Listener::Bind(address, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(address.port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
}

}  // namespace
}  // namespace macaw::wire
