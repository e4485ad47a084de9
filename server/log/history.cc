#include "server/log/history.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server::log {

void Sessions::Add(const Entry& entry) {
  if (const auto* run = std::get_if<RunOpened>(&entry.record))
    begins_.emplace_back(entry.sequence, run->completed);
}

Standing Sessions::Of(const Entry& entry) const {
  const Round round = PlaceOf(entry.record).first;
  const auto undoes = [&](const std::pair<uint64_t, Round>& session) {
    return session.first > entry.sequence && session.second < round;
  };
  return std::ranges::any_of(begins_, undoes) ? Standing::kUndone : Standing::kCounts;
}

History::PhaseStory* History::Find(Round round, Phase phase) {
  const auto story = rounds_.find(round);
  if (story == rounds_.end()) return nullptr;
  const auto found = story->second.find(phase);
  return found == story->second.end() ? nullptr : &found->second;
}

void History::Add(const Record& record) {
  if (const auto* run = std::get_if<RunOpened>(&record)) {
    rounds_.erase(rounds_.upper_bound(run->completed), rounds_.end());
    completed_ = run->completed;
    ended_.reset();
    sessions_.push_back(*run);
  } else if (const auto* node = std::get_if<NodeJoined>(&record)) {
    profile_ = node->profile;
  } else if (const auto* opened = std::get_if<RoundOpened>(&record)) {
    RoundStory& story = rounds_[opened->round];
    story.erase(story.lower_bound(opened->phase), story.end());
    story[opened->phase].opened = *opened;
  } else if (const auto* accepted = std::get_if<Accepted>(&record)) {
    if (PhaseStory* phase = Find(accepted->round, accepted->phase); phase != nullptr) {
      for (const GivenUp& given_up : accepted->given_up)
        phase->given_up[given_up.attempt.client] = given_up;
    }
  } else if (const auto* closed = std::get_if<Closed>(&record)) {
    if (PhaseStory* phase = Find(closed->round, closed->phase); phase != nullptr)
      phase->closed = *closed;
    if (closed->last) completed_ = std::max(completed_, closed->round);
  } else if (const auto* ended = std::get_if<RunEnded>(&record)) {
    ended_ = *ended;
  }
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
