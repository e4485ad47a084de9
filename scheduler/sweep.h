#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/random.h"
#include "scheduler/cohort.h"
#include "scheduler/trainable.h"

namespace macaw::scheduler {

// A permutation of [0, size) without a table: a Feistel network (Luby and Rackoff 1988) over the
// next power of four, applied again until the result is below size (Black and Rogaway 2002, "cycle
// walking"), fewer than four times on average. A function of key and size alone; immutable.
class KeyedPermutation {
 public:
  KeyedPermutation(const StreamKey& key, uint64_t size);  // size > 0
  uint64_t operator()(uint64_t index) const;              // index < size

 private:
  static constexpr size_t kTurns = 12;  // with 6, ten values are not permuted quite evenly
  uint64_t Scramble(uint64_t value) const;

  const uint64_t size_;
  const int half_bits_;  // of the network's two halves
  std::array<uint64_t, kTurns> keys_;
};

// The rounds of a sweep: as few as `size` clients a round allow, and as equal as N allows. So 12
// clients with a size of 11 are two rounds of 6.
struct SweepRounds {
  SweepRounds(uint64_t clients, uint64_t size)  // both > 0
      : rounds((clients + size - 1) / size), share(clients / rounds), longer(clients % rounds) {}
  uint64_t rounds;
  uint64_t share;   // clients of a round
  uint64_t longer;  // this many first rounds have one more
};

// Sweeps over the clients that can train: each trains once before any trains again, in a new order
// for each sweep (regularized participation; Malinovsky et al. 2023, §3). The ⌈N / size⌉ rounds of
// a sweep differ by at most one client, so none has more than `size`. O(size) per round for any
// population.
// kSame: in the same order each sweep (cyclic participation; Cho, Sharma, Joshi, Xu, Kale and Zhang
// 2023, with whole groups).
enum class SweepOrder : uint8_t { kNew, kSame };
std::unique_ptr<CohortSampler> MakeSweepSampler(uint64_t seed, uint64_t size, Trainable clients,
                                                SweepOrder order = SweepOrder::kNew);

}  // namespace macaw::scheduler
