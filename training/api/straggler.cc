#include "training/api/straggler.h"

#include "core/random.h"
#include "plan/local_steps.h"

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

double ShareThatTrains(const CohortConfig& cohort) {
  return cohort.straggler_policy == "drop" ? 1 - cohort.straggler_fraction : 1;
}

LocalConfig WorkOf(const CohortConfig& cohort, const LocalConfig& local, Round round,
                   ClientId client, uint64_t rows, bool joins) {
  LocalConfig work = local;
  if (cohort.straggler_policy != "partial" || !IsStraggler(cohort, round, client)) return work;
  RandomStream stream = StreamOf(cohort, round, client);
  stream.Uniform();  // skip the draw that decides who is a straggler
  const bool in_steps = local.steps > 0 || local.epochs == 1;
  const uint64_t whole = in_steps ? StepsOf(local, rows, joins) : local.epochs;
  if (whole > 1)
    (in_steps ? work.steps : work.epochs) = 1 + static_cast<uint32_t>(stream.Below(whole - 1));
  return work;
}

}  // namespace macaw::training
