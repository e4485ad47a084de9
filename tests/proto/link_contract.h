#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "testing/fake_handler.h"

// What every FleetLink promises, whatever carries it. A fixture provides `handler_` and `link_`.
namespace macaw::fleet {

class LinkFixture {
 public:
  virtual ~LinkFixture() = default;
  FakeHandler& handler() { return *handler_; }
  FleetLink& link() { return *link_; }

 protected:
  std::unique_ptr<FakeHandler> handler_ = std::make_unique<FakeHandler>();
  std::unique_ptr<FleetLink> link_;
};

inline LeaseReply WorkWith(const Blob& broadcast) {
  LeaseReply reply;
  reply.next = Next::kWork;
  reply.training.emplace();
  reply.training->round = Round(3);
  reply.training->broadcast = Broadcast::Of({broadcast});
  reply.training->assignments.push_back(
      {.client = ClientId(5), .place = 3, .fence = {1, 2}, .weight = 10.0});
  return reply;
}

inline LeaseRequest AskFor(Duration wait) {
  return {.session = SessionId(7), .wanted = 1, .wait = wait};
}

inline CommitRequest PartWith(const Blob& sums, int records = 1) {
  CommitRequest request;
  request.session = SessionId(7);
  request.commit_id = 1;
  request.part.emplace();
  request.part->round = Round(3);
  request.part->sums = sums;
  for (int i = 0; i < records; ++i) {
    ClientRecord record;
    record.attempt = {ClientId(static_cast<uint64_t>(i)), Fence{1, static_cast<uint64_t>(i) + 1}};
    record.sums = {1.5, 2.5};
    request.part->included.push_back(record);
  }
  return request;
}

inline void ExpectSameBytes(const Blob& got, const Blob& want) {
  ASSERT_NE(got.bytes, nullptr);
  EXPECT_EQ(got.digest, want.digest);
  EXPECT_EQ(got.size, want.size);
  EXPECT_TRUE(std::ranges::equal(got.bytes->bytes(), want.bytes->bytes()));
}

template <typename Fixture>
class LinkContract : public testing::Test {
 protected:
  FakeHandler& handler() { return fixture_.handler(); }
  FleetLink& link() { return fixture_.link(); }
  Fixture fixture_;
};
TYPED_TEST_SUITE_P(LinkContract);

TYPED_TEST_P(LinkContract, CarriesCallsAndAnswers) {
  ASSERT_TRUE(this->link().Hello({1, 0, "test"}).ok());
  RegisterRequest request;
  request.name = "worker-0";
  request.clients = 300;
  request.table = RandomBlob(1208, 1);
  const auto registered = this->link().Register(request);
  ASSERT_TRUE(registered.ok()) << registered.status();
  EXPECT_EQ(registered->session, SessionId(7));
  ExpectSameBytes(this->handler().TakeRegistered().at(0).table, request.table);

  HeartbeatRequest beat;
  beat.held = {{ClientId(1), Fence{1, 1}}, {ClientId(9), Fence{1, 2}}};
  const auto beaten = this->link().Heartbeat(beat);
  ASSERT_TRUE(beaten.ok());
  EXPECT_EQ(beaten->dropped, beat.held);
}

TYPED_TEST_P(LinkContract, HandsTheHandlersErrorsOver) {
  const auto released = this->link().Release({.session = SessionId(1), .leaving = true});
  EXPECT_EQ(released.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(released.status().message(), "release: no such session");
}

TYPED_TEST_P(LinkContract, BringsBroadcastAndSumsWhole) {
  for (const size_t size : {size_t{64}, size_t{5000}, size_t{3'500'000}}) {
    const Blob broadcast = RandomBlob(size, 2), sums = RandomBlob(size, 3);
    this->handler().Serve(broadcast);
    this->handler().SetLease(WorkWith(broadcast));
    const auto lease = this->link().Lease(AskFor(FromSeconds(5)));
    ASSERT_TRUE(lease.ok()) << lease.status();
    const auto fetched = this->link().Fetch(lease->training->broadcast.channels[0]);
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    ExpectSameBytes(*fetched, broadcast);

    const auto committed = this->link().Commit(PartWith(sums));
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->verdict, Verdict::kAccepted);
    const auto got = this->handler().TakeCommitted();
    ASSERT_EQ(got.size(), 1u);
    ExpectSameBytes(got[0].part->sums, sums);
  }
}

TYPED_TEST_P(LinkContract, CommitsAndAsksInOneCall) {
  const Blob broadcast = RandomBlob(5000, 2);
  this->handler().Serve(broadcast);
  this->handler().SetLease(WorkWith(broadcast));
  CommitRequest request = PartWith(RandomBlob(64, 3), 100);
  request.ask = AskFor(FromSeconds(1));
  request.ask->wanted = 2;
  request.ask->have = {broadcast.digest};
  const auto committed = this->link().Commit(request);
  ASSERT_TRUE(committed.ok()) << committed.status();
  ASSERT_TRUE(committed->lease.has_value());
  ASSERT_TRUE(committed->lease->training.has_value());
  EXPECT_EQ(committed->lease->training->assignments.at(0).client, ClientId(5));
  EXPECT_EQ(committed->lease->training->broadcast.name, broadcast.digest);

  const auto got = this->handler().TakeCommitted();
  ASSERT_EQ(got.size(), 1u);
  ASSERT_TRUE(got[0].ask.has_value());
  EXPECT_EQ(got[0].ask->wanted, 2u);
  EXPECT_EQ(got[0].ask->have, request.ask->have);
  EXPECT_EQ(this->handler().last_wait(), FromSeconds(1));
  EXPECT_EQ(got[0].part->included.size(), 100u);
  EXPECT_FALSE(this->link().Commit(PartWith(RandomBlob(64, 3)))->lease.has_value());
}

TYPED_TEST_P(LinkContract, SaysThatABlobIsNoLongerServed) {
  Blob blob = RandomBlob(100, 4);
  blob.bytes = nullptr;
  EXPECT_EQ(this->link().Fetch(blob).status().code(), absl::StatusCode::kNotFound);
}

TYPED_TEST_P(LinkContract, ADroppedReplyIsAnError) {
  this->handler().DropPolls();
  const auto lease = this->link().Lease(AskFor(FromSeconds(30)));
  EXPECT_EQ(lease.status().code(), absl::StatusCode::kUnavailable);
}

TYPED_TEST_P(LinkContract, AnswersAParkedPollFromAnotherThread) {
  this->handler().ParkPolls();
  std::thread engine([this] {
    this->handler().AwaitParked(1);
    LeaseReply reply;
    reply.next = Next::kFinished;
    for (auto& parked : this->handler().TakeParked()) std::move(parked)(reply);
  });
  const auto lease = this->link().Lease(AskFor(FromSeconds(30)));
  engine.join();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->next, Next::kFinished);
}

TYPED_TEST_P(LinkContract, ShutdownWakesParkedCallsAndRefusesNewOnes) {
  this->handler().ParkPolls();
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([this] {
      EXPECT_EQ(this->link().Lease(AskFor(FromSeconds(50))).status().code(),
                absl::StatusCode::kCancelled);
    });
  }
  this->handler().AwaitParked(3);
  this->link().Shutdown();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(this->link().Hello({1, 0, "late"}).status().code(), absl::StatusCode::kCancelled);
  // The answers come after the callers have gone, and must find nobody rather than freed memory.
  for (auto& parked : this->handler().TakeParked()) std::move(parked)(LeaseReply{});
}

TYPED_TEST_P(LinkContract, ServesManyThreads) {
  const Blob broadcast = RandomBlob(200'000, 5);
  this->handler().Serve(broadcast);
  this->handler().SetLease(WorkWith(broadcast));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t, &broadcast] {
      const Blob sums = RandomBlob(150'000, 100 + t);
      for (int i = 0; i < 5; ++i) {
        const auto lease = this->link().Lease(AskFor(FromSeconds(5)));
        ASSERT_TRUE(lease.ok()) << lease.status();
        const auto fetched = this->link().Fetch(lease->training->broadcast.channels[0]);
        ASSERT_TRUE(fetched.ok()) << fetched.status();
        ExpectSameBytes(*fetched, broadcast);
        CommitRequest request = PartWith(sums);
        request.session = SessionId(100 + t);
        const auto committed = this->link().Commit(request);
        ASSERT_TRUE(committed.ok()) << committed.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->handler().TakeCommitted().size(), 40u);
}

REGISTER_TYPED_TEST_SUITE_P(LinkContract, CarriesCallsAndAnswers, HandsTheHandlersErrorsOver,
                            BringsBroadcastAndSumsWhole, CommitsAndAsksInOneCall,
                            SaysThatABlobIsNoLongerServed, ADroppedReplyIsAnError,
                            AnswersAParkedPollFromAnotherThread,
                            ShutdownWakesParkedCallsAndRefusesNewOnes, ServesManyThreads);

}  // namespace macaw::fleet
