#include "server/log/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server::log {

void Sessions::Add(const Entry& entry) {
  const auto* run = std::get_if<RunOpened>(&entry.record);
  if (run != nullptr && !run->goes_on) begins_.emplace_back(entry.sequence, run->completed);
}

Standing Sessions::Of(const Entry& entry) const {
  const Round round = PlaceOf(entry.record).first;
  const auto undoes = [&](const std::pair<uint64_t, Round>& session) {
    return session.first > entry.sequence && session.second < round;
  };
  return std::ranges::any_of(begins_, undoes) ? Standing::kUndone : Standing::kCounts;
}

void LostStates::Add(const StatesLost& lost) {
  At& at = places_[{lost.round, lost.phase}];
  at.before.insert(at.before.end(), lost.clients.begin(), lost.clients.end());
  at.after.insert(at.after.end(), lost.counted.begin(), lost.counted.end());
  at.all = at.all || lost.all;
}

void LostStates::Opened(Round round, Phase phase) {
  const auto place = places_.find({round, phase});
  if (place == places_.end()) return;
  At& at = place->second;
  at.before.insert(at.before.end(), at.after.begin(), at.after.end());
  at.after.clear();
}

void LostStates::Undo(Round completed) {
  const std::pair next(Round(completed.value + 1), Phase());
  places_.erase(places_.upper_bound(next), places_.end());
  if (const auto place = places_.find(next); place != places_.end()) {
    place->second.after.clear();
    place->second.all = false;
  }
}

const LostStates::At* LostStates::Find(Round round, Phase phase) const {
  const auto place = places_.find({round, phase});
  return place != places_.end() ? &place->second : nullptr;
}

void CutEvaluations::Add(const EvaluationGaveUp& gave_up) {
  Begin(gave_up.round, gave_up.states);
  rounds_[gave_up.round].push_back(gave_up);
}

void CutEvaluations::Undo(Round completed) {
  for (const auto& [round, cuts] : rounds_) {
    if (round < completed) continue;
    for (const EvaluationGaveUp& cut : cuts) undone_.insert({round, cut.states});
  }
}

void CutEvaluations::Begin(Round round, bool states) {
  if (undone_.erase({round, states}) > 0) DropOf(round, states);
}

void CutEvaluations::DropOf(Round round, bool states) {
  std::erase_if(rounds_[round], [&](const EvaluationGaveUp& cut) { return cut.states == states; });
}

History::PhaseStory* History::Find(Round round, Phase phase) {
  const auto story = rounds_.find(round);
  if (story == rounds_.end()) return nullptr;
  const auto found = story->second.find(phase);
  return found == story->second.end() ? nullptr : &found->second;
}

void History::AddGivenUp(Round round, Phase phase, const std::vector<GivenUp>& given_up) {
  PhaseStory* story = Find(round, phase);
  if (story == nullptr) return;
  for (const GivenUp& one : given_up) story->given_up[one.attempt.client] = one;
}

Decisions History::decisions() const {
  Decisions decisions;
  std::set<Round> bases;  // of the rounds behind the one that is looked at
  for (auto it = rounds_.rbegin(); it != rounds_.rend(); ++it) {
    const auto& [round, phases] = *it;
    if (round > completed_ || !phases.contains(Phase(0))) continue;
    const PhaseStory& story = phases.at(Phase(0));
    if (story.opened.arrivals == 0) continue;
    RecordedStep step{.arrivals = story.opened.arrivals,
                      .counted = story.arrived,
                      .max_weight = story.opened.max_weight,
                      .total_weight = story.opened.total_weight,
                      .max_multiplicity = story.opened.max_multiplicity,
                      .total_multiplicity = story.opened.total_multiplicity};
    const uint32_t newest = round.value - 1;
    bases.erase(bases.lower_bound(Round(newest)), bases.end());
    for (auto base = bases.rbegin(); base != bases.rend(); ++base)
      step.kept.push_back(newest - base->value);
    for (const auto& [client, staleness] : story.arrived)
      bases.insert(Round(newest - std::min(staleness, newest)));
    decisions[{round, Phase(0)}].step = std::move(step);
  }
  for (const auto& [round, phases] : rounds_) {
    if (round > completed_) break;
    for (const auto& [phase, story] : phases) {
      for (const auto& [client, given_up] : story.given_up)
        decisions[{round, phase}].given_up.push_back(given_up);
      if (story.dropped) decisions[{round, phase}].dropped = true;
      if (!story.opened.present.empty()) decisions[{round, phase}].present = story.opened.present;
    }
  }
  for (const auto& [place, lost] : lost_states_.places()) {
    if (place <= std::pair(Round(completed_.value + 1), Phase()))
      decisions[place].lost_states = lost;
  }
  for (const auto& [round, cuts] : evaluations_.rounds()) {
    if (round <= completed_ && !cuts.empty()) decisions[{round, Phase()}].evaluation = cuts;
  }
  return decisions;
}

void History::Add(const Record& record) {
  if (const auto* run = std::get_if<RunOpened>(&record)) {
    if (!run->goes_on) {
      rounds_.erase(rounds_.upper_bound(run->completed), rounds_.end());
      completed_ = run->completed;
      lost_states_.Undo(completed_);
      evaluations_.Undo(completed_);
      evaluated_.erase(evaluated_.upper_bound(completed_), evaluated_.end());
    }
    ended_.reset();
    sessions_.push_back(*run);
  } else if (const auto* node = std::get_if<NodeJoined>(&record)) {
    profile_ = node->profile;
    profiles_.insert(node->profile);
  } else if (const auto* opened = std::get_if<RoundOpened>(&record)) {
    lost_states_.Opened(opened->round, opened->phase);
    RoundStory& story = rounds_[opened->round];
    story.erase(story.lower_bound(opened->phase), story.end());
    story[opened->phase].opened = *opened;
  } else if (const auto* accepted = std::get_if<Accepted>(&record)) {
    AddGivenUp(accepted->round, accepted->phase, accepted->given_up);
    PhaseStory* const story = Find(accepted->round, accepted->phase);
    if (story == nullptr || story->opened.arrivals == 0) return;
    for (size_t i = 0; i < accepted->included.size(); ++i) {
      const bool older = i < accepted->staleness.size();
      story->arrived[accepted->included[i].client] =
          older ? static_cast<uint32_t>(accepted->staleness[i]) : 0;
    }
  } else if (const auto* gave_up = std::get_if<GaveUp>(&record)) {
    AddGivenUp(gave_up->round, gave_up->phase, gave_up->given_up);
  } else if (const auto* lost = std::get_if<RoundLost>(&record)) {
    if (PhaseStory* phase = Find(lost->round, lost->phase); phase != nullptr)
      phase->dropped = lost->dropped;
  } else if (const auto* closed = std::get_if<Closed>(&record)) {
    if (PhaseStory* phase = Find(closed->round, closed->phase); phase != nullptr)
      phase->closed = *closed;
    if (closed->last) completed_ = std::max(completed_, closed->round);
  } else if (const auto* evaluated = std::get_if<Evaluated>(&record)) {
    evaluations_.Done(*evaluated);
    evaluated_.insert(evaluated->round);
  } else if (const auto* gave_up_tasks = std::get_if<EvaluationGaveUp>(&record)) {
    evaluations_.Add(*gave_up_tasks);
  } else if (const auto* states = std::get_if<StatesLost>(&record)) {
    lost_states_.Add(*states);
  } else if (const auto* ended = std::get_if<RunEnded>(&record)) {
    ended_ = *ended;
    if (!ended->states.IsZero()) evaluations_.Digested(Round(ended->rounds));
  }
}

namespace {

// What differs when a phase is opened.
std::optional<std::string> OpeningDifference(const History::PhaseStory& recorded,
                                             const History::PhaseStory& repeated) {
  const auto& was = recorded.opened;
  const auto& is = repeated.opened;
  if (was.eligible != is.eligible) return kOthersToDrawFrom;
  // Who trains and does not count yet is no matter of a repeated run.
  if (was.arrivals > 0 && recorded.arrived != repeated.arrived) return "other arrivals";
  if (was.arrivals == 0 && was.cohort != is.cohort) return "another cohort";
  if (was.max_weight != is.max_weight || was.total_weight != is.total_weight)
    return "other weights of the clients";
  if (was.broadcast != is.broadcast) return "another model is sent to the clients";
  return std::nullopt;
}

std::optional<std::string> PhaseDifference(const History::PhaseStory& recorded,
                                           const History::PhaseStory& repeated) {
  if (auto difference = OpeningDifference(recorded, repeated)) return difference;
  if (recorded.given_up.size() != repeated.given_up.size() ||
      !std::ranges::equal(
          recorded.given_up, repeated.given_up, {}, [](const auto& entry) { return entry.first; },
          [](const auto& entry) { return entry.first; })) {
    return absl::StrCat(repeated.given_up.size(), " clients had to be left out instead of ",
                        recorded.given_up.size(), ", or other ones");
  }
  if (recorded.dropped != repeated.dropped)
    return recorded.dropped ? "it was dropped then and not now" : "it was dropped now and not then";
  if (!recorded.closed.has_value()) return std::nullopt;
  if (!repeated.closed.has_value()) return "it was not done again";
  if (recorded.closed->counted != repeated.closed->counted)
    return "another number of clients counts";
  // The record has a digest of the model only if an evaluation was due.
  const Digest& model = recorded.closed->model;
  if (!model.IsZero() && !repeated.closed->model.IsZero() && model != repeated.closed->model)
    return "it ends with another model";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> FirstDifference(const History& recorded, const History& repeated) {
  for (const auto& [round, phases] : recorded.rounds()) {
    if (round > recorded.completed()) break;
    for (const auto& [phase, story] : phases) {
      const std::string where = absl::StrCat(
          "round ", round.value, phase.value > 0 ? absl::StrCat(", phase ", int{phase.value}) : "");
      const auto again = repeated.rounds().find(round);
      if (again == repeated.rounds().end() || !again->second.contains(phase))
        return absl::StrCat(where, ": it was not done again");
      if (const auto difference = PhaseDifference(story, again->second.at(phase)))
        return absl::StrCat(where, ": ", *difference);
    }
  }
  const auto& was = recorded.ended();
  const auto& is = repeated.ended();
  if (was.has_value() && is.has_value() && was->rounds == is->rounds) {
    if (!was->model.IsZero() && !is->model.IsZero() && was->model != is->model)
      return absl::StrCat("after round ", was->rounds, ": another model");
    if (!was->states.IsZero() && !is->states.IsZero() && was->states != is->states)
      return absl::StrCat("after round ", was->rounds, ": other states of the clients");
  }
  return std::nullopt;
}

std::optional<std::string> StartDifference(const History& recorded, const History& repeated) {
  if (recorded.rounds().empty() || repeated.rounds().empty()) return std::nullopt;
  return OpeningDifference(recorded.rounds().begin()->second.begin()->second,
                           repeated.rounds().begin()->second.begin()->second);
}

void LeaveOut(const std::vector<ClientId>& clients, const History& history, Decisions& decisions) {
  for (const auto& [round, phases] : history.rounds()) {
    if (round > history.completed()) break;
    for (const auto& [phase, story] : phases) {
      for (const ClientId client : clients) {
        if (story.given_up.contains(client)) continue;
        decisions[{round, phase}].given_up.push_back({.attempt = {.client = client},
                                                      .reason = fleet::LeftOutReason::kDeclined,
                                                      .message = "the run is repeated without it"});
      }
    }
  }
}

size_t RoundsThatCounted(ClientId client, const History& history) {
  size_t rounds = 0;
  for (const auto& [round, phases] : history.rounds()) {
    if (round > history.completed()) break;
    const History::PhaseStory& story = phases.begin()->second;
    const bool drawn = std::ranges::any_of(
        story.opened.cohort, [client](const auto& member) { return member.client == client; });
    rounds += drawn && !story.dropped && !story.given_up.contains(client) ? 1 : 0;
  }
  return rounds;
}

absl::StatusOr<History> ReadHistory(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(Reader reader, Reader::Open(path));
  History history;
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Entry> entry, reader.Next());
    if (!entry.has_value()) return history;
    history.Add(entry->record);
  }
}

}  // namespace macaw::server::log
