#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/blob_digest.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/ids.h"
#include "core/numeric_profile.h"
#include "core/vector.h"
#include "plan/run_plan.h"

// The messages between server and workers, as plain structs. Server and worker share nothing else.
// proto/wire carries them over gRPC. Messages hold durations, never clock times. The lists of their
// fields are in fields.h. OfUnknownSession: the answer to a call in a session that is not open.
namespace macaw::fleet {

// Where another process of the same user finds the bytes of a blob: a memory file that its owner
// keeps open (proto/wire/shared_memory.h).
struct SharedPlace {
  int32_t process = 0;
  int32_t file = -1;
  bool operator==(const SharedPlace&) const = default;
};

// A short form of a blob, by which it may travel (compact_vector.h).
struct CompactForm {
  Digest base;  // of the blob that it is a change of; zero: it stands alone
  Digest digest;
  uint64_t size = 0;
  std::shared_ptr<const AlignedBuffer> bytes = {};  // as Blob::bytes
};

// A piece of bytes, named by its BlobDigest. `bytes` is null when only the digest has arrived;
// FleetLink::Fetch then gets the bytes.
struct Blob {
  Digest digest;
  uint64_t size = 0;
  std::shared_ptr<const AlignedBuffer> bytes;
  std::optional<SharedPlace> place = {};  // of the sender's bytes, if the sender told it
  std::vector<CompactForm> compact = {};
  // Of a model with frozen tensors: the blob of what is trained, and that of the base, which never
  // changes in a run. From both follow the bytes of the whole. Empty: it has no parts.
  std::vector<Blob> parts = {};

  static Blob Of(AlignedBuffer buffer) {
    const Digest digest = BlobDigest(std::as_const(buffer).bytes());
    return {digest, buffer.size(), std::make_shared<const AlignedBuffer>(std::move(buffer))};
  }
  bool named() const { return !digest.IsZero(); }
  // The bytes that cross a network for a receiver that has the bases of all forms, and of a model
  // with parts the base.
  uint64_t least_bytes() const;
  bool has_parts() const { return parts.size() == 2; }
  const Blob& trained() const { return parts[0]; }
  const Blob& base() const { return parts[1]; }
};

// What a phase sends to its clients: a blob a channel, each EncodeVectors of one vector
// (vector_codec.h), for the channels of Schema::down that the phase sends, in their order. A
// channel that did not change keeps its digest, so a worker that still has its blob does not fetch
// it again.
struct Broadcast {
  Digest name;  // of the whole, for parts, log and journal
  std::vector<Blob> channels;

  // Named by the digest of the only channel, or by the digest over the digests of all.
  static Broadcast Of(std::vector<Blob> channels);
  uint64_t size() const;  // least_bytes of all channels
};

// ---- Hello: the first call, which exchanges versions and limits

struct HelloRequest {
  // The version of the protocol. Another major is refused; an older minor is served.
  uint32_t major = 1, minor = 0;
  std::string program;  // "macaw-worker 0.1.0", for the log
};
struct HelloReply {
  uint32_t major = 1, minor = 0;
  std::string program;
  uint64_t max_inline_bytes = 0;  // larger blobs are moved in chunks
  uint64_t max_blob_bytes = 0;
  // The run's configuration. With it the worker chooses its trainer, whose numeric profile it sends
  // when it registers.
  std::optional<RunPlan> run;
  // The instructions with which the run's nodes train (NumericProfile): a node that may choose
  // takes them. "": not decided yet, or each node takes its best.
  std::string instruction_set = {};
  // The newest form of sums that the server reads (aggregation::SumForm); 0: the first.
  uint32_t sum_form = 0;
};

// ---- Register: identity, capability, the clients that the node holds

struct RegisterRequest {
  std::string name;          // stable over restarts: "worker-0"
  uint64_t incarnation = 0;  // random per process start; the same pair resumes a session
  uint32_t slots = 1;
  NumericProfile profile;
  std::vector<int64_t> input_shape;
  int64_t classes = 0;
  // The clients whose rows the node has (its holding). Nodes with equal digests have equal rows,
  // and each of them may train any of these clients. An owner's clients are trained by the owner
  // alone.
  Digest data_digest;    // of everything that decides those rows
  uint64_t clients = 0;  // may be 0 if the node has the central test set
  Blob table;            // ClientTable::Encode (client_table.h)
  bool owner = false;
  uint64_t central_test_rows = 0;  // 0: it does not have the central test set
  uint64_t central_val_rows = 0;   // of the central validation set, which lies with it
  Digest central_test_digest;      // of everything that decides the rows of both
  bool has_central_rows() const { return central_test_rows > 0 || central_val_rows > 0; }
  std::vector<Attempt>
      died_running;             // what a former process of this name was training when it died
  bool volatile_state = false;  // its stored client states are lost when its process ends
  std::string declined;         // why the node's owner does not let it join the run; "": it joins
  std::string declined_now;     // it joins; as LeaseRequest::declined
  std::string program;          // "macaw-worker 0.1.0"; "" of releases that do not say it
  // Of the names of its columns of features, and of its classes, in their order. Zero: unknown.
  Digest feature_names, class_names;
  // It asks for the step in which a client counts once the client is trained
  // (LeaseRequest::trained).
  bool arrives = false;
};
struct RegisterReply {
  SessionId session;
  uint32_t epoch = 0;
  RunPlan run;
  Duration lease_timeout{};  // a lease that is not renewed for this long goes to another worker
  Duration heartbeat_every{};
  Digest run_id;  // id of the run for ever, also when resumed; names its states in a store
  // Mean pause between two tries to reconnect. Each pause is random, so that the workers do not all
  // reconnect at the same moment. 0: the worker chooses the pauses.
  Duration reconnect_every{};
};

// ---- Lease: asks for work by a long poll; a commit may ask for work, too

struct LeaseRequest {
  SessionId session;
  uint32_t wanted = 0;       // idle slots; 0: all slots are busy and this asks in advance
  uint32_t running = 0;      // clients that this worker has leased and not yet committed
  std::vector<Digest> have;  // blobs that need not be sent again
  // Why the node's owner does not let it work now. Then it gets no work, and the server does not
  // wait for the clients that only this node can train. Empty: it works.
  std::string declined = {};
  Duration wait{};  // how long the server may hold the call until there is work
  // Clients of a TrainingLease::arrives that this worker has trained. With them the call asks for
  // nothing else than the round in which they count. Answers: kWork with a lease of these attempts
  // in that round, which is not trained again; kCommit: they do not count any more.
  std::vector<Attempt> trained = {};
  // Not sent, but set by a server that paces the node (server/paced_calls.h): there is an allowance
  // for leases that never arrived.
  bool paced = false;
};
enum class Next : uint8_t {
  kWork = 0,      // training or evaluation below
  kCommit = 1,    // no more work in this round: commit when the leased work is done
  kWait = 2,      // the poll timed out: ask again
  kFinished = 3,  // the run is over: exit
  kRegister = 4,  // unknown session (the server restarted, or gave the worker up): register again
};
struct Assignment {
  ClientId client;     // number in the run: key of its random streams, state and record
  uint64_t place = 0;  // index among the clients of the node: key of its rows
  Fence fence;
  uint32_t multiplicity = 1;
  double weight = 1;    // under the run's weight policy, without multiplicity
  Fence state_version;  // the state to read; counter 0: the client has none yet
  // By how many rounds the model from which it trains is older than the newest one.
  uint32_t staleness = 0;
};
// The model that was sent `staleness` rounds before the newest one.
struct OlderModel {
  uint32_t staleness = 1;
  Broadcast broadcast;
};
struct TrainingLease {
  Round round{};
  Phase phase{};
  Broadcast broadcast;
  double max_weight = 1, total_weight = 1;  // aggregation::GridOrder
  uint32_t max_multiplicity = 1;
  uint64_t total_multiplicity = 1;
  std::vector<Assignment> assignments;  // in the order to train them
  std::vector<OlderModel> older = {};   // from which some of these train, once each
  bool last =
      false;  // no more work in this round: commit after these clients, without another Lease
  // Where rounds do not wait for each other and devices arrive when they are ready: once its client
  // is trained, the worker asks in which round it counts (LeaseRequest::trained).
  bool arrives = false;
};
enum class EvaluationKind : uint8_t {
  kCentralTest = 0,
  kClientTest = 1,
  kClientTrain = 2,
  kStateDigest = 3,       // state_digest.h; needs no model
  kClientTestGlobal = 4,  // the rows of kClientTest, the model that came with the lease
  kClientValidation = 5,
  kClientTuned = 6,  // the rows of kClientTest, after EvaluationConfig::fine_tune
  kCentralValidation = 7,
  // The central test rows with a backdoor's trigger and class, less those of that class; so the
  // result may have fewer rows than were asked for.
  kCentralBackdoor = 8,
};
// Whether all of a client's rows of a split are evaluated; the server does not know how many.
inline bool TakesAllRows(EvaluationKind kind) {
  return kind == EvaluationKind::kClientTest || kind == EvaluationKind::kClientTestGlobal ||
         kind == EvaluationKind::kClientValidation || kind == EvaluationKind::kClientTuned;
}
// Whether the rule says which point is evaluated. It may be in the client's state.
inline bool AtClientsPoint(EvaluationKind kind) {
  return kind == EvaluationKind::kClientTest || kind == EvaluationKind::kClientValidation ||
         kind == EvaluationKind::kClientTuned;
}
struct EvaluationTask {
  Fence fence;
  EvaluationKind kind = EvaluationKind::kCentralTest;
  ClientId client;     // of the kinds kClient…
  uint64_t place = 0;  // of the client, as in an assignment
  // Range of rows; unused if TakesAllRows. Under concept shift the rows of a central set are as
  // many times as there are groups: first as group 0 sees them, then as group 1 does, ….
  uint64_t begin = 0, end = 0;
  Fence state_version;  // AtClientsPoint: the state to use; counter 0: the client has none yet
  std::vector<Attempt> states;  // kStateDigest: the stored version of each client
};
struct EvaluationLease {
  Round round{};  // the model after this round
  Blob model;     // EncodeVectors of the model, and behind it the rule's further models
  std::vector<EvaluationTask> tasks;
};
struct LeaseReply {
  Next next = Next::kWait;
  std::optional<TrainingLease> training;
  std::optional<EvaluationLease> evaluation;
  // State versions that are no longer needed and may be deleted. The server tells each version to
  // one worker, once. If that message is lost, it only costs space in the store. The versions come
  // with leases because leases keep pace with the rounds.
  std::vector<Attempt> deletable;
  // Ask again only when a slot is idle: the remaining clients should not wait behind a running one.
  bool when_idle = false;

  static LeaseReply OfUnknownSession() { return {.next = Next::kRegister}; }
};

// ---- Heartbeat: reports progress and renews all leases; the reply brings directives

enum class LeftOutReason : uint8_t {
  kNotFinite = 0,   // NaN or infinity in its update, or a loss that cannot count
  kOutOfBound = 1,  // |value| or weight above the channel's bound
  kNoData = 2,      // no training rows, or they could not be read
  kState = 3,       // its state is missing or corrupt
  kFailed = 4,      // the trainer or the algorithm returned an error
  kDeclined = 5,    // its node does not want to train it now
  // Only the server gives these reasons, and no node may send them.
  kTooSlow = 6,    // its node is there, but had no result at the round's deadline
  kGone = 7,       // no node that has it was there at the round's deadline
  kNotNeeded = 8,  // enough other clients were counted, or the round was dropped
};
struct LeftOut {
  Attempt attempt;
  LeftOutReason reason = LeftOutReason::kFailed;
  std::string message;
};
struct HeartbeatRequest {
  SessionId session;
  std::vector<Attempt> held;  // leased and not begun; the reply names those that it has lost
  // Grows with every piece of work that the worker does (a minibatch, rows loaded, a state read or
  // written). It has no unit. If two heartbeats bring the same number, the worker made no progress.
  uint64_t progress = 0;
  uint64_t memory_bytes = 0;  // proportional set size (PSS)
  // Clients that were left out since the last heartbeat, a few. The part that says so for good may
  // come much later.
  std::vector<LeftOut> left_out = {};
  // What the session has sent and received so far (FleetLink::traffic).
  uint64_t sent_bytes = 0, received_bytes = 0;
};
struct HeartbeatReply {
  bool known = true;             // false: register again
  std::vector<Attempt> dropped;  // no longer leased to this worker: stop them, do not commit them
  bool stop = false;             // the run is over or aborted
  // When to send the next one. A large fleet sends them less often. 0: as before.
  Duration heartbeat_every{};

  static HeartbeatReply OfUnknownSession() { return {.known = false}; }
};

// ---- Commit: the only call that counts anything (idempotent)

struct ClientRecord {
  Attempt attempt;
  uint32_t multiplicity = 1;
  double weight = 1;
  uint32_t examples = 0;  // training rows
  uint64_t steps = 0;
  std::vector<double> sums;                // MetricSchema::sums over its minibatches
  std::vector<double> personal_sums = {};  // the same for its personal model; empty: none
  // Seconds for reading the state, for loading the rows, and for everything after. Never part of a
  // result.
  double state_seconds = 0, load_seconds = 0, train_seconds = 0;
  uint32_t slot = 0;       // which slot of its worker, from 0
  double began_after = 0;  // seconds after its lease arrived
  bool has_state = false;  // a state blob was stored under this attempt
  // What the client would send in a part of its own: the sum's bytes (ExactSum::BytesAlone).
  uint64_t bytes_up = 0;
};
struct Part {
  Round round{};
  Phase phase{};
  Digest broadcast;                    // name of the broadcast that the clients were trained from
  std::vector<ClientRecord> included;  // exactly the attempts that `sums` holds
  std::vector<LeftOut> left_out;       // clients that contribute nothing to this round
  Blob sums;  // aggregation::ExactSum, in either form; unnamed when nobody is included
};
struct EvaluationResult {
  EvaluationTask task;
  Round round{};
  std::vector<double> sums;
  // The counts of training::ClassCounts that are not 0: their indices, ascending, and the counts.
  // Both empty: none are asked for, or the node's trainer cannot give them.
  std::vector<uint32_t> counted;
  std::vector<uint32_t> counts;
  // Of a client, where the rule has several models: the one at which it was evaluated.
  uint32_t choice = 0;
  std::string failure;  // why a client's state could not be read; then there are no sums
  Digest digest;        // kStateDigest
};
struct CommitRequest {
  SessionId session;
  uint64_t commit_id =
      0;  // grows with every new commit of this incarnation; a repeat has the same id
  std::optional<Part> part;
  std::vector<EvaluationResult> evaluations;
  // Asks for the next work in the same call, which saves a round trip. The reply answers it as
  // Lease would, once the commit is judged. Its session is that of the commit.
  std::optional<LeaseRequest> ask;
  // The place of this commit among those that the transport admits at once (proto/wire/intake.h).
  // The handler releases it once the commit is judged. Never sent.
  std::shared_ptr<const void> hold = {};
};
enum class Verdict : uint8_t {
  kAccepted = 0,
  kDuplicate = 1,  // this commit was accepted before
  kStale = 2,     // some attempt is no longer current (expired, other epoch, round closed): nothing
                  // was counted
  kRefused = 3,   // malformed, wrong layout, impossible sums: nothing was counted
  kRegister = 4,  // unknown session
};
struct CommitReply {
  Verdict verdict = Verdict::kRefused;
  std::string reason;
  // The answer to `ask`. May be missing with any verdict, and always is with kRefused and
  // kRegister. A worker that still wants work then calls Lease.
  std::optional<LeaseReply> lease;

  static CommitReply OfUnknownSession() {
    return {.verdict = Verdict::kRegister, .reason = "unknown session"};
  }
};

// ---- Release: gives leased work back without a result

struct ReleaseRequest {
  SessionId session;
  std::vector<Attempt> attempts;
  std::vector<Fence> tasks = {};  // evaluation tasks
  bool leaving = false;           // the worker shuts down: it gives everything back
};
struct ReleaseReply {
  static ReleaseReply OfUnknownSession() { return {}; }  // the leases ended with the session
};

// ---- Uploads: the verdict comes before any byte moves

enum class BlobPurpose : uint8_t {
  kPopulation = 0,  // RegisterRequest::table
  kSums = 1,        // Part::sums
  kRecords = 2,     // a Part whose records do not fit a message
};
struct UploadOffer {
  BlobPurpose purpose = BlobPurpose::kSums;
  SessionId session;  // 0 for the population, which is offered before there is a session
  Digest digest;
  uint64_t size = 0;
  Round round{};                          // of the part; 0: not a part
  uint64_t commit_id = 0;                 // of the commit that will name it; 0: none
  std::optional<SharedPlace> place = {};  // of the sender's bytes, if the sender told it
};
enum class UploadVerdict : uint8_t {
  kSend = 0,
  kHave = 1,
  kNotNeeded = 2,
  kStale = 3,
  kTooLarge = 4,
  kBusy = 5
};
// What the transport answers to an offer.
struct UploadAnswer {
  UploadVerdict verdict = UploadVerdict::kBusy;
  uint64_t offset = 0;  // kSend: begin here
};

}  // namespace macaw::fleet
