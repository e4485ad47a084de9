#include "scheduler/trainable.h"

#include <algorithm>

namespace macaw::scheduler {

Trainable::Trainable(std::span<const uint32_t> examples)
    : examples_(examples),
      with_rows_(static_cast<uint64_t>(
          std::ranges::count_if(examples, [](uint32_t rows) { return rows > 0; }))) {
  if (with_rows_ == examples.size()) return;
  clients_.reserve(with_rows_);
  for (uint64_t client = 0; client < examples.size(); ++client) {
    if (examples[client] > 0) clients_.push_back(static_cast<uint32_t>(client));
  }
}

std::vector<uint64_t> Trainable::WithoutBusy(std::vector<uint64_t> free,
                                             std::span<const ClientId> busy) const {
  std::ranges::sort(free);
  uint64_t skipped = 0;
  for (uint64_t& position : free) {
    position += skipped;
    while (skipped < busy.size() && busy[skipped] <= (*this)[position]) {
      ++skipped;
      ++position;
    }
  }
  return free;
}

std::vector<CohortEntry> Trainable::Entries(std::vector<uint64_t> positions) const {
  std::ranges::sort(positions);
  std::vector<CohortEntry> entries;
  entries.reserve(positions.size());
  for (const uint64_t position : positions)
    entries.push_back({.client = (*this)[position], .load = rows(position)});
  return entries;
}

}  // namespace macaw::scheduler
