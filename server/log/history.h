#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/log/record.h"

namespace macaw::server::log {

// Whether a record still counts, or is undone because its round was done again.
enum class Standing : uint8_t { kCounts, kUndone };

// Where the sessions of a log begin. From this follows which records each session undoes. One
// thread.
class Sessions {
 public:
  // Call it in the order of the log.
  void Add(const Entry& entry);
  Standing Of(const Entry& entry) const;

 private:
  std::vector<std::pair<uint64_t, Round>> begins_;  // (sequence number, rounds completed before)
};

// The clients that had lost their states at each phase, as the records say. One thread.
class LostStates {
 public:
  struct At {
    std::vector<ClientId> before;  // StatesLost::clients
    std::vector<ClientId> after;   // StatesLost::counted
    bool all = false;              // after the round no client has a state (StatesLost::all)
  };
  using Places = std::map<std::pair<Round, Phase>, At>;

  void Add(const StatesLost& lost);
  // The phase begins, perhaps once more: what had been counted is undone.
  void Opened(Round round, Phase phase);
  // Rounds after this one are done again. What was lost before them is lost. Whether all begin anew
  // after the first of them, the session that does it again says itself: its checkpoint may still
  // have what was lost.
  void Undo(Round completed);
  void Pass(Round round, Phase phase) { places_.erase({round, phase}); }
  const Places& places() const { return places_; }
  const At* Find(Round round, Phase phase) const;

 private:
  Places places_;
};

// The evaluations from which tasks were given up, as the records say. One thread.
class CutEvaluations {
 public:
  using Cuts = std::vector<EvaluationGaveUp>;

  void Add(const EvaluationGaveUp& gave_up);
  void Done(const Evaluated& evaluated) { Begin(evaluated.round, /*states=*/false); }
  // The states were digested whole, whatever an earlier server had given up of them.
  void Digested(Round round) { DropOf(round, /*states=*/true); }
  // The evaluations after this round and later ones may be done again. If they are, what was given
  // up of them then does not count.
  void Undo(Round completed);
  const std::map<Round, Cuts>& rounds() const { return rounds_; }

 private:
  void Begin(Round round, bool states);
  void DropOf(Round round, bool states);

  std::map<Round, Cuts> rounds_;
  std::set<std::pair<Round, bool>> undone_;  // and whether it is the digest of the states
};

// A round of a fleet whose rounds do not wait for each other, as its log tells it.
struct RecordedStep {
  uint64_t arrivals = 0;  // RoundOpened::arrivals
  // Who counted, and by how many rounds the model of each was older than the newest one.
  std::map<ClientId, uint32_t> counted;
  double max_weight = 0, total_weight = 0;  // of RoundOpened
  uint32_t max_multiplicity = 0;
  uint64_t total_multiplicity = 0;
  // How old those models are, without the newest, from which clients of later rounds have trained.
  std::vector<uint32_t> kept;
};

// What the world decided about a phase. It does not follow from the configuration.
struct Decision {
  std::vector<GivenUp> given_up;
  bool dropped = false;           // RoundLost::dropped
  std::vector<ClientId> present;  // RoundOpened::present
  LostStates::At lost_states;
  CutEvaluations::Cuts evaluation = {};  // of a round's first phase: of the evaluation after it
  std::optional<RecordedStep> step = {};
};
using Decisions = std::map<std::pair<Round, Phase>, Decision>;

// The rounds of a run, as its log tells them. A round that was done again after a crash occurs
// once, as it was done the last time. One thread.
class History {
 public:
  struct PhaseStory {
    RoundOpened opened;
    std::map<ClientId, GivenUp> given_up;
    // Of a round that says RoundOpened::arrivals; as RecordedStep::counted.
    std::map<ClientId, uint32_t> arrived;
    bool dropped = false;
    std::optional<Closed> closed;
  };
  using RoundStory = std::map<Phase, PhaseStory>;

  // Call it in the order of the log.
  void Add(const Record& record);
  // What was decided in the completed rounds.
  Decisions decisions() const;

  const std::map<Round, RoundStory>& rounds() const { return rounds_; }  // with the open one
  // Number of completed rounds. Includes rounds before the log's first, if the log begins later.
  Round completed() const { return completed_; }
  const std::vector<RunOpened>& sessions() const { return sessions_; }
  const std::optional<RunEnded>& ended() const { return ended_; }  // of the last session
  const std::string& profile() const { return profile_; }          // of the node that joined last
  const std::set<std::string>& profiles() const { return profiles_; }  // of all that joined
  // The rounds after which the model has been evaluated.
  const std::set<Round>& evaluated() const { return evaluated_; }
  const LostStates& lost_states() const { return lost_states_; }
  const CutEvaluations& evaluations() const { return evaluations_; }

 private:
  PhaseStory* Find(Round round, Phase phase);
  void AddGivenUp(Round round, Phase phase, const std::vector<GivenUp>& given_up);

  std::map<Round, RoundStory> rounds_;
  LostStates lost_states_;
  CutEvaluations evaluations_;
  Round completed_;
  std::vector<RunOpened> sessions_;
  std::optional<RunEnded> ended_;
  std::string profile_;
  std::set<std::string> profiles_;
  std::set<Round> evaluated_;
};

// Gives these clients up in every completed phase of the history, too.
void LeaveOut(const std::vector<ClientId>& clients, const History& history, Decisions& decisions);
// How many completed rounds have counted the client.
size_t RoundsThatCounted(ClientId client, const History& history);

absl::StatusOr<History> ReadHistory(const std::string& path);

// What FirstDifference says where the logs have other clients, or other numbers of them.
inline constexpr char kOthersToDrawFrom[] = "other clients, or other numbers of rows, to draw from";

// Describes the first difference between the rounds of a run and those of a run that repeats it.
// nullopt: they are the same, and so is the model after the last round that is in both logs.
std::optional<std::string> FirstDifference(const History& recorded, const History& repeated);
// The same of what the first round of both draws and sends, which no client has changed yet.
std::optional<std::string> StartDifference(const History& recorded, const History& repeated);

}  // namespace macaw::server::log
