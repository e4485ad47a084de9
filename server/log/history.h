#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/log/record.h"

namespace macaw::server::log {

// Whether a record still holds, or its round was done again.
enum class Standing : uint8_t { kCounts, kUndone };

// Where the sessions of a log begin, and so what each of them undoes.
class Sessions {
 public:
  // In the order of the log.
  void Add(const Entry& entry);
  Standing Of(const Entry& entry) const;

 private:
  std::vector<std::pair<uint64_t, Round>> begins_;  // sequence number, rounds completed before
};

using Decisions = std::map<std::pair<Round, Phase>, std::vector<GivenUp>>;

// What a log says of the rounds that count: one that was done again after a crash is told once, as
// it was done last.
class History {
 public:
  struct PhaseStory {
    RoundOpened opened;
    std::map<ClientId, GivenUp> given_up;
    std::optional<Closed> closed;
  };
  using RoundStory = std::map<Phase, PhaseStory>;

  // In the order of the log.
  void Add(const Record& record);
  // What the world decided about the rounds that are done: whom each phase did without.
  Decisions decisions() const;

  const std::map<Round, RoundStory>& rounds() const { return rounds_; }  // the open one, too
  // Rounds that are done, those that the log does not tell of (it may begin later) included.
  Round completed() const { return completed_; }
  const std::vector<RunOpened>& sessions() const { return sessions_; }
  const std::optional<RunEnded>& ended() const { return ended_; }  // of the last session
  const std::string& profile() const { return profile_; }          // of the node that joined last

 private:
  PhaseStory* Find(Round round, Phase phase);
  void AddGivenUp(Round round, Phase phase, const std::vector<GivenUp>& given_up);

  std::map<Round, RoundStory> rounds_;
  Round completed_;
  std::vector<RunOpened> sessions_;
  std::optional<RunEnded> ended_;
  std::string profile_;
};

absl::StatusOr<History> ReadHistory(const std::string& path);

// Where the rounds of a run that repeats another one first differ from those, in words; nothing:
// they are the same, and so is the model after the last of them that both tell of.
std::optional<std::string> FirstDifference(const History& recorded, const History& repeated);

}  // namespace macaw::server::log
