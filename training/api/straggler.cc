#include "training/api/straggler.h"

#include "core/random.h"

namespace macaw::training {
namespace {

RandomStream StreamOf(const CohortConfig& cohort, Round round, ClientId client) {
  return RandomStream(
      {.seed = cohort.seed, .purpose = Purpose::kStraggler, .round = round, .client = client});
}

}  // namespace

bool IsStraggler(const CohortConfig& cohort, Round round, ClientId client) {
  if (cohort.straggler_fraction <= 0) return false;
  return StreamOf(cohort, round, client).Uniform() < cohort.straggler_fraction;
}

LocalConfig WorkOf(const CohortConfig& cohort, const LocalConfig& local, Round round,
                   ClientId client) {
  LocalConfig work = local;
  if (cohort.straggler_policy != "partial" || !IsStraggler(cohort, round, client)) return work;
  RandomStream stream = StreamOf(cohort, round, client);
  stream.Uniform();  // skip the draw that decides who is a straggler
  uint32_t& amount = local.steps > 0 ? work.steps : work.epochs;
  if (amount > 1) amount = 1 + static_cast<uint32_t>(stream.Below(amount - 1));
  return work;
}

}  // namespace macaw::training
