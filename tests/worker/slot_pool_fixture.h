#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "tests/worker/synthetic_run.h"
#include "worker/slot_pool.h"

namespace macaw::worker::fixtures {

// A pool's side of a run of twelve clients with FedAvg, without a server.
class SlotPoolTest : public testing::Test {
 protected:
  SlotPoolTest() : dataset_(SyntheticClients()) {
    context_.run = SyntheticRun(*dataset_, 1);
    context_.run.algorithm = *Registry().Complete(context_.run.algorithm);
    context_.epoch = 1;
    context_.backends = &OnlyFused();
    context_.spec = *models::BuildSpec(context_.run.model, context_.run.dtype);
    Use(**Registry().Find("fedavg"));
    model_ = models::InitialModel(context_.spec, 1);
  }

  void Use(const algorithms::Description& rule) {
    const algorithms::Setup setup{.config = context_.run.algorithm,
                                  .layout = context_.spec.layout,
                                  .local = context_.run.local,
                                  .cohort = context_.run.cohort,
                                  .clients = context_.run.clients,
                                  .total_weight = TotalWeight(context_.run),
                                  .contribution_bound = context_.run.contribution_bound};
    context_.schema = *rule.schema(setup);
    context_.algorithm = *rule.client(setup);
  }

  std::unique_ptr<SlotPool> Start(uint32_t slots, std::vector<double> slowdown = {}) {
    auto pool =
        SlotPool::Start(context_, *dataset_, slots,
                        {.config = {.slowdown = std::move(slowdown)}, .run_slots = slots}, marker_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }

  std::shared_ptr<PhaseContext> Phase1() const {
    auto phase = std::make_shared<PhaseContext>();
    phase->round = Round(1);
    phase->vectors = {model_.view()};
    phase->order = {
        .max_weight = 100, .total_weight = 1200, .max_multiplicity = 1, .total_multiplicity = 12};
    phase->local = context_.run.local;
    return phase;
  }

  std::vector<fleet::Assignment> Assignments(uint64_t begin, uint64_t end) const {
    std::vector<fleet::Assignment> assignments;
    for (uint64_t k = begin; k < end; ++k) {
      assignments.push_back(
          {.client = ClientId(k),
           .place = k,
           .fence = {1, k + 1},
           .weight = static_cast<double>(dataset_->Examples(ClientId(k), data::Split::kTrain))});
    }
    return assignments;
  }

  Harvest TrainAll(uint32_t slots) {
    const auto pool = Start(slots);
    pool->Enqueue(Phase1(), Assignments(0, 12), TimePoint{});
    EXPECT_TRUE(pool->WaitIdle());
    Harvest harvest = *pool->TakeHarvest();
    EXPECT_EQ(pool->held(), 12u) << "until the harvest is committed";
    pool->Settle();
    EXPECT_EQ(pool->held(), 0u);
    return harvest;
  }

  // From now on clients are trained by `backend`, which must outlive the pools.
  void UseBackend(const training::Backend& backend) {
    with_backend_.Add(backend);
    context_.backends = &with_backend_;
    context_.backend.name = backend.name();
  }

  std::unique_ptr<data::Dataset> dataset_;
  training::Backends with_backend_{""};
  RunContext context_;
  FlatVector model_;
  RunningMarker marker_ = *RunningMarker::Open("", "", 0);
};

// What the harvest's clients have added up to.
inline Digest SumOf(const Harvest& harvest) {
  return fleet::Blob::Of(*aggregation::ExactSum::EncodeTogether(harvest.sums)).digest;
}

}  // namespace macaw::worker::fixtures
