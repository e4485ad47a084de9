#include "scheduler/sweep.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace macaw::scheduler {
namespace {

// A bijection of 64-bit words in which every output bit depends on all input bits (Stafford's
// variant 13).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class SweepSampler final : public CohortSampler {
 public:
  SweepSampler(uint64_t seed, uint64_t size, Trainable clients, SweepOrder order)
      : seed_(seed), rounds_(clients.size(), size), order_(order), clients_(std::move(clients)) {}

  Cohort Sample(const Moment& moment) const override {
    const Round round = moment.round;
    const uint64_t turns = std::max<uint64_t>(round.value, 1) - 1;  // rounds are numbered from 1
    const uint64_t turn = turns % rounds_.rounds;
    const KeyedPermutation order({.seed = seed_,
                                  .purpose = Purpose::kCohort,
                                  .extra = order_ == SweepOrder::kNew ? turns / rounds_.rounds : 0},
                                 clients_.size());
    const uint64_t begin = turn * rounds_.share + std::min(turn, rounds_.longer);
    std::vector<uint64_t> ids(rounds_.share + (turn < rounds_.longer ? 1 : 0));
    for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = order(begin + i);
    return {round, clients_.Entries(std::move(ids))};
  }

 private:
  const uint64_t seed_;
  const SweepRounds rounds_;
  const SweepOrder order_;
  const Trainable clients_;
};

}  // namespace

KeyedPermutation::KeyedPermutation(const StreamKey& key, uint64_t size)
    : size_(size), half_bits_(std::max((static_cast<int>(std::bit_width(size - 1)) + 1) / 2, 1)) {
  RandomStream stream(key);
  for (uint64_t& word : keys_) word = stream.NextU64();
}

uint64_t KeyedPermutation::Scramble(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) left = std::exchange(right, left ^ (Mix(right ^ key) & mask));
  return left << half_bits_ | right;
}

uint64_t KeyedPermutation::operator()(uint64_t index) const {
  uint64_t value = Scramble(index);
  while (value >= size_) value = Scramble(value);
  return value;
}

std::unique_ptr<CohortSampler> MakeSweepSampler(uint64_t seed, uint64_t size, Trainable clients,
                                                SweepOrder order) {
  return std::make_unique<SweepSampler>(seed, size, std::move(clients), order);
}

}  // namespace macaw::scheduler
