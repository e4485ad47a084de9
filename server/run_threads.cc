#include "server/run_threads.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/coarse_sums.h"

namespace macaw::server {
namespace {

constexpr uint64_t kRefusalsTold = 1000;  // refusals in log and events; the limit protects the disk
constexpr uint64_t kSmallModel = 1 << 17;  // numbers; some 0.2 ms to decode, apply or encode

// The answer to a call about a round that this server has not reached again yet. The caller must
// retry.
absl::Status NotYet() {
  return absl::UnavailableError("the server is doing again what the one before it had done");
}

std::vector<fleet::Blob> BlobsOf(const std::vector<ModelWithout>& without) {
  std::vector<fleet::Blob> blobs;
  for (const ModelWithout& one : without) blobs.push_back(one.model);
  return blobs;
}

}  // namespace

absl::Status RunThreads::NotWritten() {
  return absl::UnavailableError("the server could not write to its disk");
}

absl::Status RunThreads::Suspended() {
  return absl::UnavailableError("the server is being started again");
}

RunThreads::RunThreads(Opening opening)
    : options_(std::move(opening.options)),
      seconds_before_(opening.seconds_before),
      started_(SteadyClock().Now()),
      run_id_(opening.engine.run_id),
      sums_states_(opening.sums_states),
      blobs_(opening.engine.evaluate_first, opening.keeper.split(),
             BlobsOf(opening.engine.evaluate_first_without)),
      sessions_(FromSeconds(options_.config.lease_timeout)),
      durable_commits_(options_.config.keeps_commits()),
      past_sums_(std::move(opening.sums)),
      past_rows_(std::move(opening.rows)),
      past_contributions_(std::move(opening.contributions)),
      scheduler_(std::move(opening.scheduler)),
      observed_model_(options_.config.stop.active() ? opening.engine.evaluate_first : std::nullopt),
      engine_(std::move(opening.engine), *scheduler_),
      owed_row_(std::move(opening.owed_row)),
      owed_contributions_(std::move(opening.owed_contributions)),
      early_stopping_(std::move(opening.early_stopping)),
      keeper_(std::move(opening.keeper)),
      models_(1 + keeper_.model_names().size()),
      layout_(keeper_.Layouts().front()),
      split_(keeper_.split()),
      small_model_(keeper_.Layouts().front()->size() <= kSmallModel),
      collects_(keeper_.collects()),
      bounded_(MayBeCoarse(options_.run.contribution_bound) ? keeper_.BoundedByTheRun()
                                                            : std::vector<std::string>()),
      writer_(std::move(opening.folder),
              [this](const absl::Status& status) {
                loop_.Post([this, status] { StopUnwritten(status); });
              }),
      loop_([this] { return NextDeadline(); }, [this] { OnDeadline(); },
            [this] { writer_.Flush(); }) {
  if (observed_model_.has_value()) observed_model_ = keeper_.ModelBlob();
  writer_.TellEvents(events_);
  NoteInstructionSet();
  // Restore the sessions before the first call, so that all workers keep theirs.
  for (const Restored::Member& member : opening.restored.members) {
    if (!member.there) continue;
    sessions_.Add(member.session, member.request.name);
    if (!member.request.owner) blobs_.Pin(member.request.table);
  }
  loop_.Post([this, restored = std::move(opening.restored)]() mutable {
    for (const Restored::Member& member : restored.members) {
      if (!member.there) continue;
      node_use_[member.session] = {};
      writer_.Worker(member.node, member.request.name, member.request.slots);
    }
    Carry(engine_.Resume(std::move(restored), SteadyClock().Now()));
  });
}

RunThreads::~RunThreads() {
  loop_.Post([this] { InterruptNow(); });
  {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
    mutex_.Await(absl::Condition(&over));
  }
  // The threads post to each other; after the end of the run at most engine → sums → engine. Let
  // all these tasks run before the first thread is destroyed.
  for (int pass = 0; pass < 3; ++pass) {
    sums_.WaitIdle();
    writer_.WaitIdle();
    loop_.WaitIdle();
  }
}

std::string RunThreads::InstructionSet() const {
  absl::MutexLock lock(&mutex_);
  return instruction_set_;
}

void RunThreads::NoteInstructionSet() {
  if (options_.config.mixed_profiles) return;
  absl::MutexLock lock(&mutex_);
  if (options_.config.instruction_set != "auto") {
    instruction_set_ = options_.config.instruction_set;
  } else if (!engine_.profiles().empty()) {
    instruction_set_ = engine_.profiles().front().instruction_set;
  }
}

void RunThreads::Register(fleet::RegisterRequest request, absl::StatusOr<fleet::ClientTable> table,
                          fleet::Reply<fleet::RegisterReply> reply) {
  loop_.Post([this, request = std::move(request), table = std::move(table),
              reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    using Registered = Answered<absl::StatusOr<fleet::RegisterReply>>;
    Registered registered = table.ok()
                                ? engine_.Register(request, *std::move(table), SteadyClock().Now())
                                : Registered{.answer = table.status(), .effects = {}};
    absl::StatusOr<fleet::RegisterReply> answer = std::move(registered.answer);
    Carry(std::move(registered.effects));
    if (answer.ok()) {
      NoteInstructionSet();
      if (!request.owner) blobs_.Pin(request.table);
      sessions_.Add(answer->session, request.name);
      answer->reconnect_every = std::max(answer->reconnect_every, sessions_.ReconnectEvery());
      // The session is already known if the answer to the worker's first call was lost.
      if (node_use_.try_emplace(answer->session).second)
        writer_.Worker(engine_.nodes().Find(answer->session)->id, request.name, request.slots);
      log_.Info(absl::StrCat("worker_joined name=", request.name, " slots=", request.slots));
      if (!engine_.roster().begun()) {
        log_.Info(absl::StrCat("waiting workers=", engine_.nodes().size(), "/",
                               options_.config.workers, " clients=", engine_.roster().clients(),
                               "/", options_.run.clients));
      }
    } else if (absl::IsUnavailable(answer.status())) {
      // It tries again and again, and the log says already why it may not come (in quarantine).
    } else if (const std::string why(answer.status().message());
               refusals_.size() < kRefusalsTold && refusals_.insert({request.name, why}).second) {
      const char* last =
          refusals_.size() == kRefusalsTold ? " (the last refusal that is told)" : "";
      log_.Warning(absl::StrCat("worker_refused ", answer.status().message(), last));
      WriteRecord(log::NodeRefused{.name = request.name,
                                   .why = absl::StrCat(answer.status().message(), last)});
    }
    AnswerAfter(RunWriter::Safe::kFromThisProcess, std::move(reply), std::move(answer));
  });
}

void RunThreads::Lease(fleet::LeaseRequest request, fleet::Reply<fleet::LeaseReply> reply) {
  loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    DropOlderAsks(request.session);
    const Ticket ticket = ++last_ticket_;
    leases_.emplace(ticket, OpenLease{.reply = std::move(reply)});
    Carry(engine_.Lease(ticket, request, SteadyClock().Now()));
  });
}

void RunThreads::Heartbeat(fleet::HeartbeatRequest request,
                           fleet::Reply<fleet::HeartbeatReply> reply) {
  loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    auto [answer, effects] = engine_.Heartbeat(request, SteadyClock().Now());
    Carry(std::move(effects));
    if (answer.known) {
      answer.heartbeat_every = sessions_.HeartbeatEvery();
      NodeUse& use = node_use_[request.session];
      LogLeftOut(request, use.left_out);
      use.memory = std::max(use.memory, request.memory_bytes);
      use.sent = std::max(use.sent, request.sent_bytes);
      use.received = std::max(use.received, request.received_bytes);
    }
    std::move(reply)(std::move(answer));
  });
}

void RunThreads::Commit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply) {
  // Where each client's vector is kept, a part grows with the clients that it names, however small
  // its bytes are. So nothing is made of one that names clients whom its node does not have.
  const bool grows = collects_ && request.part.has_value() && request.part->included.size() > 1;
  if (!grows) return DecodeCommit(std::move(request), std::move(reply));
  loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
    if (engine_.Leases(request.session, *request.part))
      return DecodeCommit(std::move(request), std::move(reply));
    TakeCommit(std::move(request), std::move(reply),
               absl::FailedPreconditionError("it names clients that are not leased to its node"),
               std::nullopt);
  });
}

void RunThreads::DecodeCommit(fleet::CommitRequest request,
                              fleet::Reply<fleet::CommitReply> reply) {
  // The part is first decoded and checked in a buffer of its own, then judged, and then added.
  PostDecoding([this, request = std::move(request), reply = std::move(reply)]() mutable {
    absl::Status decoded;
    std::optional<DecodedPart> part;
    if (request.part.has_value() && !request.part->included.empty()) {
      const ClientId first = request.part->included.front().attempt.client;
      absl::StatusOr<aggregation::ExactSum> result = keeper_.Decode(*request.part);
      decoded = result.status();
      if (result.ok()) part.emplace(DecodedPart{*std::move(result), first});
    }
    if (request.part.has_value() && !durable_commits_) request.part->sums.bytes.reset();
    loop_.Post([this, request = std::move(request), reply = std::move(reply),
                decoded = std::move(decoded), part = std::move(part)]() mutable {
      TakeCommit(std::move(request), std::move(reply), decoded, std::move(part));
    });
  });
}

void RunThreads::TakeCommit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply,
                            const absl::Status& decoded, std::optional<DecodedPart> part) {
  if (suspended_) return std::move(reply)(Suspended());
  if (!engine_.caught_up()) return std::move(reply)(NotYet());
  const Ticket ticket = ++last_ticket_;
  DropOlderAsks(request.session);
  if (request.ask.has_value()) {
    request.ask->session = request.session;
    asks_[request.session] = ticket;
  }
  commits_.emplace(ticket, OpenCommit{.session = request.session,
                                      .reply = std::move(reply),
                                      .ask = std::move(request.ask)});
  if (part.has_value()) decoded_.emplace(ticket, *std::move(part));
  Carry(engine_.Commit(ticket, std::move(request), decoded, SteadyClock().Now()));
}

void RunThreads::Release(fleet::ReleaseRequest request, fleet::Reply<fleet::ReleaseReply> reply) {
  loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    Carry(engine_.Release(request, SteadyClock().Now()));
    std::move(reply)(fleet::ReleaseReply{});
  });
}

void RunThreads::Offer(const fleet::UploadOffer& offer, fleet::Reply<fleet::UploadVerdict> reply) {
  loop_.Post([this, offer, reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    if (!engine_.caught_up()) return std::move(reply)(NotYet());
    fleet::UploadVerdict verdict = engine_.Offer(offer);
    const bool sums = offer.purpose == fleet::BlobPurpose::kSums;
    if (verdict == fleet::UploadVerdict::kSend && sums) {
      if (offer.size > most_sums_.bytes) {
        verdict = fleet::UploadVerdict::kTooLarge;
      } else if (offer.size > most_sums_.Of(engine_.LeasedTo(offer.session))) {
        verdict = fleet::UploadVerdict::kStale;  // some of its clients are no longer its own
      }
    }
    std::move(reply)(verdict);
  });
}

void RunThreads::NoteWaited(const std::string& node, Duration time) {
  loop_.Post([this, node, time] { engine_.NoteWaited(node, time); });
}

void RunThreads::Send(Ticket ticket, fleet::LeaseReply reply) {
  auto node = leases_.extract(ticket);
  if (!node.empty())
    AnswerAfter(node.mapped().safe, std::move(node.mapped().reply), std::move(reply));
}

void RunThreads::Send(Ticket ticket, fleet::CommitReply reply) {
  auto node = commits_.extract(ticket);
  if (node.empty()) return;
  OpenCommit& commit = node.mapped();
  const bool goes_on =
      reply.verdict != fleet::Verdict::kRefused && reply.verdict != fleet::Verdict::kRegister;
  if (!commit.ask.has_value() || !goes_on) {
    return AnswerAfter(RunWriter::Safe::kFromTheMachine, std::move(commit.reply), std::move(reply));
  }
  // The lease is an event of its own, which comes after all effects of this one.
  loop_.Post([this, commit = std::move(commit), reply = std::move(reply)]() mutable {
    const Ticket lease = ++last_ticket_;
    leases_.emplace(lease,
                    OpenLease{.reply =
                                  [answer = std::move(commit.reply), reply = std::move(reply)](
                                      absl::StatusOr<fleet::LeaseReply> leased) mutable {
                                    if (!leased.ok()) return std::move(answer)(leased.status());
                                    reply.lease = *std::move(leased);
                                    std::move(answer)(std::move(reply));
                                  },
                              .safe = RunWriter::Safe::kFromTheMachine});
    Carry(engine_.Lease(lease, *commit.ask, SteadyClock().Now()));
  });
}

void RunThreads::DropOlderAsks(SessionId session) {
  const auto ask = asks_.extract(session);
  if (ask.empty()) return;
  const auto commit = commits_.find(ask.mapped());
  if (commit != commits_.end()) commit->second.ask.reset();
}

void RunThreads::GoOnTo(Round round) {
  loop_.Post([this, round] { Carry(engine_.GoOnTo(round, SteadyClock().Now())); });
}

void RunThreads::StopHere(std::string reason) {
  loop_.Post(
      [this, reason = std::move(reason)] { Carry(engine_.StopHere(reason, SteadyClock().Now())); });
}

}  // namespace macaw::server
