#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/cohort.h"

namespace macaw::scheduler {

// The clients that can be drawn: those with at least one training row, by id. Held-out and empty
// clients have none. Samplers draw positions 0 … size()−1 of this list, so a population in which
// everybody has rows is drawn by id. Memory: nothing where everybody has rows, else 4 bytes each.
class Trainable {
 public:
  // `examples[k]` are client k's training rows; it must outlive this. At most 2^32 clients.
  explicit Trainable(std::span<const uint32_t> examples);

  uint64_t size() const { return clients_.empty() ? with_rows_ : clients_.size(); }
  ClientId operator[](uint64_t position) const {
    return ClientId(clients_.empty() ? position : clients_[position]);
  }
  // `free`: numbers among the positions whose clients are not in `busy` (ascending clients, all of
  // this list). Returns these positions, ascending.
  std::vector<uint64_t> WithoutBusy(std::vector<uint64_t> free,
                                    std::span<const ClientId> busy) const;
  // The rows of any client, 0 for one that is not in this list.
  uint32_t RowsOf(ClientId client) const {
    return client.value < examples_.size() ? examples_[client.value] : 0;
  }
  uint32_t rows(uint64_t position) const { return examples_[(*this)[position].value]; }
  // Sorts `positions` and makes the entries of those clients.
  std::vector<CohortEntry> Entries(std::vector<uint64_t> positions) const;

 private:
  std::span<const uint32_t> examples_;
  uint64_t with_rows_ = 0;
  std::vector<uint32_t> clients_;  // empty where everybody, or nobody, has rows
};

}  // namespace macaw::scheduler
