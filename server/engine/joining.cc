// Nodes that join the run, and workers that are lost: who is known, and under which session.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/engine/node_checks.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

// A server that is restarted on this host is back within a second.
constexpr Duration kReconnectEvery = std::chrono::milliseconds(100);

}  // namespace

Answered<absl::StatusOr<fleet::RegisterReply>> RoundEngine::Register(
    const fleet::RegisterRequest& request, fleet::ClientTable table, TimePoint now) {
  absl::StatusOr<fleet::RegisterReply> reply = Enter(request, std::move(table), now);
  return {.answer = std::move(reply), .effects = Take()};
}

absl::StatusOr<fleet::RegisterReply> RoundEngine::Enter(const fleet::RegisterRequest& request,
                                                        fleet::ClientTable table, TimePoint now) {
  MACAW_RETURN_IF_ERROR(CheckQuarantine(request.name));
  MACAW_RETURN_IF_ERROR(CheckNode({options_, live_, roster_, profiles_}, request, table));
  MACAW_RETURN_IF_ERROR(states_.CheckStore(request, roster_.Find(request.data_digest), nodes_));
  fleet::RegisterReply reply{.epoch = options_.epoch,
                             .run = options_.run,
                             .lease_timeout = options_.lease_timeout,
                             .heartbeat_every = HeartbeatEvery(),
                             .run_id = options_.run_id,
                             .reconnect_every = kReconnectEvery};
  // Once the other process has gone, this one may come back.
  if (nodes_.WasReplaced(request.name, request.incarnation) &&
      nodes_.Named(request.name) != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process runs under the name \"", request.name,
                     "\"; give every worker its own (--name; an enrolled machine has "
                     "its certificate's, so enrol each by itself)"));
  }
  TokenBucket unreached;
  if (Node* known = nodes_.Named(request.name); known != nullptr) {
    if (known->incarnation == request.incarnation) {  // our first answer was lost
      nodes_.Hear(known->session, now);
      NoteDeclined(*known, request.declined_now);
      reply.session = known->session;
      return reply;
    }
    unreached = known->unreached;
    nodes_.NoteReplaced(*known);
    Lose(known->id, "its process was replaced", now);
  }
  const Node& node =
      Join(request, std::move(table), {.session = NewSession(), .unreached = unreached}, now);
  reply.session = node.session;
  Record(log::NodeJoined{.node = node.id,
                         .name = node.name,
                         .slots = node.slots,
                         .incarnation = node.incarnation,
                         .profile = node.device,
                         .holdings = {{.data = request.data_digest, .clients = request.clients}}},
         JournalNode{.node = node.id, .session = node.session, .request = request});
  NoteDeclined(nodes_.At(node.id), request.declined_now);
  operators_.given_up.erase(request.name);
  if (request.volatile_state) {
    nodes_.At(node.id).empty_store = true;
    LoseStates(node.holding, node.name, "its store is new");
  }
  OnDeaths(request.name, request.died_running, now);
  if (ReadyToBegin()) Begin(now);
  OnHeard(nodes_.At(node.id), now);
  Advance(now);  // the last open client may have been given up
  return reply;
}

Node& RoundEngine::Join(const fleet::RegisterRequest& request, fleet::ClientTable table, Node node,
                        TimePoint now) {
  if (std::ranges::find(profiles_, request.profile) == profiles_.end())
    profiles_.push_back(request.profile);
  node.name = request.name;
  node.program = request.program;
  node.incarnation = request.incarnation;
  node.slots = request.slots;
  node.device = ToString(request.profile);
  node.holding = roster_.Add(request, std::move(table));
  node.central_test = request.has_central_rows();
  node.volatile_state = request.volatile_state;
  Node& joined = nodes_.Add(std::move(node), now);
  NotePresent(joined);
  speeds_.Join(joined.id, joined.device);
  return joined;
}

// The first node's profile and names are the run's, and that node may be the odd one. Once it has
// gone, before the run begins, others may come with theirs.
void RoundEngine::ForgetWhatOnlyItSaid(const Node& gone) {
  if (roster_.begun()) return;
  roster_.ForgetNames(gone.holding);
  if (options_.mixed_profiles) return;
  const bool kept = std::ranges::any_of(
      nodes_, [&](const auto& one) { return one.second.device == gone.device; });
  if (kept) return;
  std::erase_if(profiles_, [&](const NumericProfile& profile) {
    return ToString(profile) == gone.device &&
           std::ranges::find(options_.profiles, profile) == options_.profiles.end();
  });
}

SessionId RoundEngine::NewSession() const {
  SessionId session;
  for (uint64_t next = nodes_.newest().value + 1;
       session.value == 0 || nodes_.Find(session) != nullptr; ++next) {
    session = SessionId(options_.session_numbers ? options_.session_numbers() : next);
  }
  return session;
}

void RoundEngine::Lose(WorkerId id, const std::string& why, TimePoint now) {
  const Node node = nodes_.Remove(id);
  ForgetWhatOnlyItSaid(node);
  effects_.orders.emplace_back(EndSession{.session = node.session});
  if (node.poll.has_value())
    Answer(node.poll->ticket, fleet::LeaseReply{.next = fleet::Next::kRegister});
  Record(log::NodeLost{.node = id, .name = node.name, .why = why});
  std::optional<log::Requeued> lost = phase_.DropNode(id, absl::StrCat(node.name, " lost"));
  if (lost.has_value()) troubles_.LostWith(node.name, lost->attempts);
  Record(std::move(lost));
  phase_.RemoveFromPlan(node);
  speeds_.Leave(id);
  evaluation_.DropNode(id);
  // The clients of a holding without nodes may be drawn; those whose nodes decline may not.
  if (!node.declined.empty()) missing_clients_ = 0;
  NoteAbsent(node, now);
  if (state_ == State::kEnded) return;
  if (node.volatile_state && roster_.owner_of(node.holding).empty() && states_.versions().any()) {
    return Fail(absl::AbortedError(absl::StrCat(
        "worker \"", node.name, "\" kept the clients' states in its memory and is gone (", why,
        "), so the run cannot go on: start it anew, with state.store = \"disk\" to outlast that")));
  }
  if (node.volatile_state) LoseStates(node.holding, node.name, why);
  GiveUpDeclined(node.holding);  // those that are left may all decline
  ServeOthers(node, now);
}

}  // namespace macaw::server
