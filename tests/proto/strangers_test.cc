// What callers cost a server before they have shown who they are, and how it gets rid of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <future>
#include <list>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "identity/audit.h"
#include "proto/wire/connection_guard.h"
#include "proto/wire/remote.h"
#include "testing/fake_handler.h"
#include "testing/raw_caller.h"
#include "tests/proto/test_authority.h"

namespace macaw::wire {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kEnrol[] = "/macaw.v1.Enrolment/Enrol";
constexpr char kHello[] = "/macaw.v1.Fleet/Hello";

// A guard and a port whose accepted connections nobody reads.
class Guard : public testing::Test {
 protected:
  void Start(const GuardLimits& limits) {
    guard_ = std::make_unique<ConnectionGuard>(
        limits,
        [this](absl::string_view address, absl::string_view why) {
          absl::MutexLock lock(&mutex_);
          told_.push_back(absl::StrCat(address, " ", why));
        },
        [] {});
    listening_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof(at);
    ASSERT_EQ(bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    ASSERT_EQ(listen(listening_.get(), 64), 0);
    getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }
  struct Pair {
    Fd caller, server;
    std::string peer;
    bool admitted = false;
  };
  Pair Connect(const char* from = "127.0.0.1") {
    Pair pair{.caller = ConnectTo(address_, from)};
    sockaddr_in at{};
    socklen_t size = sizeof(at);
    pair.server = Fd(accept(listening_.get(), reinterpret_cast<sockaddr*>(&at), &size));
    pair.peer = absl::StrCat("ipv4:", from, ":", ntohs(at.sin_port));
    pair.admitted = guard_->Admit(pair.server.get());
    return pair;
  }
  void Identify(const Pair& pair, const std::string& name) {
    guard_->Identified(pair.peer, name, [&] { return "certificate of " + name; });
  }
  std::vector<std::string> told() {
    absl::MutexLock lock(&mutex_);
    return told_;
  }

  Fd listening_;
  std::string address_;
  absl::Mutex mutex_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ConnectionGuard> guard_;  // destroyed first
};

TEST_F(Guard, CutsAStrangerThatSendsTooMuchAndNobodyElse) {
  Start({.stranger_bytes = 10'000});
  const Pair stranger = Connect(), quiet = Connect(), known = Connect();
  Identify(known, "phone-7");
  const std::string bytes(20'000, 'x');
  ASSERT_TRUE(WriteAll(quiet.caller, BytesOf(bytes.substr(0, 9'000))));
  ASSERT_TRUE(WriteAll(known.caller, BytesOf(bytes)));
  ASSERT_TRUE(WriteAll(stranger.caller, BytesOf(bytes)));
  for (const Pair* pair : {&stranger, &quiet, &known}) {  // what waits does not count
    std::string read(bytes.size(), '\0');
    recv(pair->server.get(), read.data(), read.size(), MSG_DONTWAIT);
  }
  EXPECT_TRUE(HangsUpWithin(stranger.caller, 30'000));
  EXPECT_FALSE(HangsUpWithin(quiet.caller, 0));
  EXPECT_FALSE(HangsUpWithin(known.caller, 0));
  EXPECT_THAT(told(), ElementsAre(HasSubstr("127.0.0.1 sent more than 10000 bytes")));
}

// A handshake costs the server more than the stranger, who may begin one after another.
TEST_F(Guard, AStrangerComesAFewTimesAndAKnownCallerAsOftenAsItLikes) {
  Start({.stranger_time = std::chrono::seconds(3),
         .arrivals = {.every = std::chrono::hours(1), .burst = 6},
         .cut_counts = 2});
  for (int i = 0; i < 50; ++i) {
    const Pair known = Connect("127.0.0.2");
    EXPECT_TRUE(known.admitted);
    Identify(known, absl::StrCat("phone-", i));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Connect().admitted);
  const Pair silent = Connect();
  EXPECT_TRUE(silent.admitted);
  EXPECT_TRUE(HangsUpWithin(silent.caller, 30'000)) << "which counts twice more";
  EXPECT_FALSE(Connect().admitted);
  EXPECT_FALSE(Connect().admitted);
  EXPECT_TRUE(Connect("127.0.0.3").admitted) << "others may come";
  EXPECT_THAT(told(),
              testing::Contains("127.0.0.1 comes again and again without showing who it is"));
}

TEST_F(Guard, AnAddressOfKnownCallersMayHaveMoreStrangers) {
  Start({.strangers_of_address = 2,
         .strangers_of_known_address = 5,
         .arrivals = {.every = std::chrono::hours(1), .burst = 2}});
  Pair known = Connect();
  Identify(known, "phone-7");
  std::list<Pair> crowd;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(crowd.emplace_back(Connect()).admitted) << i;
  EXPECT_FALSE(Connect().admitted);
  known.caller.Close();  // and now it has none
  for (int i = 0; i < 100 && guard_->known() > 0; ++i) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(guard_->known(), 0u);
  crowd.clear();
  EXPECT_FALSE(Connect().admitted);
}

TEST_F(Guard, CutsAStrangerInTimeAndGivesOneThatEnrolsMore) {
  Start({.stranger_time = std::chrono::seconds(3),
         .enrolment_time = std::chrono::minutes(1),
         .enrolments = 2});
  const Pair silent = Connect(), enrols = Connect(), known = Connect();
  Identify(known, "phone-7");
  guard_->Enrols(enrols.peer);
  EXPECT_TRUE(HangsUpWithin(silent.caller, 30'000));
  EXPECT_FALSE(HangsUpWithin(enrols.caller, 0));
  EXPECT_FALSE(HangsUpWithin(known.caller, 0));
  guard_->Enrols(enrols.peer);
  EXPECT_FALSE(HangsUpWithin(enrols.caller, 0));
  guard_->Enrols(enrols.peer);  // a third time
  EXPECT_TRUE(HangsUpWithin(enrols.caller, 0));
  EXPECT_THAT(told(), ElementsAre(HasSubstr("made no call"), HasSubstr("asked more than 2 times")));
}

TEST_F(Guard, OneAddressKeepsNoOtherOut) {
  Start({.strangers = 4, .strangers_of_address = 3});
  std::list<Pair> crowd;
  for (int i = 0; i < 3; ++i) crowd.push_back(Connect());
  EXPECT_FALSE(Connect().admitted);
  crowd.push_back(Connect("127.0.0.2"));
  EXPECT_TRUE(crowd.back().admitted);
  // There is room for no more, and the address with most gives way.
  const Pair late = Connect("127.0.0.3");
  EXPECT_TRUE(late.admitted);
  EXPECT_TRUE(HangsUpWithin(crowd.front().caller, 0));
  EXPECT_EQ(guard_->strangers(), 4u);
  // One who has shown its certificate no longer counts.
  Identify(late, "phone-7");
  EXPECT_TRUE(Connect().admitted);
}

TEST_F(Guard, ASecondConnectionFromTheSamePortDoesNotHideTheFirst) {
  Start({});
  const auto connect_to = [&](const char* to, sockaddr_in& from) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in at{};
    socklen_t size = sizeof(at);
    getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    inet_pton(AF_INET, to, &at.sin_addr);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from), &size);
    return fd;
  };
  sockaddr_in from{};
  from.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &from.sin_addr);
  const Fd first = connect_to("127.0.0.1", from), second = connect_to("127.0.0.2", from);
  Fd accepted(accept(listening_.get(), nullptr, nullptr));
  const Fd refused(accept(listening_.get(), nullptr, nullptr));
  EXPECT_TRUE(guard_->Admit(accepted.get()));
  EXPECT_FALSE(guard_->Admit(refused.get()));
  EXPECT_EQ(guard_->strangers(), 1u);
  EXPECT_THAT(told(), ElementsAre(HasSubstr("from the same port")));
  accepted.Close();
  EXPECT_TRUE(guard_->Admit(refused.get()));
}

TEST_F(Guard, ForgetsConnectionsThatEnded) {
  Start({.strangers_of_address = 2});
  for (int i = 0; i < 20; ++i) {
    const Pair pair = Connect();
    EXPECT_TRUE(pair.admitted) << i;
    if (i % 2 == 0) Identify(pair, "phone-7");
  }
  Start({});  // the first guard has stopped, and knows no descriptor that is in use again
}

TEST_F(Guard, ANameHasSoManyConnectionsAndTheOldestGoes) {
  Start({.of_name = 2});
  std::list<Pair> pairs;
  for (int i = 0; i < 3; ++i) {
    pairs.push_back(Connect());
    Identify(pairs.back(), "phone-7");
  }
  EXPECT_TRUE(HangsUpWithin(pairs.front().caller, 0));
  EXPECT_FALSE(HangsUpWithin(pairs.back().caller, 0));
  guard_->CutWhere([](const std::string& name, const std::string& certificate) {
    EXPECT_EQ(certificate, "certificate of " + name);
    return "was revoked";
  });
  EXPECT_TRUE(HangsUpWithin(pairs.back().caller, 0));
  EXPECT_EQ(guard_->known(), 0u);
}

uint64_t MemoryInUse() {  // bytes
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class Strangers : public testing::Test {
 protected:
  Strangers() {
    ::signal(SIGPIPE, SIG_IGN);  // the callers write to connections that were cut
    audit_ = *identity::Audit::Open(AuditFile());
    Restart(":0");
  }
  void Restart(const std::string& address, const Allowance& calls_of_name = kCallsOfName) {
    server_.reset();
    server_ = *FleetServer::Start({.listen = address,
                                   .authority = authority_.get(),
                                   .audit = audit_.get(),
                                   .calls_of_name = calls_of_name},
                                  handler_);
  }
  std::string AuditFile() const { return authority_.path() + "/audit.jsonl"; }
  std::string AuditText() {
    server_.reset();
    audit_.reset();
    return *ReadFile(AuditFile());
  }
  TestAuthority authority_;
  fleet::FakeHandler handler_;
  std::unique_ptr<identity::Audit> audit_;
  std::unique_ptr<FleetServer> server_;
};

TEST_F(Strangers, RequestsThatAreNeverCompleteFillNoMemory) {
  const uint64_t before = MemoryInUse();
  uint64_t sent = 0;
  std::list<RawCaller> callers;
  for (int i = 0; i < 4; ++i) {
    RawCaller& caller = callers.emplace_back(server_->address());
    ASSERT_TRUE(caller.open());
    constexpr uint32_t kMessage = 4 << 20;
    for (int stream = 0; stream < 64 && caller.open(); ++stream)
      caller.SendPartOfMessage(caller.Begin(kEnrol), kMessage - 100, kMessage);
    caller.ReadToTheEnd();
    sent += caller.sent();
  }
  EXPECT_LT(MemoryInUse(), before + (uint64_t{100} << 20)) << sent << " bytes were sent";
  EXPECT_LT(sent, uint64_t{200} << 20);
  EXPECT_THAT(AuditText(), HasSubstr("bytes before a call with a good certificate"));
}

TEST_F(Strangers, CallsThatAreBegunAndAbandonedEndTheConnection) {
  RawCaller caller(server_->address());
  int begun = 0;
  for (; begun < 100'000 && caller.open(); ++begun) caller.Reset(caller.Begin(kHello));
  EXPECT_FALSE(caller.open());
  EXPECT_LT(caller.sent(), uint64_t{16} << 20);
  EXPECT_THAT(AuditText(), HasSubstr("bytes before a call with a good certificate"));
}

TEST_F(Strangers, ADeviceThatBeginsAndAbandonsCallsIsCutToo) {
  const identity::IdentityFiles files = authority_.Certified("phone-7");
  Restart(":0", {.every = std::chrono::seconds(1), .burst = 1000});  // the slowest caller is faster
  RawCaller caller(server_->address(), &files);
  caller.Call(kHello, std::string("\x08\x01", 2));  // major: 1
  ASSERT_TRUE(caller.open());
  for (int begun = 0; begun < 200'000 && caller.open(); ++begun) caller.Reset(caller.Begin(kHello));
  EXPECT_FALSE(caller.open());
  EXPECT_THAT(AuditText(), HasSubstr("calls a second"));
}

TEST_F(Strangers, AKnownCallerSendsALargeMessageFirstOverANewConnection) {
  const auto link =
      *Dial({.server = server_->address(), .identity = authority_.Certified("phone-7")});
  ASSERT_TRUE(link->Hello({1, 0, "test"}).ok());
  Restart(server_->address());
  fleet::HeartbeatRequest request{.session = SessionId(7)};
  for (uint64_t i = 0; i < 30'000; ++i) request.held.push_back({ClientId(i), Fence{1, i << 30}});
  absl::Status status = absl::UnavailableError("");
  for (int i = 0; i < 3 && absl::IsUnavailable(status); ++i)  // the first finds the old one broken
    status = link->Heartbeat(request).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(AuditText(), Not(HasSubstr("bytes before")));
}

// By hand: our own client makes a small call first.
TEST_F(Strangers, AKnownCallersFirstCallMayBeAStream) {
  const identity::IdentityFiles files = authority_.Certified("phone-7");
  for (int i = 0; i < 10; ++i) {
    RawCaller caller(server_->address(), &files);
    caller.SendPartOfMessage(caller.Begin("/macaw.v1.Fleet/Upload"), 1 << 20, 2 << 20);
    caller.Call(kHello, std::string("\x08\x01", 2));
    EXPECT_TRUE(caller.open());
    EXPECT_GE(caller.sent(), 1u << 20);
  }
  EXPECT_THAT(AuditText(), Not(HasSubstr("bytes before")));
}

TEST_F(Strangers, ARevocationEndsAnOpenPollAtOnce) {
  const auto link =
      *Dial({.server = server_->address(), .identity = authority_.Certified("phone-7")});
  const auto other =
      *Dial({.server = server_->address(), .identity = authority_.Certified("phone-8")});
  ASSERT_TRUE(link->Hello({1, 0, "test"}).ok());
  ASSERT_TRUE(other->Hello({1, 0, "test"}).ok());
  handler_.ParkPolls();
  auto polls = std::async(std::launch::async, [&] {
    return link->Lease({.session = SessionId(7), .wait = FromSeconds(30)}).status();
  });
  auto others = std::async(std::launch::async, [&] {
    return other->Lease({.session = SessionId(7), .wait = FromSeconds(30)}).status();
  });
  handler_.AwaitParked(2);
  ASSERT_TRUE((*authority_).Revoke("phone-7", "lost in a bus", absl::Now()).ok());
  ASSERT_EQ(polls.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_FALSE(polls.get().ok());
  EXPECT_EQ(others.wait_for(milliseconds(0)), std::future_status::timeout);
  other->Shutdown();
}

}  // namespace
}  // namespace macaw::wire
