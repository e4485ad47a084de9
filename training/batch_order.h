#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "plan/local.h"

namespace macaw::training {

// The rows of each local step: epochs of batches, shuffled in each epoch by (seed, round, phase,
// client, stage, epoch), or exactly `steps` batches over as many epochs as needed. All trainers use
// this order. One thread at a time. A slot uses one object for all its clients, so that memory is
// allocated once.
class BatchOrder {
 public:
  // How to treat a last batch of one row: keep it, or join it to the batch before, because batch
  // norm cannot compute a variance from one row.
  enum class Single : uint8_t { kKeep, kJoin };

  // `key` holds seed, round, phase and client; purpose and extra are set here.
  void Start(StreamKey key, uint32_t stage, uint64_t rows, const LocalConfig& local,
             Single single = Single::kKeep);
  // The positions of the next step's rows, valid until the next call; empty at the end.
  std::span<const uint32_t> Next();
  uint32_t epoch() const { return epoch_; }  // of the last batch returned by Next
  // The number of steps that Next will return; 0 if there is no batch (no rows, or fewer than one
  // batch with drop_last).
  uint64_t steps() const { return steps_; }

 private:
  void BeginEpoch();

  StreamKey key_;
  uint32_t stage_ = 0;
  uint64_t batch_ = 0;
  uint64_t per_epoch_ = 0;
  uint64_t steps_ = 0;
  uint64_t taken_ = 0;
  uint64_t within_ = 0;  // position within the current epoch
  uint32_t next_epoch_ = 0;
  uint32_t epoch_ = 0;
  bool shuffle_ = true;
  bool joins_ = false;  // the last batch of an epoch has one row more
  std::vector<uint32_t> order_;
};

}  // namespace macaw::training
