#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/local.h"

namespace macaw {

// The steps of a pass over `rows`: its batches, without a last one that is not full if drop_last
// says so. (A model with batch norm joins a last batch of one row to the one before.)
inline uint64_t StepsOfAnEpoch(const LocalConfig& local, uint64_t rows) {
  const uint64_t batch = local.batch_size > 0 ? local.batch_size : std::max<uint64_t>(rows, 1);
  return local.drop_last ? rows / batch : (rows + batch - 1) / batch;
}

// The steps of a client's whole work.
inline uint64_t StepsOf(const LocalConfig& local, uint64_t rows) {
  return local.steps > 0 ? local.steps : local.epochs * StepsOfAnEpoch(local, rows);
}

// The rows that pass through the model in a client's whole work, each as often as it does.
inline uint64_t RowsPassed(const LocalConfig& local, uint64_t rows) {
  const uint64_t batch = local.batch_size > 0 ? std::min<uint64_t>(local.batch_size, rows) : rows;
  if (local.steps > 0) return local.steps * batch;
  return local.epochs * (local.drop_last && batch > 0 ? rows / batch * batch : rows);
}

// The fewest rows with which a client can take a step: a batch, where drop_last leaves out one that
// is not full. A client with fewer counts as one without training rows: no round draws it, and the
// N and W of the rules are without it.
inline uint32_t LeastRows(const LocalConfig& local) {
  return local.drop_last ? std::max(local.batch_size, 1U) : 1;
}

}  // namespace macaw
