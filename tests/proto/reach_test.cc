// The ways to a server that are not a plain IPv4 address: IPv6, and an HTTP proxy.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/fd.h"
#include "proto/wire/admin.h"
#include "proto/wire/proxy.h"
#include "proto/wire/remote.h"
#include "tests/proto/link_contract.h"
#include "tests/proto/test_authority.h"

namespace macaw::wire {
namespace {

using fleet::ExpectSameBytes;
using fleet::PartWith;
using fleet::RandomBlob;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Reach : public testing::Test {
 protected:
  void Start(const std::string& listen) {
    auto server = FleetServer::Start({.listen = listen, .authority = authority_.get()}, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  TestAuthority authority_;
  fleet::FakeHandler handler_;
  std::unique_ptr<FleetServer> server_;
};

TEST_F(Reach, AServerAtAnIpv6Address) {
  if (Fd(socket(AF_INET6, SOCK_STREAM, 0)).open() == false) GTEST_SKIP() << "no IPv6 here";
  Start("[::1]:0");
  EXPECT_THAT(server_->address(), testing::StartsWith("[::1]:"));
  for (const auto& identity :
       {std::optional(authority_.Certified("w")), std::optional<identity::IdentityFiles>()}) {
    const auto link = *Dial({.server = server_->address(), .identity = identity});
    EXPECT_EQ(link->Hello({1, 0, "test"}).ok(), identity.has_value());  // it serves TLS alone
  }
}

// An HTTP proxy that knows CONNECT and wants a user's name and password. Whatever host it is asked
// for, it connects to one port of this machine.
class ConnectProxy {
 public:
  ConnectProxy(const std::string& server, std::string credentials)
      : credentials_(std::move(credentials)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    EXPECT_TRUE(absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &server_port_));
    sockaddr_in address = Loopback(0);
    bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener_.get(), 16);
    socklen_t size = sizeof(address);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~ConnectProxy() {
    stop_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& relay : relays_) relay.join();
  }
  std::string Url(const std::string& user) const {
    return absl::StrCat("http://", user, "127.0.0.1:", port_);
  }
  std::string asked_for() {  // the first line of the last request that was let through
    absl::MutexLock lock(&mutex_);
    return asked_for_;
  }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  static void Send(const Fd& to, const std::string& text) {
    (void)!send(to.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  void Accept() {
    while (!stop_) {
      Fd client(accept(listener_.get(), nullptr, nullptr));
      if (!client.open()) return;
      relays_.emplace_back([this, client = std::move(client)] { Serve(client); });
    }
  }
  void Serve(const Fd& client) {
    std::string head;
    for (char c; !absl::EndsWith(head, "\r\n\r\n") && recv(client.get(), &c, 1, 0) == 1;) head += c;
    if (!absl::StrContains(head, "Basic " + credentials_))
      return Send(client, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    {
      absl::MutexLock lock(&mutex_);
      asked_for_ = head.substr(0, head.find('\r'));
    }
    const Fd server(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = Loopback(server_port_);
    if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      return Send(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n");
    Send(client, "HTTP/1.1 200 Connection established\r\n\r\n");
    Relay(client, server);
  }
  void Relay(const Fd& client, const Fd& server) {
    pollfd ends[2] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
    std::string buffer(1 << 16, '\0');
    while (!stop_) {
      poll(ends, 2, 50);
      for (int i = 0; i < 2; ++i) {
        if (ends[i].revents == 0) continue;
        const ssize_t n = recv(ends[i].fd, buffer.data(), buffer.size(), 0);
        if (n <= 0 ||
            send(ends[1 - i].fd, buffer.data(), static_cast<size_t>(n), MSG_NOSIGNAL) != n)
          return;
      }
    }
  }

  const std::string credentials_;  // base64 of name:password
  Fd listener_;
  int server_port_ = 0, port_ = 0;
  std::atomic<bool> stop_ = false;
  absl::Mutex mutex_;
  std::string asked_for_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
  std::list<std::thread> relays_;  // the acceptor's alone until it has ended
};

class Environment {  // of this process, with a variable for as long as this lives
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST_F(Reach, AServerBehindAnHttpProxyThatWantsAPassword) {
  Start("127.0.0.1:0");
  ConnectProxy proxy(server_->address(), "cGhvbmU6c2VjcmV0");  // phone:secret
  const ClientOptions options{.server = "fleet.example.invalid:443",
                              .identity = authority_.Certified("w")};
  {
    const Environment environment("grpc_proxy", proxy.Url("phone:secret@"));
    const auto link = *Dial(options);
    const fleet::Blob sums = RandomBlob(3 << 20, 1);
    const auto committed = link->Commit(PartWith(sums));
    ASSERT_TRUE(committed.ok()) << committed.status();
    ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, sums);
    EXPECT_THAT(proxy.asked_for(), HasSubstr("CONNECT fleet.example.invalid:443 "));
  }
  const Environment environment("grpc_proxy", proxy.Url("phone:wrong@"));
  const absl::Status refused = (*Dial(options))->Hello({1, 0, "test"}).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("407"));
}

TEST_F(Reach, ADeadProxyIsNamedAsTheProxy) {
  const auto named = [](const std::string& variable) {
    return AllOf(HasSubstr("proxy 127.0.0.1:1 "), HasSubstr(variable), HasSubstr("no_proxy"),
                 HasSubstr("fleet.example.invalid"), Not(HasSubstr("secret")));
  };
  const std::string server = "fleet.example.invalid:443";
  const identity::IdentityFiles certified = authority_.Certified("w");
  for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const Environment environment(variable, "http://phone:secret@127.0.0.1:1/");
    const absl::Status called =
        (*Dial({.server = server, .identity = certified}))->Hello({1, 0, "test"}).status();
    EXPECT_THAT(std::string(called.message()), named(variable));
    EXPECT_TRUE(absl::IsUnavailable(called)) << called;
    const absl::Status enrolled =
        Enrol(server, authority_.InviteFor("phone-8"), authority_.FilesOf("phone-8"));
    EXPECT_THAT(std::string(enrolled.message()), named(variable));
    const absl::Status steered = (*AdminClient::Dial(server, certified))->Status().status();
    EXPECT_THAT(std::string(steered.message()), named(variable));
  }
  const Environment environment("https_proxy", "http://127.0.0.1:1");
  const Environment excluded("no_proxy", "example.org, example.invalid");
  const absl::Status direct =
      (*Dial({.server = server, .identity = certified}))->Hello({1, 0, "test"}).status();
  EXPECT_THAT(std::string(direct.message()), Not(HasSubstr("no way through the proxy")));
}

TEST(ProxyTo, IsNeverForThisMachineOrAPrivateNetwork) {
  const Environment environment("https_proxy", "http://user:word@proxy.example.org:3128/");
  for (const char* server :
       {"unix:/tmp/x", "localhost:1", "127.0.0.9:1", "[::1]:1", "10.1.2.3:1", "172.31.0.1:1",
        "192.168.7.7:1", "169.254.1.1:1", "[fd00::1]:1", "[fe80::1]:1", "[::ffff:10.0.0.1]:1"}) {
    EXPECT_FALSE(ProxyTo(*ParseAddress(server)).has_value()) << server;
  }
  for (const char* server : {"fleet.example.org:1", "172.32.0.1:1", "8.8.8.8:1", "[2001:db8::1]:1",
                             "10.example.org:1"}) {
    const std::optional<Proxy> proxy = ProxyTo(*ParseAddress(server));
    ASSERT_TRUE(proxy.has_value()) << server;
    EXPECT_EQ(proxy->variable, "https_proxy");
    EXPECT_EQ(proxy->place, "proxy.example.org:3128");
  }
  const Environment all("no_proxy", "*");
  EXPECT_FALSE(ProxyTo(*ParseAddress("fleet.example.org:1")).has_value());
}

TEST_F(Reach, AServerOfThisMachineIsNeverLookedForThroughAProxy) {
  Start("127.0.0.1:0");
  const Environment environment("grpc_proxy", "http://127.0.0.1:1");
  const auto link = *Dial({.server = server_->address(), .identity = authority_.Certified("w")});
  EXPECT_TRUE(link->Hello({1, 0, "test"}).ok());
}

TEST_F(Reach, ANodeEnrolsAndRenewsThroughAProxy) {
  Start("127.0.0.1:0");
  ConnectProxy proxy(server_->address(), "cGhvbmU6c2VjcmV0");
  const Environment environment("grpc_proxy", proxy.Url("phone:secret@"));
  const identity::IdentityFiles files = authority_.FilesOf("phone-7");
  const std::string server = "fleet.example.invalid:443";
  const absl::Status enrolled = Enrol(server, authority_.InviteFor("phone-7"), files);
  EXPECT_TRUE(enrolled.ok()) << enrolled;
  const absl::Status renewed = RenewCertificate(server, files);  // the server's own answer
  EXPECT_TRUE(absl::IsFailedPrecondition(renewed)) << renewed;
  EXPECT_THAT(renewed.message(), HasSubstr("is not due"));
}

}  // namespace
}  // namespace macaw::wire
