#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "core/clock.h"
#include "server/engine/deadlines.h"
#include "server/engine/roster.h"

namespace macaw::server {

// Which rows no node has had for some time: of a holding, or the central test and validation sets.
// Pure; one thread.
class Absence {
 public:
  // Stands for the central sets. No holding has this number.
  static constexpr HoldingId Central() { return HoldingId(std::numeric_limits<uint32_t>::max()); }

  explicit Absence(Duration patience) : patience_(patience) {}

  // No node has these rows from now on. They are gone when that lasts for `patience`.
  void Begin(HoldingId rows, TimePoint now) { deadlines_.Set(rows, now + patience_); }
  // A node has them.
  void End(HoldingId rows) {
    deadlines_.Remove(rows);
    gone_.erase(rows);
  }
  // Returns the rows that are gone since the last call. While there is no node at all
  // (`anybody` is false), the time of all absences begins anew.
  std::vector<HoldingId> Expire(TimePoint now, bool anybody) {
    std::vector<HoldingId> due;
    while (const std::optional<HoldingId> rows = deadlines_.Pop(now)) due.push_back(*rows);
    for (const HoldingId rows : due) {
      if (anybody) {
        gone_.insert(rows);
      } else {
        Begin(rows, now);
      }
    }
    return anybody ? due : std::vector<HoldingId>();
  }
  bool Gone(HoldingId rows) const { return gone_.contains(rows); }
  const absl::btree_set<HoldingId>& gone() const { return gone_; }
  TimePoint NextDeadline() const { return deadlines_.next(); }

 private:
  const Duration patience_;
  Deadlines<HoldingId> deadlines_;
  absl::btree_set<HoldingId> gone_;
};

}  // namespace macaw::server
