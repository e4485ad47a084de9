// The end of a phase: when it closes, without whom, and what a round without any client means.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/spelling.h"
#include "core/status.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

void RoundEngine::Advance(TimePoint now) {
  if (state_ == State::kEnded) return;
  if (evaluation_.complete()) OnEvaluationComplete();
  // Its record comes before those of the phase's end.
  if (evaluation_.judging()) return;
  if (state_ != State::kRunning || operators_.abort) return;
  ServeArrivals(now);
  if (!MayClose(now)) return EndDrainedInVain();
  if (phase_.adding() || evaluation_.open()) return;
  const PhaseReport& report = phase_.report();
  if (report.records.empty() && !report.left_out.empty() && !MoveOnWithoutClients()) return;
  ForgetAtClose();
  state_ = State::kClosing;
  PhaseReport closed = phase_.Close(static_cast<uint32_t>(nodes_.slots()), now);
  if (draw_->feedback() != nullptr)
    facts_ = FactsOf(asked_, closed.records, draw_->drawable_rows());
  effects_.orders.emplace_back(ApplySum{.report = std::move(closed), .begins_anew = begins_anew_});
}

Standing RoundEngine::Progress() const {
  Standing standing = phase_.standing();
  standing.overdue = overdue_;
  if (phase_.live()) standing.drawn = phase_.arrivals();  // of which round.quorum is a share
  return standing;
}

bool RoundEngine::MayClose(TimePoint now) {
  const Standing standing = Progress();
  // An earlier server has decided, perhaps by other rules.
  if (phase_.dropped() || redoing()) return standing.complete() || phase_.live();
  const Course course = Decide();
  if (course == Course::kWait) return false;
  deadline_ = TimePoint::max();
  if (course == Course::kClose) return true;
  const std::vector<WorkerId> holders = phase_.Holders();
  GiveUpMissing(course, now);
  if (course == Course::kDropRound) {
    const uint64_t needed = options_.round.Needed(standing.drawn);
    DropRound(absl::StrCat("round ", phase_.round().value, ": ", standing.counted, " of ",
                           Counted(standing.drawn, "client"), " counted, ", needed,
                           " needed (round.quorum)"));
  }
  // Nodes that held leases of those clients and wait for more work must commit first.
  for (const WorkerId id : holders) {
    if (nodes_.Knows(id)) ServeParked(nodes_.At(id), now);
  }
  return state_ == State::kRunning;
}

// ---- the deadline

void RoundEngine::SetDeadline(TimePoint now) {
  const bool timed = options_.round.deadline > 0 && !redoing() && !phase_.dropped();
  deadline_ = timed ? now + FromSeconds(options_.round.deadline) : TimePoint::max();
  overdue_ = false;
}

void RoundEngine::PassDeadline(TimePoint now) {
  if (state_ == State::kGathering && now >= deadline_) return PassGatheringDeadline(now);
  if (state_ != State::kRunning || now < deadline_) return;
  overdue_ = true;
  deadline_ = now + FromSeconds(options_.round.deadline);
  const Standing standing = Progress();
  if (Decide() != Course::kWait) return;  // Advance does the rest
  Record(log::Extended{.round = phase_.round(),
                       .phase = phase_.phase(),
                       .counted = standing.counted,
                       .missing = standing.waiting + standing.leased,
                       .needed = options_.round.Needed(standing.drawn)});
}

// ---- clients that are not waited for

void RoundEngine::GiveUpMissing(Course course, TimePoint now) {
  const uint64_t counted = phase_.standing().counted;
  Record(phase_.GiveUpMissing([&](const Seat& seat, std::optional<WorkerId> node) {
    if (course != Course::kCloseWithEnough) return WhyLate(nodes_.Of(seat.holding), node, now);
    return log::GivenUp{
        .reason = fleet::LeftOutReason::kNotNeeded,
        .message = absl::StrCat(Counted(counted, "client"), " were enough (round.enough)")};
  }));
}

log::GivenUp RoundEngine::WhyLate(const Nodes::Team& team, std::optional<WorkerId> node,
                                  TimePoint now) const {
  using fleet::LeftOutReason;
  if (!node.has_value()) {
    if (team.members.empty())
      return {.reason = LeftOutReason::kGone, .message = "no node that has it is registered"};
    return {.reason = LeftOutReason::kTooSlow,
            .message = "no node had asked for it at the deadline"};
  }
  const Node& holder = nodes_.At(*node);
  const Duration silent = holder.poll.has_value() ? Duration{} : now - holder.last_seen;
  if (silent > HeartbeatEvery()) {
    return {.reason = LeftOutReason::kGone,
            .message = absl::StrFormat("%s has been silent for %.0f s at the deadline", holder.name,
                                       ToSeconds(silent))};
  }
  return {.reason = LeftOutReason::kTooSlow,
          .message = absl::StrCat(holder.name, " had not committed it at the deadline")};
}

void RoundEngine::DropRound(const std::string& why) {
  // What the round's earlier phases have staged is in the algorithm's sums.
  if (options_.sums_states && options_.decisions.empty() && staged_before_phase_ > 0) {
    begins_anew_ = true;
    Record(log::StatesLost{.round = phase_.round(),
                           .phase = phase_.phase(),
                           .why = "a phase had counted before the round was dropped",
                           .all = true});
  }
  states_.versions().DropStaged();
  Record(phase_.Drop(why));
}

bool RoundEngine::MoveOnWithoutClients() {
  const std::vector<fleet::LeftOut>& lost = phase_.report().left_out;
  std::string alone = nodes_.size() > 1 && !phase_.dropped() ? troubles_.Alone(lost) : "";
  if (redoing()) alone = restored_.Find(phase_.round(), phase_.phase())->alone;
  const bool counts = alone.empty();
  round_lost_ = counts ? Lost::kYes : Lost::kByOneNode;
  const auto first = std::ranges::min_element(
      lost, {}, [](const fleet::LeftOut& left) { return left.attempt.client; });
  std::string what = phase_.report().dropped;
  if (!phase_.dropped()) {
    what = absl::StrCat("round ", phase_.round().value, ": all ", lost.size(),
                        " clients had to be left out; client ", first->attempt.client.value, ": ",
                        first->message);
    if (!redoing()) {
      Record(log::RoundLost{.round = phase_.round(),
                            .phase = phase_.phase(),
                            .why = what,
                            .alone = std::move(alone)});
    }
  }
  // Counts the rounds of this session only. A short run that has lost all its rounds ends, too.
  if (!counts || policy_.GoesOnAfterLost(lost_rounds_ + 1, LastRound() - options_.completed))
    return true;
  Fail(absl::AbortedError(
      lost_rounds_ == 0
          ? what
          : absl::StrCat(what, " (as in the ",
                         lost_rounds_ == 1 ? "round" : absl::StrCat(lost_rounds_, " rounds"),
                         " before)")));
  return false;
}

}  // namespace macaw::server
