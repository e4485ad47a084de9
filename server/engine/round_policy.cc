#include "server/engine/round_policy.h"

#include <algorithm>

namespace macaw::server {

bool CompleteRounds::MayClose(const Standing& standing) const {
  return standing.waiting == 0 && standing.leased == 0;
}

Remedy CompleteRounds::OnTrouble(const Trouble& trouble) const {
  const bool agreed = trouble.nodes >= std::min(2u, std::max(1u, trouble.candidates));
  switch (trouble.kind) {
    case Trouble::Kind::kDied:
      if (trouble.times < limits_.deaths) return Remedy::kTryAgain;
      return agreed && !trouble.owned ? Remedy::kEndRun : Remedy::kGiveUpClient;
    case Trouble::Kind::kStateUnreadable:
      if (trouble.owned) return Remedy::kGiveUpClient;
      return agreed ? Remedy::kEndRun : Remedy::kTryAgain;
  }
  return Remedy::kEndRun;
}

bool CompleteRounds::GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const {
  return in_a_row < std::min(limits_.lost_rounds, rounds);
}

}  // namespace macaw::server
