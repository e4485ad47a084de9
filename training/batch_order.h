#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/run_config.h"

namespace macaw::training {

// Which rows each local step sees: epochs of batches, shuffled anew each epoch from (seed, round,
// phase, client, stage, epoch), or exactly `steps` batches over as many epochs as that takes. Every
// trainer walks this one order. One thread at a time; one object serves a slot for its life, so
// that its memory is allocated once.
class BatchOrder {
 public:
  // What becomes of a last batch of a single row: kept, or joined to the one before it, because
  // batch norm cannot learn a variance from one row.
  enum class Single : uint8_t { kKeep, kJoin };

  // `key` names seed, round, phase and client; purpose and extra are set here.
  void Start(StreamKey key, uint32_t stage, uint64_t rows, const LocalConfig& local,
             Single single = Single::kKeep);
  // The positions of the next step's rows, until the next call; empty when there are no more.
  std::span<const uint32_t> Next();
  uint32_t epoch() const { return epoch_; }  // of the batch that Next returned last
  // Steps that Next will give in all; 0 where no batch is left to take (no rows, or fewer than
  // drop_last asks for).
  uint64_t steps() const { return steps_; }

 private:
  void BeginEpoch();

  StreamKey key_;
  uint32_t stage_ = 0;
  uint64_t batch_ = 0;
  uint64_t per_epoch_ = 0;
  uint64_t steps_ = 0;
  uint64_t taken_ = 0;
  uint64_t within_ = 0;  // the epoch under way
  uint32_t next_epoch_ = 0;
  uint32_t epoch_ = 0;
  bool shuffle_ = true;
  bool joins_ = false;  // the last batch of an epoch has one row more
  std::vector<uint32_t> order_;
};

}  // namespace macaw::training
