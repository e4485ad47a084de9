#pragma once

#include <cstdint>
#include <string>

#include "proto/admin/event_feed.h"
#include "proto/admin/status.h"
#include "proto/fleet/link.h"

namespace macaw::admin {

enum class Action : uint8_t {
  kPause = 1,
  kResume = 2,
  kDrain = 3,
  kAbortRound = 4,
  kQuarantine = 5,
  kAdmit = 6,
  kGiveUp = 8,
  kSkipEvaluation = 9,
};

// A change that an operator asks for.
struct Change {
  std::string request_id;  // the same on a repeat, which has no second effect and the same answer
  Action action = Action::kPause;
  std::string by;      // who asks; for the log
  std::string reason;  // for the log and for those whom it concerns
  std::string node;    // kQuarantine, kAdmit, kGiveUp
  // kAbortRound, kSkipEvaluation: the round that is meant, so that a late call hits no other
  uint32_t round = 0;
};

struct Changed {
  std::string text;  // what follows from the change, for people
};

// The server's side of the operator's protocol. All methods are thread-safe, and answer at any time
// and on any thread.
class AdminHandler {
 public:
  virtual ~AdminHandler() = default;
  virtual void Status(fleet::Reply<RunStatus> reply) = 0;
  virtual void Apply(Change change, fleet::Reply<Changed> reply) = 0;
  virtual EventFeed& events() = 0;
};

}  // namespace macaw::admin
