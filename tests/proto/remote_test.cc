#include "proto/wire/remote.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "proto/wire/address.h"
#include "proto/wire/limits.h"
#include "proto/wire/listener.h"
#include "proto/wire/refusal.h"
#include "testing/bad_network.h"
#include "testing/test_address.h"
#include "tests/proto/link_contract.h"

namespace macaw::fleet {

template <bool kUnixSocket, uint64_t kMaxInline>
class RemoteFixture : public LinkFixture {
 public:
  RemoteFixture() {
    auto server = wire::FleetServer::Start(
        {.listen = kUnixSocket ? folder_.address() : ":0", .max_inline_bytes = kMaxInline},
        *handler_);
    server_ = *std::move(server);
    link_ = *wire::Dial({.server = server_->address()});
  }

 private:
  wire::SocketFolder folder_;
  std::unique_ptr<wire::FleetServer> server_;
};

using Remotes = testing::Types<RemoteFixture<true, 1 << 20>, RemoteFixture<false, 1 << 20>,
                               RemoteFixture<true, 0>, RemoteFixture<false, 1000>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Remote, LinkContract, Remotes);

}  // namespace macaw::fleet

namespace macaw::wire {
namespace {

using fleet::FakeHandler;
using testing::HasSubstr;

// How long something took; the bounds in these tests are far from what is usual and far from the
// time-outs.
template <typename F>
double SecondsOf(F&& f) {
  const TimePoint start = SteadyClock().Now();
  f();
  return ToSeconds(SteadyClock().Now() - start);
}

TEST(Remote, ACallersTokenSaysWhoItIs) {
  FakeHandler handler;
  const auto identify = [](absl::string_view token) {
    return std::make_shared<const fleet::Caller>(
        token == "secret" ? fleet::Caller{.role = fleet::Role::kNode, .node = "anna"}
                          : fleet::Caller{.role = fleet::Role::kStranger});
  };
  const auto server = *FleetServer::Start({.listen = ":0", .identify = identify}, handler);
  for (const auto& [token, node] : {std::pair("secret", "anna"), {"guess", ""}, {"", ""}}) {
    const auto link = *Dial({.server = server->address(), .token = token});
    ASSERT_TRUE(link->Hello({1, 0, "test"}).ok());
    EXPECT_EQ(handler.caller().node, node);
    EXPECT_EQ(handler.caller().role, node[0] != 0 ? fleet::Role::kNode : fleet::Role::kStranger);
  }
}

TEST(Remote, AnswersThatWereGivenArriveBeforeTheServerCloses) {
  constexpr size_t kCallers = 64;
  FakeHandler handler;
  handler.ParkPolls();
  auto server = *FleetServer::Start({.listen = ":0"}, handler);
  std::atomic<size_t> told = 0;
  std::vector<std::unique_ptr<fleet::FleetLink>> links;
  std::vector<std::thread> callers;
  for (size_t i = 0; i < kCallers; ++i) {
    links.push_back(*Dial({.server = server->address()}));
    callers.emplace_back([&told, link = links.back().get()] {
      const auto reply = link->Lease({.session = SessionId(7), .wait = FromSeconds(60)});
      if (reply.ok() && reply->next == fleet::Next::kFinished) ++told;
    });
  }
  handler.AwaitParked(kCallers);
  for (auto& reply : handler.TakeParked())
    std::move(reply)(fleet::LeaseReply{.next = fleet::Next::kFinished});
  server.reset();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(told, kCallers);
}

TEST(Remote, HelloTellsTheServersLimits) {
  FakeHandler handler;
  const auto server = *FleetServer::Start(
      {.listen = ":0", .max_inline_bytes = 123, .max_blob_bytes = 4567}, handler);
  const auto link = *Dial({.server = server->address()});
  const auto hello = link->Hello({1, 0, "test"});
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->program, "fake for test");
  EXPECT_EQ(hello->max_inline_bytes, 123u);
  EXPECT_EQ(hello->max_blob_bytes, 4567u);
  EXPECT_EQ(link->Hello({2, 0, "future"}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Remote, WorkWhoseCallerHasGoneIsGivenBack) {
  FakeHandler handler;
  handler.ParkPolls();
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  fleet::LeaseReply lease = fleet::WorkWith({});
  lease.evaluation.emplace().tasks.push_back({.fence = Fence{1, 9}});
  // When the server hears that a caller has gone is the network's affair: until it does, work goes
  // out in vain.
  std::vector<fleet::ReleaseRequest> released;
  while (released.empty()) {
    const auto link = *Dial({.server = server->address()});
    std::thread worker([&] {
      EXPECT_FALSE(link->Lease({.session = SessionId(7), .wait = FromSeconds(60)}).ok());
    });
    handler.AwaitParked(1);
    link->Shutdown();
    worker.join();
    std::move(handler.TakeParked().at(0))(lease);
    released = handler.TakeReleased();
  }
  EXPECT_EQ(released.at(0).session, SessionId(7));
  EXPECT_EQ(released.at(0).attempts, std::vector<Attempt>({{ClientId(5), Fence{1, 2}}}));
  EXPECT_EQ(released.at(0).tasks, std::vector<Fence>({Fence{1, 9}}));
  EXPECT_FALSE(released.at(0).leaving);
}

TEST(Remote, ReadsOneCommitOfASessionAtATime) {
  FakeHandler handler;
  handler.ParkCommits(true);
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  const auto link = *Dial({.server = server->address()});
  absl::StatusOr<fleet::CommitReply> first, other;
  std::thread worker([&] { first = link->Commit(fleet::PartWith({})); });
  auto parked = handler.AwaitParkedCommits();
  const absl::Status again = link->Commit(fleet::PartWith({})).status();
  EXPECT_TRUE(absl::IsUnavailable(again)) << again;  // who is patient comes again
  EXPECT_EQ(ReasonOf(again), v1::Refusal::REASON_BUSY);
  // Nobody else waits for it, and its next may come as soon as it is judged.
  handler.ParkCommits(false);
  fleet::CommitRequest others = fleet::PartWith({});
  others.session = SessionId(8);
  EXPECT_TRUE(link->Commit(others).ok());
  parked.at(0).first = {};
  EXPECT_TRUE(link->Commit(fleet::PartWith({})).ok());
  std::move(parked.at(0).second)(fleet::CommitReply{.verdict = fleet::Verdict::kAccepted});
  worker.join();
  EXPECT_TRUE(first.ok()) << first.status();
}

// The server reads one registration of a node at a time; it is done with one that is answered.
TEST(Remote, ANodeThatHasItsAnswerMayRegisterAgain) {
  FakeHandler handler;
  const auto server = *FleetServer::Start(
      {.listen = ":0",
       .identify =
           [](absl::string_view) {
             return std::make_shared<const fleet::Caller>(fleet::Caller{.node = "node"});
           }},
      handler);
  const auto link = *Dial({.server = server->address()});
  for (int i = 0; i < 300; ++i) {
    const absl::Status status = link->Register({.name = "node"}).status();
    ASSERT_NE(ReasonOf(status), v1::Refusal::REASON_BUSY) << i << ": " << status;
  }
}

TEST(Remote, ServesWhoConnectedBeforeThereWasAServer) {
  FakeHandler handler;
  const ServerOptions options{.listen = ":0"};
  auto listener = *FleetServer::Bind(options);
  const auto link = *Dial({.server = listener->address().Text()});
  std::future<absl::Status> hello = std::async(std::launch::async, [&] {
    return link->Hello({1, 0, "early"}).status();
  });
  EXPECT_EQ(hello.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  const auto server = *FleetServer::Start(options, std::move(listener), handler);
  EXPECT_EQ(hello.get(), absl::OkStatus());
}

TEST(Remote, TurnsCallsInUnknownSessionsDownWithoutTheHandler) {
  FakeHandler handler;
  handler.Forget(SessionId(9));
  handler.ParkPolls();  // whoever gets through waits
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  const auto link = *Dial({.server = server->address()});
  const auto lease = link->Lease({.session = SessionId(9), .wait = FromSeconds(60)});
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->next, fleet::Next::kRegister);
  const auto beat = link->Heartbeat({.session = SessionId(9), .held = {{ClientId(1), {1, 1}}}});
  ASSERT_TRUE(beat.ok()) << beat.status();
  EXPECT_FALSE(beat->known);
  EXPECT_TRUE(link->Release({.session = SessionId(9)}).ok());
}

TEST(Remote, DialsOnceACallSoThatItsCallerSetsThePace) {
  FakeHandler handler;
  const auto server = *FleetServer::Start({.listen = "127.0.0.1:0"}, handler);
  testing_support::BadNetwork proxy(  // hangs up on the first 20
      server->address(), testing_support::CutsAfter(std::vector<uint64_t>(20, 0)));
  const auto link = *Dial({.server = proxy.address()});
  for (int call = 1; call <= 20; ++call) {
    EXPECT_TRUE(absl::IsUnavailable(link->Hello({}).status())) << call;
    EXPECT_EQ(proxy.faults(), call);
  }
  EXPECT_TRUE(link->Hello({}).ok());
}

TEST(Remote, FindsAServerThatIsBackWithTheNextCall) {
  FakeHandler handler;
  const SocketFolder folder;
  auto server = *FleetServer::Start({.listen = folder.address()}, handler);
  const auto link = *Dial({.server = folder.address()});
  for (int death = 0; death < 5; ++death) {
    ASSERT_TRUE(link->Hello({}).ok());
    server.reset();
    EXPECT_TRUE(absl::IsUnavailable(link->Hello({}).status()));
    server = *FleetServer::Start({.listen = folder.address()}, handler);
  }
}

TEST(Remote, CutsALongWait) {
  FakeHandler handler;
  const auto server = *FleetServer::Start({.listen = ":0", .max_poll = FromSeconds(2)}, handler);
  const auto link = *Dial({.server = server->address()});
  ASSERT_TRUE(link->Lease({.wait = FromSeconds(1000)}).ok());
  EXPECT_EQ(handler.last_wait(), FromSeconds(2));
  ASSERT_TRUE(link->Lease({.wait = FromSeconds(1)}).ok());
  EXPECT_EQ(handler.last_wait(), FromSeconds(1));
}

TEST(Remote, DoesNotSendWhatTheWorkerHas) {
  FakeHandler handler;
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  const auto link = *Dial({.server = server->address()});
  const fleet::Blob broadcast = fleet::RandomBlob(1000, 1);
  handler.SetLease(fleet::WorkWith(broadcast));
  EXPECT_NE(link->Lease({SessionId(1), 1, 0, {}})->training->broadcast.channels[0].bytes, nullptr);
  const auto known = link->Lease({SessionId(1), 1, 0, {broadcast.digest}});
  EXPECT_EQ(known->training->broadcast.channels[0].bytes, nullptr);
  EXPECT_EQ(known->training->broadcast.name, broadcast.digest);
}

TEST(Remote, NobodyThereIsUnavailableAndASlowAnswerIsPastItsDeadline) {
  const auto nobody = *Dial({.server = "unix:/tmp/macaw-no-such-socket"});
  EXPECT_EQ(nobody->Hello({}).status().code(), absl::StatusCode::kUnavailable);
  FakeHandler handler;
  handler.ParkPolls();
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  const auto link = *Dial({.server = server->address(), .call_timeout = FromSeconds(0.2)});
  EXPECT_EQ(link->Lease({.wait = FromSeconds(0.1)}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // The server noticed that the caller has gone; the late answer finds nobody.
  for (auto& parked : handler.TakeParked()) std::move(parked)(fleet::LeaseReply{});
}

TEST(Remote, AServerWithParkedPollsStopsAtOnce) {
  FakeHandler handler;
  handler.ParkPolls();
  auto server = *FleetServer::Start({.listen = ":0"}, handler);
  std::vector<std::thread> workers;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([address = server->address()] {
      const auto link = *Dial({.server = address});
      EXPECT_EQ(link->Lease({.wait = FromSeconds(50)}).status().code(),
                absl::StatusCode::kUnavailable);
    });
  }
  handler.AwaitParked(8);
  EXPECT_LT(SecondsOf([&] { server.reset(); }), 45) << "the polls wait for 50 s";
  for (std::thread& worker : workers) worker.join();
  // Half are answered after the server has gone, half are only let go of.
  auto parked = handler.TakeParked();
  for (size_t i = 0; i < 4; ++i) std::move(parked[i])(fleet::LeaseReply{});
}

TEST(Remote, AnswersRaceWithCallersThatGo) {
  FakeHandler handler;
  handler.ParkPolls();
  const auto server = *FleetServer::Start({.listen = ":0"}, handler);
  for (int i = 0; i < 30; ++i) {
    auto link = *Dial({.server = server->address()});
    std::thread caller([&] { link->Lease({.wait = FromSeconds(50)}).status().IgnoreError(); });
    handler.AwaitParked(1);
    std::thread engine([&] {
      for (auto& parked : handler.TakeParked()) std::move(parked)(fleet::LeaseReply{});
    });
    link->Shutdown();
    caller.join();
    engine.join();
  }
}

TEST(Remote, AServerComesBackOnTheSameSocket) {
  const SocketFolder folder;
  FakeHandler handler;
  auto server = *FleetServer::Start({.listen = folder.address()}, handler);
  const auto link = *Dial({.server = folder.address()});
  ASSERT_TRUE(link->Hello({}).ok());
  server.reset();
  EXPECT_EQ(link->Hello({}).status().code(), absl::StatusCode::kUnavailable);
  server = *FleetServer::Start({.listen = folder.address()}, handler);
  absl::Status status;
  const double seconds = SecondsOf([&] {
    do status = link->Hello({}).status();
    while (!status.ok() && absl::IsUnavailable(status));
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_LT(seconds, 60);
}

TEST(Listening, ATakenPortAndATakenSocketAreClearErrors) {
  const SocketFolder folder;
  FakeHandler handler;
  const auto tcp = *FleetServer::Start({.listen = ":0"}, handler);
  const auto taken = FleetServer::Start({.listen = tcp->address()}, handler);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("port in use"));
  const auto socket = *FleetServer::Start({.listen = folder.address()}, handler);
  const auto second = FleetServer::Start({.listen = folder.address()}, handler);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server listens"));
  EXPECT_TRUE((*Dial({.server = folder.address()}))->Hello({}).ok());  // the first one is unharmed
}

TEST(Listening, RemovesAStaleSocketButNoOtherFile) {
  const SocketFolder folder;
  FakeHandler handler;
  {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, folder.path().c_str());
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(fd);  // bound, never listened on, left behind
  }
  auto server = FleetServer::Start({.listen = folder.address()}, handler);
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat info;
  ASSERT_EQ(stat(folder.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  server->reset();
  EXPECT_NE(stat(folder.path().c_str(), &info), 0);  // gone with its server
  std::ofstream(folder.path()) << "precious";
  EXPECT_EQ(FleetServer::Start({.listen = folder.address()}, handler).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(stat(folder.path().c_str(), &info), 0);
}

TEST(Listening, RefusesBadAddressesByName) {
  FakeHandler handler;
  const auto why = [&](const std::string& listen) {
    return std::string(FleetServer::Start({.listen = listen}, handler).status().message());
  };
  EXPECT_THAT(why("unix:/tmp/" + std::string(120, 'x')), HasSubstr("the system takes 107"));
  EXPECT_THAT(why("unix:"), HasSubstr("names no path"));
  EXPECT_THAT(why("unix:/tmp/no/such/folder/s"),
              HasSubstr("there is no folder /tmp/no/such/folder/"));
  EXPECT_THAT(why("localhost"), HasSubstr("neither unix:/path nor host:port"));
  EXPECT_THAT(why("localhost:70000"), HasSubstr("0 to 65535"));
  EXPECT_THAT(why("0.0.0.0:0"), HasSubstr("need certificates"));
  EXPECT_THAT(std::string(Dial({.server = "example.org:443"}).status().message()),
              HasSubstr("need certificates"));
  EXPECT_FALSE(
      FleetServer::Start({.listen = ":0", .max_inline_bytes = kMaxInlineBytes + 1}, handler).ok());
}

}  // namespace
}  // namespace macaw::wire
