// The calls of workers, except commits: registration, leases, heartbeats, releases, uploads. Also
// the handling of workers that are lost.
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/spelling.h"
#include "core/status.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using fleet::Next;

// The longest time for which a call for work is parked, whatever the request asks. Workers ask
// again soon.
constexpr Duration kLongestPoll = std::chrono::seconds(60);
// A server that is restarted on this host is back within a second.
constexpr Duration kReconnectEvery = std::chrono::milliseconds(100);
constexpr uint64_t kMostChunks = 1 << 20;  // of the central test set; each is a task in memory
constexpr uint32_t kMostSlots = 4096;      // of one node; more would hold most of any cohort

std::string ToString(const NumericProfile& profile) {
  return absl::StrCat("(", profile.trainer, ", ", profile.instruction_set, ", ", profile.libraries,
                      ")");
}

}  // namespace

// ---- registration

absl::Status RoundEngine::CheckNode(const fleet::RegisterRequest& request,
                                    const fleet::ClientTable& table) const {
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker \"", request.name, "\" cannot join: ", why));
  };
  if (request.name.empty() || request.slots == 0) return refuse("it has no name or no slots");
  if (request.slots > kMostSlots)
    return refuse(absl::StrCat("it has ", request.slots, " slots; at most ", kMostSlots));
  const RunPlan& run = options_.run;
  if (live_ && request.clients > 0 && !request.arrives) {
    return refuse(absl::StrCat(
        "its program (", request.program.empty() ? "an older Macaw" : request.program,
        ") cannot take part in rounds that do not wait for each other (round.mode = \"",
        run.asynchronous.mode, "\"): update it"));
  }
  if (request.input_shape != run.model.input_shape) {
    return refuse("its examples have another shape than the run's model.input_shape");
  }
  const bool by_class = run.task == TaskKind::kClassification || run.task == TaskKind::kNextToken;
  // Fewer classes may be numbered otherwise, so a node that lacks one has to say how many there
  // are.
  const int64_t classes = run.task == TaskKind::kBinary ? 2 : run.model.classes;
  if ((by_class || run.task == TaskKind::kBinary) && request.classes != classes) {
    return refuse(absl::StrCat(
        "its data has ", request.classes, " classes, the run's model ", classes,
        request.classes < classes && request.classes > 0
            ? absl::StrCat(": set data.classes = ", classes, " on the node, if its data lacks some")
            : ""));
  }
  const uint64_t central_rows = std::max(request.central_test_rows, request.central_val_rows);
  // Each group of concept shift sees the set in its own way.
  const uint64_t groups = ConceptGroups(run.transform, run.seed).count();
  const uint64_t sets = groups + (run.attack.on() && run.attack.backdoor() ? 1 : 0);
  if (central_rows / run.evaluation.chunk > kMostChunks / sets) {
    return refuse(absl::StrCat(
        "its test set of ", central_rows, " rows makes more than ", kMostChunks,
        " chunks of evaluation.chunk = ", run.evaluation.chunk, " rows",
        groups > 1 ? absl::StrCat(" for ", groups, " groups of data.concept_shift") : "",
        ": raise that"));
  }
  const bool whole = request.clients > 0 && table.names.empty();  // the clients are numbered
  if (whole && run.clients != 0 && request.clients != run.clients) {
    return refuse(
        absl::StrCat("its data has ", request.clients, " clients, the run ", run.clients));
  }
  if (whole && options_.data_digest.has_value() && *options_.data_digest != request.data_digest) {
    const uint64_t rows = std::accumulate(table.rows.begin(), table.rows.end(), uint64_t{0});
    // Older versions left these clients their rows, whatever data.test_fraction said.
    const bool cuts =
        request.central_test_rows > 0 && rows + request.central_test_rows == run.train_examples;
    return refuse(absl::StrCat(
        "its data (files, partition or seed) differs from what the checkpoint was trained on",
        cuts ? absl::StrCat(": data.test_fraction now cuts a central test set of ",
                            Counted(request.central_test_rows, "row"),
                            " off these clients' rows; remove it from the run's config.toml, "
                            "and the run goes on")
             : ""));
  }
  if (request.clients > 0 && run.cohort.weight == WeightPolicy::kTokens && table.tokens.empty())
    return refuse("cohort.weight is \"tokens\", but its data does not hold sequences");
  if (const absl::Status status = roster_.Check(request, table); !status.ok())
    return refuse(std::string(status.message()));
  const bool known = roster_.Find(request.data_digest).has_value();
  const uint64_t clients = roster_.clients() + (known ? 0 : request.clients);
  if (run.clients != 0 && clients > run.clients) {
    return refuse(absl::StrCat("with its ", request.clients, " clients there are ", clients,
                               ", the run has ", run.clients));
  }
  if (options_.instruction_set != "auto" &&
      request.profile.instruction_set != options_.instruction_set) {
    return refuse(absl::StrCat("its numeric profile is ", ToString(request.profile),
                               ", and server.instruction_set asks for ", options_.instruction_set,
                               ": set workers.instruction_set on the node"));
  }
  if (!options_.mixed_profiles && !profiles_.empty() && request.profile != profiles_.front()) {
    return refuse(
        absl::StrCat("its numeric profile ", ToString(request.profile), " differs from the run's ",
                     ToString(profiles_.front()),
                     ", so its results would not be reproducible; server.mixed_profiles = "
                     "true accepts that"));
  }
  return absl::OkStatus();
}

Answered<absl::StatusOr<fleet::RegisterReply>> RoundEngine::Register(
    const fleet::RegisterRequest& request, fleet::ClientTable table, TimePoint now) {
  absl::StatusOr<fleet::RegisterReply> reply = Enter(request, std::move(table), now);
  return {.answer = std::move(reply), .effects = Take()};
}

absl::StatusOr<fleet::RegisterReply> RoundEngine::Enter(const fleet::RegisterRequest& request,
                                                        fleet::ClientTable table, TimePoint now) {
  MACAW_RETURN_IF_ERROR(CheckQuarantine(request.name));
  MACAW_RETURN_IF_ERROR(CheckNode(request, table));
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
    return absl::FailedPreconditionError(absl::StrCat("another process runs under the name \"",
                                                      request.name,
                                                      "\"; give every worker its own (--name)"));
  }
  if (Node* known = nodes_.Named(request.name); known != nullptr) {
    if (known->incarnation == request.incarnation) {  // our first answer was lost
      nodes_.Hear(known->session, now);
      NoteDeclined(*known, request.declined_now);
      reply.session = known->session;
      return reply;
    }
    nodes_.NoteReplaced(*known);
    Lose(known->id, "its process was replaced", now);
  }
  const Node& node = Join(request, std::move(table), {.session = NewSession()}, now);
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
  effects_.orders.emplace_back(EndSession{.session = node.session});
  if (node.poll.has_value()) Answer(node.poll->ticket, fleet::LeaseReply{.next = Next::kRegister});
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

// ---- leases

Effects RoundEngine::Lease(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now) {
  FindWork(ticket, request, now);
  return Take();
}

void RoundEngine::FindWork(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now) {
  const auto answer = [&](fleet::LeaseReply reply) { Answer(ticket, std::move(reply)); };
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return answer(fleet::LeaseReply::OfUnknownSession());
  if (state_ == State::kEnded) {
    nodes_.SetTold(*node);
    return answer({.next = Next::kFinished});
  }
  NoteDeclined(*node, request.declined);
  OnHeard(*node, now);
  if (node->poll.has_value())  // its connection broke, and it calls again
    Answer(nodes_.Unpark(*node, now).ticket, fleet::LeaseReply{.next = Next::kWait});
  bool for_others = false;     // there is work again that other nodes may do
  if (request.running == 0) {  // it holds no leases, so its last lease never arrived
    auto lost = phase_.DropNode(node->id, absl::StrCat("a lease never reached ", node->name));
    for_others = evaluation_.DropNode(node->id) || lost.has_value();
    if (lost.has_value()) {  // or it only says so
      for (const Attempt& attempt : lost->attempts)
        troubles_.RanOut(node->name, attempt.client, now + LeastLease());
    }
    Record(std::move(lost));
    if (!caught_up()) hold_nothing_.insert(node->id);
  }
  Poll poll{.ticket = ticket,
            .since = now,
            .deadline = now + std::min(request.wait, kLongestPoll),
            .request = request};
  if (!request.trained.empty()) return TakeArrival(*node, std::move(poll), now);
  if (!node->declined.empty()) return AnswerDeclining(*node, std::move(poll), now);
  const bool served = Serve(*node, request, ticket, now);
  if (std::exchange(passed_over_, false) || for_others) ServeOthers(*node, now);
  if (served) return DismissParked(node->holding, now);
  if (phase_.leased_to(node->id) > 0) {
    const bool full = phase_.leased_to(node->id) >= nodes_.MostLeases(*node);
    if (full || !more_to_lease(node->holding)) return answer({.next = Next::kCommit});
    // The node has no idle slot and asked ahead. It should ask again when a slot is idle, and an
    // open poll would prevent that.
    if (request.wanted == 0) return answer({.next = Next::kWait, .when_idle = true});
  }
  parked_early_ = parked_early_ || !caught_up();
  nodes_.Park(*node, std::move(poll));
}

bool RoundEngine::Serve(Node& node, const fleet::LeaseRequest& request, Ticket ticket,
                        TimePoint now) {
  if (!request.trained.empty()) return ServeArrival(node, request, ticket, now);
  if (!node.declined.empty()) return false;
  // Its results are of clients that were taken back, and would spoil a part with new ones.
  if (request.running > 0 && phase_.leased_to(node.id) == 0 && caught_up()) {
    Answer(ticket, fleet::LeaseReply{.next = Next::kCommit});
    return true;
  }
  // Training begins soon. Evaluation tasks are leased together with it, so that no slot is idle at
  // the end of the evaluation.
  if (state_ == State::kPreparing) return false;
  fleet::LeaseReply reply{.next = Next::kWork};
  const TimePoint expires = now + options_.lease_timeout;
  const auto name_only = [&](fleet::Blob& blob) {
    const bool has = std::ranges::find(request.have, blob.digest) != request.have.end();
    if (has) blob = {.digest = blob.digest, .size = blob.size};
    std::erase_if(blob.compact, [&](const fleet::CompactForm& form) {
      return !form.base.IsZero() &&
             std::ranges::find(request.have, form.base) == request.have.end();
    });
  };
  const auto trim = [&](fleet::Blob& blob) {
    name_only(blob);
    std::ranges::for_each(blob.parts, name_only);
  };
  // Lease evaluation first, in even shares: the metrics row waits for it, and the training that
  // follows evens out the slots.
  reply.evaluation = evaluation_.Take(node, nodes_, expires);
  if (reply.evaluation.has_value()) {
    node.tasks_until = now + TaskLimit();
    trim(reply.evaluation->model);
    for (fleet::EvaluationTask& task : reply.evaluation->tasks) {
      if (fleet::AtClientsPoint(task.kind))
        task.state_version = states_.versions().Current(task.client);
    }
  }
  // Where rounds do not wait for each other, an evaluation does not wait for a client that trains.
  const bool may_train = !live_ || !reply.evaluation.has_value();
  if (may_train && more_to_lease(node.holding))
    reply.training = ServeTraining(node, request, reply, now);
  if (reply.training.has_value()) {
    std::ranges::for_each(reply.training->broadcast.channels, trim);
    for (fleet::OlderModel& older : reply.training->older)
      std::ranges::for_each(older.broadcast.channels, trim);
  }
  if (!reply.training.has_value() && !reply.evaluation.has_value()) return false;
  reply.deletable = states_.TakeDeletable(node.holding, roster_);
  Answer(ticket, std::move(reply));
  return true;
}

std::optional<fleet::TrainingLease> RoundEngine::ServeTraining(Node& node,
                                                               const fleet::LeaseRequest& request,
                                                               fleet::LeaseReply& reply,
                                                               TimePoint now) {
  const uint64_t held = phase_.leased_to(node.id);
  // A step: each client counts on its own, so a node has one at a time.
  const uint64_t most = phase_.live() ? 1 : nodes_.MostLeases(node);
  if (held >= most) {  // others get what was planned for it
    phase_.RemoveFromPlan(node);
    passed_over_ = true;
    return std::nullopt;
  }
  if (held == 0) node.progressed = node.leased_until = now;
  OpenPhase::Handout handout =
      phase_.Take(node, request.wanted, most, now + options_.lease_timeout, now,
                  [&](ClientId client) { return LeaveToOthers(node, client, now); });
  passed_over_ = passed_over_ || handout.passed_over;
  reply.when_idle = handout.when_idle;
  nodes_.LookAgain(node, handout.look_again);
  Record(std::move(handout.record));
  if (handout.lease.has_value()) {
    const Duration limit = LeaseLimit(node, *handout.lease);
    node.leased_until = std::max(node.leased_until + limit, now + LeastLease());
  }
  return std::move(handout.lease);
}

void RoundEngine::ServeParked(Node& node, TimePoint now) {
  if (!node.poll.has_value()) return;
  if (Serve(node, node.poll->request, node.poll->ticket, now)) nodes_.Unpark(node, now);
}

// What one node passes over, a node before it may take. So there may be a second pass.
void RoundEngine::ServeEach(const std::vector<WorkerId>& nodes, TimePoint now) {
  for (int pass = 0; pass < 2; ++pass) {
    passed_over_ = false;
    for (const WorkerId id : nodes) ServeParked(nodes_.At(id), now);
    if (!std::exchange(passed_over_, false)) return;
  }
}

void RoundEngine::ServeParked(TimePoint now) {
  if (state_ == State::kPreparing) return;
  Nodes::Ids waiting;
  if (evaluation_.waits()) {
    waiting = nodes_.parked();
  } else if (state_ == State::kRunning) {
    absl::btree_set<HoldingId> holdings;
    for (const Seat& seat : phase_.seats()) {
      if (phase_.waiting(seat.holding)) holdings.insert(seat.holding);
    }
    for (const HoldingId holding : holdings)
      waiting.insert(nodes_.Of(holding).parked.begin(), nodes_.Of(holding).parked.end());
  }
  ServeEach({waiting.begin(), waiting.end()}, now);
  for (const WorkerId id : phase_.Holders()) {
    if (nodes_.Knows(id)) Dismiss(nodes_.At(id), now);
  }
}

void RoundEngine::ServeHolding(HoldingId holding, TimePoint now) {
  const Nodes::Ids& parked = nodes_.Of(holding).parked;
  if (more_to_lease(holding) || evaluation_.waits(holding))
    ServeEach({parked.begin(), parked.end()}, now);
  DismissParked(holding, now);
}

void RoundEngine::ServeOthers(const Node& node, TimePoint now) {
  const Nodes::Ids& parked = nodes_.central().parked;
  if (node.central_test && evaluation_.central_waits())
    ServeEach({parked.begin(), parked.end()}, now);
  ServeHolding(node.holding, now);
}

void RoundEngine::DismissParked(HoldingId holding, TimePoint now) {
  if (more_to_lease(holding)) return;
  const Nodes::Ids& parked = nodes_.Of(holding).parked;
  for (const WorkerId id : std::vector<WorkerId>(parked.begin(), parked.end()))
    Dismiss(nodes_.At(id), now);
}

void RoundEngine::Dismiss(Node& node, TimePoint now) {
  const bool done = phase_.leased_to(node.id) > 0 && !more_to_lease(node.holding);
  if (!done || !node.poll.has_value() || !node.poll->request.trained.empty()) return;
  Answer(nodes_.Unpark(node, now).ticket, fleet::LeaseReply{.next = Next::kCommit});
}

// ---- heartbeats, releases, uploads

Answered<fleet::HeartbeatReply> RoundEngine::Heartbeat(const fleet::HeartbeatRequest& request,
                                                       TimePoint now) {
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return {.answer = {.known = false}, .effects = {}};
  OnHeard(*node, now);
  fleet::HeartbeatReply reply{.stop = state_ == State::kEnded};
  if (reply.stop) nodes_.SetTold(*node);
  if (request.progress > node->progress) {
    node->progress = request.progress;
    node->progressed = now;
  }
  Renew(*node, now);
  if (caught_up()) reply.dropped = phase_.NotHeld(node->id, request.held);
  return {.answer = std::move(reply), .effects = Take()};
}

Effects RoundEngine::Release(const fleet::ReleaseRequest& request, TimePoint now) {
  const Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return {};
  Record(phase_.Release(node->id, request.attempts, absl::StrCat(node->name, " gave them back")));
  evaluation_.Release(node->id, request.tasks);
  if (request.leaving) {
    Lose(node->id, "it left", now);
    Advance(now);
  } else {
    ServeOthers(*node, now);
  }
  return Take();
}

fleet::UploadVerdict RoundEngine::Offer(const fleet::UploadOffer& offer) const {
  if (offer.purpose == fleet::BlobPurpose::kPopulation) {
    return roster_.HasTable(offer.digest) ? fleet::UploadVerdict::kHave
                                          : fleet::UploadVerdict::kSend;
  }
  const Node* node = nodes_.Find(offer.session);
  if (node == nullptr) return fleet::UploadVerdict::kStale;
  // Checked before the round, because an accepted commit stays accepted when its round is over.
  if (offer.commit_id != 0 && offer.commit_id <= node->last_commit)
    return fleet::UploadVerdict::kNotNeeded;
  // A node without leases has nothing that can count: its round is over, or went on without it.
  const bool wanted =
      state_ == State::kRunning && offer.round == phase_.round() && phase_.leased_to(node->id) > 0;
  return wanted ? fleet::UploadVerdict::kSend : fleet::UploadVerdict::kStale;
}

}  // namespace macaw::server
