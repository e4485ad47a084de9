#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/ids.h"
#include "plan/local.h"

namespace macaw {

// The batches of a pass over `rows`: `count` of them, the last with `last` rows and the others with
// `batch`. Those of training/batch_order.h.
struct EpochBatches {
  uint64_t count = 0, batch = 0, last = 0;

  // `joins`: a last batch of one row joins the one before, as batch norm needs.
  static EpochBatches Of(const LocalConfig& local, uint64_t rows, bool joins = false) {
    const uint64_t batch = local.batch_size > 0 ? local.batch_size : std::max<uint64_t>(rows, 1);
    const uint64_t full = rows / batch, rest = rows % batch;
    if (local.drop_last || rest == 0) return {.count = full, .batch = batch, .last = batch};
    if (joins && rest == 1 && full > 0) return {.count = full, .batch = batch, .last = batch + 1};
    return {.count = full + 1, .batch = batch, .last = rest};
  }
  // Of `steps` batches, of which `lasts` are the last of a pass.
  uint64_t Rows(uint64_t steps, uint64_t lasts) const {
    return (steps - lasts) * batch + lasts * last;
  }
};

// The steps of a client's whole work. `joins`: EpochBatches::Of.
inline uint64_t StepsOf(const LocalConfig& local, uint64_t rows, bool joins = false) {
  return local.steps > 0 ? local.steps : local.epochs * EpochBatches::Of(local, rows, joins).count;
}

// What a client does in a turn, by the plan.
struct LocalTurn {
  Round round;         // whose learning rate, steps and stragglers it has
  LocalConfig local;   // its part of that round's [local]
  uint64_t rows = 0;   // its training rows
  bool joins = false;  // EpochBatches::Of

  EpochBatches batches() const { return EpochBatches::Of(local, rows, joins); }
  // The steps that it takes; 0 where it has no batch.
  uint64_t steps() const {
    const uint64_t count = batches().count;
    if (count == 0) return 0;
    return local.steps > 0 ? local.steps : local.epochs * count;
  }
};

// The rows of the batches of the turn together, each as often as it is in one.
inline uint64_t RowsPassed(const LocalTurn& turn) {
  const EpochBatches batches = turn.batches();
  const uint64_t steps = turn.steps();
  return steps == 0 ? 0 : batches.Rows(steps, steps / batches.count);
}

// The rows that pass forth and back through the model in a turn, by the run's rule
// (algorithms::Description::passes). A row that passes forth alone is kForward of one. Empty: those
// of RowsPassed. Thread-safe.
class RowsOfTurn {
 public:
  RowsOfTurn() = default;
  // `joins`: whether the model's trainers join batches (EpochBatches::Of).
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, RowsOfTurn> &&
           std::is_invocable_r_v<double, F&, const LocalTurn&>)
      RowsOfTurn(F rows, bool joins = false)
      : rows_(std::move(rows)), joins_(joins) {}

  explicit operator bool() const { return rows_ != nullptr; }
  double operator()(const LocalTurn& turn) const { return rows_(turn); }
  bool joins() const { return joins_; }

 private:
  std::function<double(const LocalTurn&)> rows_;
  bool joins_ = false;
};
inline constexpr double kForward = 1.0 / 3;  // a pass back is two products a layer, one forth one

// The fewest rows with which a client can take a step: a batch, where drop_last leaves out one that
// is not full. A client with fewer counts as one without training rows: no round draws it, and the
// N and W of the rules are without it.
inline uint32_t LeastRows(const LocalConfig& local) {
  return local.drop_last ? std::max(local.batch_size, 1U) : 1;
}

}  // namespace macaw
