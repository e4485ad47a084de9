#include "worker/availability.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"

namespace macaw::worker {
namespace {

bool Exceeds(uint64_t most, uint64_t moved, uint64_t work) {
  return most > 0 && (moved > most || work > most - moved);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Availability>> Availability::Open(const AcceptConfig& accept,
                                                                 const std::string& file,
                                                                 World world) {
  std::vector<Hours> hours;
  for (const std::string& text : accept.hours) {
    MACAW_ASSIGN_OR_RETURN(hours.emplace_back(), ParseHours(text));
  }
  if (accept.limits_traffic() && file.empty()) {
    return absl::InvalidArgumentError(
        "accept.max_bytes_up_a_day and accept.max_bytes_down_a_day need a folder in which this "
        "node counts: give --scratch");
  }
  MACAW_ASSIGN_OR_RETURN(DayTraffic traffic, DayTraffic::Open(accept.limits_traffic() ? file : ""));
  if (!world.ask) {
    world.ask = [command = accept.run_when] {
      return AskOwnersCommand(command, kOwnersCommandLimit);
    };
  }
  return std::unique_ptr<Availability>(
      new Availability(accept, std::move(hours), std::move(traffic), std::move(world)));
}

Availability::Availability(const AcceptConfig& accept, std::vector<Hours> hours, DayTraffic traffic,
                           World world)
    : accept_(accept),
      hours_(std::move(hours)),
      world_(std::move(world)),
      traffic_(std::move(traffic)) {
  if (!accept_.run_when.empty()) command_.emplace(world_.ask, FromSeconds(accept_.run_when_every));
}

void Availability::Expect(const fleet::Traffic& work) {
  absl::MutexLock lock(&mutex_);
  work_ = work;
}

Availability::Answer Availability::Now() {
  const absl::Time now = world_.now();
  fleet::Traffic moved, work;
  {
    absl::MutexLock lock(&mutex_);
    const fleet::Traffic all = world_.traffic();
    traffic_.Add(absl::ToCivilDay(now, world_.zone),
                 {.up = all.up - counted_.up, .down = all.down - counted_.down});
    counted_ = all;
    moved = traffic_.today();
    work = work_;
  }
  if (!AnyContains(hours_, absl::ToCivilMinute(now, world_.zone))) return OutsideHours(now);
  if (Exceeds(accept_.max_bytes_up_a_day, moved.up, work.up))
    return AfterLimit(now, "accept.max_bytes_up_a_day");
  if (Exceeds(accept_.max_bytes_down_a_day, moved.down, work.down))
    return AfterLimit(now, "accept.max_bytes_down_a_day");
  if (!command_.has_value()) return {};
  return {.declined = command_->Last(), .ask_again = FromSeconds(accept_.run_when_every)};
}

Availability::Answer Availability::OutsideHours(absl::Time now) const {
  return {.declined =
              absl::StrCat("it works at ", absl::StrJoin(accept_.hours, ", "), " (accept.hours)"),
          .ask_again = absl::ToChronoNanoseconds(NextBegin(hours_, now, world_.zone) - now)};
}

Availability::Answer Availability::AfterLimit(absl::Time now, const char* key) const {
  const absl::Time midnight = absl::FromCivil(absl::ToCivilDay(now, world_.zone) + 1, world_.zone);
  return {.declined = absl::StrCat("today's bytes are used up (", key, ")"),
          .ask_again = absl::ToChronoNanoseconds(midnight - now)};
}

}  // namespace macaw::worker
