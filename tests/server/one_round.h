#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "scheduler/policies/policies.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

// For tests of single rules of the engine, with one worker in one round.

// An engine with one round to do. The test itself plays the workers.
namespace macaw::server {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::kCohort;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::RecordOf;
using fixtures::Table;
using fixtures::TestRun;

// An engine with one round to do. The test itself plays the workers.
class OneRound : public testing::Test {
 protected:
  // `options`: without the run and the number of workers.
  explicit OneRound(EngineOptions options = {}, uint32_t rounds = 1)
      : engine_(OfOneWorker(std::move(options), rounds), scheduler_, durable_, rounds,
                /*phases=*/1) {}
  static EngineOptions OfOneWorker(EngineOptions options, uint32_t rounds) {
    options.run = TestRun(rounds);
    options.workers = 1;
    return options;
  }
  static fleet::RegisterRequest Node(uint64_t incarnation = 1) {
    fleet::RegisterRequest node = NodeWithEverybody("w", /*slots=*/2);
    node.incarnation = incarnation;
    return node;
  }
  SessionId Join(const fleet::RegisterRequest& node) {
    const auto reply = engine_.Register(node, Table(), TimePoint{});
    EXPECT_TRUE(reply.ok()) << reply.status();
    engine_.RunAll(random_, TimePoint{});
    running_ = 0;
    return reply.ok() ? reply->session : SessionId();
  }
  fleet::LeaseReply Lease(SessionId session) {
    engine_.Lease(++ticket_, {.session = session, .wanted = 2, .running = running_}, FromSeconds(1),
                  TimePoint{});
    running_ = 1;
    return engine_.leases.contains(ticket_) ? engine_.leases.at(ticket_) : fleet::LeaseReply{};
  }

  // The part for a lease, with a state version for each client.
  static fleet::Part PartOf(const fleet::TrainingLease& lease) {
    fleet::Part part{.round = lease.round, .broadcast = lease.broadcast.name};
    for (const auto& a : lease.assignments) part.included.push_back(RecordOf(a));
    return part;
  }

  Durable durable_;
  scheduler::PlannedStealingScheduler scheduler_;
  EngineDriver engine_;
  RandomStream random_{{.seed = 1}};
  Ticket ticket_ = 0;
  uint64_t commits_ = 0;
  uint32_t running_ = 0;  // clients that the worker says it holds; not 0 after its first lease
};

}  // namespace macaw::server
