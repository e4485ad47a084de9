#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "server/log/record.h"

namespace macaw::server {

// One line of events.jsonl, without its time.
struct Event {
  std::string kind;
  std::vector<std::pair<std::string, std::variant<int64_t, double, std::string>>> fields;
  friend bool operator==(const Event&, const Event&) = default;
};

// Makes the events of events.jsonl from the records of the log of rounds. They tell users and
// scripts how a session went, without the leases. One thread.
class EventLines {
 public:
  // The events for the session's next record: none, one or several.
  std::vector<Event> Of(const log::Record& record);

 private:
  using Events = std::vector<Event>;
  Events Lines(const log::NodeJoined& joined);
  Events Lines(const log::NodeRefused& refused);
  Events Lines(const log::NodeLost& lost);
  Events Lines(const log::NodeDeclined& declined);
  Events Lines(const log::Died& died);
  Events Lines(const log::RoundOpened& opened);
  Events Lines(const log::Planned& planned);
  Events Lines(const log::Accepted& accepted);
  Events Lines(const log::GaveUp& gave_up);
  Events Lines(const log::TurnedDown& down);
  Events Lines(const log::Requeued& requeued);
  static Events Lines(const log::Waiting& waiting);
  static Events Lines(const log::Extended& extended);
  Events Lines(const log::RoundLost& lost);
  Events Lines(const log::Closed& closed);
  Events Lines(const log::RunEnded& ended);
  Events Lines(const log::Operated& operated);
  static Events Lines(const log::EvaluationGaveUp& gave_up);
  static Events Lines(const log::StatesLost& lost);
  static Events Lines(const log::RunOpened&) { return {}; }
  static Events Lines(const log::Leased&) { return {}; }
  static Events Lines(const log::Evaluated&) { return {}; }
  static Events Lines(const log::Unknown&) { return {}; }
  std::string NameOf(WorkerId node) const;

  std::map<WorkerId, std::string> names_;
  uint64_t left_out_ = 0;               // in the open round's closed phases
  std::vector<log::GivenUp> given_up_;  // in the open phase
  std::vector<log::GivenUp> before_;    // in the open round's closed phases
};

}  // namespace macaw::server
