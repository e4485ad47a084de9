#pragma once

#include <cstdint>

#include "scheduler/plan.h"

namespace macaw::scheduler {

// The policies; each one's file opens with its assumptions.

class RoundRobinScheduler final : public Scheduler {
 public:
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;
};

class UniformScheduler final : public Scheduler {
 public:
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;
};

class RandomScheduler final : public Scheduler {
 public:
  explicit RandomScheduler(uint64_t seed) : seed_(seed) {}
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;

 private:
  const uint64_t seed_;
};

class LongestFirstScheduler final : public Scheduler {
 public:
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;
};

class PlannedStealingScheduler final : public Scheduler {
 public:
  Plan Assign(const Cohort& cohort, std::span<const WorkerInfo> workers) const override;
};

}  // namespace macaw::scheduler
