#include "server/coordinator.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "aggregation/exact_sum.h"
#include "core/clock.h"
#include "core/shell.h"
#include "core/status.h"
#include "server/access.h"
#include "server/engine/engine_options.h"
#include "server/run_threads.h"

namespace macaw::server {

bool EvaluationDue(const Options& options, Round round) {
  return RegularEvaluationDue(options.run, round, options.stop_after) ||
         LeaveOneOutDue(options.run.evaluation, round) || options.evaluate_after.contains(round);
}

namespace {

std::span<const std::byte> BytesOf(const fleet::Blob& blob) {
  return blob.bytes != nullptr ? blob.bytes->bytes() : std::span<const std::byte>();
}

using OwnersNow = std::function<absl::StatusOr<std::shared_ptr<const ClientOwners>>()>;

// Whoever registers a client first has it, so a node could take another's.
absl::Status CheckNotAnothers(const OwnersNow& owners, const fleet::RegisterRequest& request,
                              const fleet::ClientTable& table) {
  if (owners == nullptr) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<const ClientOwners> by_client, owners());
  if (by_client->empty()) return absl::OkStatus();
  for (uint64_t place = 0; place < table.clients(); ++place) {
    const auto owner = by_client->find(table.NameOf(place));
    if (owner == by_client->end() || owner->second == request.name) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        "worker \"", request.name, "\" brings a client named \"", owner->first,
        "\", which belongs to \"", owner->second,
        "\" (macaw pki list): take it out of its data, name it otherwise, or enter it elsewhere "
        "with macaw pki assign"));
  }
  return absl::OkStatus();
}

// A device brings clients of its own, and an owner only those with which it was entered.
absl::Status CheckOwns(const OwnersNow& owners, const fleet::Caller& caller,
                       const fleet::RegisterRequest& request, const fleet::ClientTable& table) {
  if (!request.owner && caller.role == fleet::Role::kDevice) {
    return absl::PermissionDeniedError(
        absl::StrCat("\"", caller.node,
                     "\" is a device and trains its own clients alone: set node.owner = true "
                     "in its file, or invite it with --role worker"));
  }
  if (caller.role == fleet::Role::kDevice && request.has_central_rows()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "\"", caller.node,
        "\" is a device, and its rows are no test set for all: set data.test_fraction and "
        "data.central_val_fraction to 0 in its file, or invite a tester with --role worker"));
  }
  if (!request.owner || caller.owns_any) return CheckNotAnothers(owners, request, table);
  const absl::flat_hash_set<absl::string_view> owns(caller.owns.begin(), caller.owns.end());
  for (uint64_t place = 0; place < table.clients(); ++place) {
    const std::string name = table.NameOf(place);
    if (owns.contains(name)) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        "worker \"", request.name, "\" does not own a client named \"", name,
        "\" in this run (macaw pki assign ", ForShell(request.name), " --client ", ForShell(name),
        " enters it, with a --client for each other one that it owns)"));
  }
  return absl::OkStatus();
}

// The fleet's calls, on RPC threads. Checks whether this caller may make the call in this session,
// and passes an allowed call to RunThreads.
class CoordinatorImpl final : public Coordinator {
 public:
  explicit CoordinatorImpl(Opening opening) : run_(std::move(opening)) {}

  void Hello(const fleet::Caller& caller, fleet::HelloRequest /*request*/,
             fleet::Reply<fleet::HelloReply> reply) override {
    if (const absl::Status status = CheckAccess(caller, Call::kHello, Whose::kNobodys);
        !status.ok()) {
      return std::move(reply)(status);
    }
    std::move(reply)(
        fleet::HelloReply{.program = run_.options().program,
                          .run = run_.options().run,
                          .instruction_set = run_.InstructionSet(),
                          .sum_form = static_cast<uint32_t>(aggregation::SumForm::kCompact)});
  }

  void Register(const fleet::Caller& caller, fleet::RegisterRequest request,
                fleet::Reply<fleet::RegisterReply> reply) override {
    const Whose whose =
        caller.node.empty() || caller.node == request.name ? Whose::kOwn : Whose::kAnothers;
    absl::StatusOr<fleet::ClientTable> table =
        fleet::ClientTable::Decode(BytesOf(request.table), request.clients);
    absl::Status status = CheckAccess(caller, Call::kRegister, whose);
    if (status.ok() && table.ok())
      status = CheckOwns(run_.options().owners, caller, request, *table);
    if (status.ok() && !request.declined.empty()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("its owner does not accept the run: ", request.declined));
    }
    if (!status.ok()) table = std::move(status);
    run_.Register(std::move(request), std::move(table), std::move(reply));
  }

  void Lease(const fleet::Caller& caller, fleet::LeaseRequest request,
             fleet::Reply<fleet::LeaseReply> reply) override {
    if (Denied(caller, Call::kLease, request.session, reply)) return;
    run_.Lease(std::move(request), std::move(reply));
  }

  void Heartbeat(const fleet::Caller& caller, fleet::HeartbeatRequest request,
                 fleet::Reply<fleet::HeartbeatReply> reply) override {
    if (Denied(caller, Call::kHeartbeat, request.session, reply)) return;
    switch (run_.sessions().Hear(request.session, SteadyClock().Now())) {
      case OpenSessions::Beat::kUnknown:
        return std::move(reply)(fleet::HeartbeatReply::OfUnknownSession());
      case OpenSessions::Beat::kTooSoon:
        return std::move(reply)(fleet::HeartbeatReply{});
      case OpenSessions::Beat::kDue:
        break;
    }
    run_.Heartbeat(std::move(request), std::move(reply));
  }

  void Commit(const fleet::Caller& caller, fleet::CommitRequest request,
              fleet::Reply<fleet::CommitReply> reply) override {
    if (Denied(caller, Call::kCommit, request.session, reply)) return;
    run_.Commit(std::move(request), std::move(reply));
  }

  void Release(const fleet::Caller& caller, fleet::ReleaseRequest request,
               fleet::Reply<fleet::ReleaseReply> reply) override {
    if (Denied(caller, Call::kRelease, request.session, reply)) return;
    run_.Release(std::move(request), std::move(reply));
  }

  void Offer(const fleet::Caller& caller, fleet::UploadOffer offer,
             fleet::Reply<fleet::UploadVerdict> reply) override {
    if (Denied(caller, Call::kOffer, offer.session, reply)) return;
    run_.Offer(offer, std::move(reply));
  }

  bool Knows(SessionId session) const override { return run_.sessions().Knows(session); }

  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller& caller,
                                                const Digest& digest) override {
    const bool allowed = CheckAccess(caller, Call::kDownload, Whose::kNobodys).ok();
    return allowed ? run_.blobs().Find(digest) : nullptr;
  }

  void Waited(const fleet::Caller& caller, Duration time) override {
    run_.NoteWaited(caller.node, time);
  }

  absl::StatusOr<Outcome> Wait() override { return run_.Wait(); }
  void Interrupt() override { run_.Interrupt(); }
  void Suspend() override { run_.Suspend(); }
  void GoOnTo(Round round) override { run_.GoOnTo(round); }
  void StopHere(std::string reason) override { run_.StopHere(std::move(reason)); }
  void AskEngine(absl::AnyInvocable<void() &&> then) override { run_.AskEngine(std::move(then)); }
  admin::AdminHandler& operations() override { return run_; }

 private:
  // If the caller may not make the call in this session, answers it with an error (RPC threads).
  template <typename T>
  bool Denied(const fleet::Caller& caller, Call call, SessionId session, fleet::Reply<T>& reply) {
    const std::optional<std::string> owner = run_.sessions().OwnerOf(session);
    const bool own = caller.node.empty() || caller.node == owner;
    absl::Status status = CheckAccess(caller, call,
                                      !owner.has_value() ? Whose::kNobodys
                                      : own              ? Whose::kOwn
                                                         : Whose::kAnothers);
    if (status.ok()) return false;
    std::move(reply)(std::move(status));
    return true;
  }

  RunThreads run_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Options options, FlatVector initial, const algorithms::Registry& registry) {
  MACAW_ASSIGN_OR_RETURN(Opening opening, Open(std::move(options), std::move(initial), registry));
  return std::make_unique<CoordinatorImpl>(std::move(opening));
}

}  // namespace macaw::server
