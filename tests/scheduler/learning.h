#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/cohort.h"
#include "scheduler/feedback.h"

namespace macaw::scheduler::fixtures {

// A population whose cohorts follow what rounds told, with the rounds' facts by hand.
class Learning {
 public:
  Learning(CohortConfig config, std::vector<uint32_t> rows)
      : rows_(std::move(rows)),
        feedback_(config),
        sampler_(*MakeCandidates(config, rows_, nullptr, &feedback_)) {}

  struct Told {
    uint64_t client = 0;
    std::optional<double> loss = {};
    std::optional<double> seconds = {};
    bool left_out = false;
  };
  void Close(uint32_t round, const std::vector<Told>& told) {
    std::vector<ClientFact> facts;
    for (const Told& one : told) {
      facts.push_back({.client = ClientId(one.client),
                       .rows = rows_[one.client],
                       .loss = one.loss,
                       .seconds = one.seconds,
                       .left_out = one.left_out});
    }
    feedback_.Observe(Round(round), facts);
  }
  std::vector<uint64_t> Draw(const Moment& moment) const {
    std::vector<uint64_t> ids;
    for (const CohortEntry& entry : sampler_->Sample(moment).entries)
      ids.push_back(entry.client.value);
    return ids;
  }
  std::vector<uint64_t> Draw(uint32_t round) const { return Draw(Moment(Round(round))); }
  Feedback& feedback() { return feedback_; }

 private:
  const std::vector<uint32_t> rows_;
  Feedback feedback_;
  const std::unique_ptr<CohortSampler> sampler_;
};

}  // namespace macaw::scheduler::fixtures
