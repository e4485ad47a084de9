#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/digest.h"
#include "core/ids.h"
#include "core/numeric_profile.h"
#include "core/vector.h"
#include "plan/run_plan.h"

// What server and workers say to each other, as plain values: the only thing the two rooms share.
// proto/wire carries them over gRPC. Durations cross, clock times never do.
namespace macaw::fleet {

// Where another process of the same user finds the bytes of a blob: a memory file that its owner
// keeps open (proto/wire/shared_memory.h).
struct SharedPlace {
  int32_t process = 0;
  int32_t file = -1;
  bool operator==(const SharedPlace&) const = default;
};

// A content-addressed piece of bytes. `bytes` is null where only the name has arrived: fetch it by
// digest.
struct Blob {
  Digest digest;
  uint64_t size = 0;
  std::shared_ptr<const AlignedBuffer> bytes;
  std::optional<SharedPlace> place = {};  // of the sender's bytes, where it has told

  static Blob Of(AlignedBuffer buffer) {
    const Digest digest = DigestOf(std::as_const(buffer).bytes());
    return {digest, buffer.size(), std::make_shared<const AlignedBuffer>(std::move(buffer))};
  }
  bool named() const { return !digest.IsZero(); }
};

// ---- Hello: before anything else, so that versions and limits are known

struct HelloRequest {
  // Of the protocol: another major is refused, an older minor is served.
  uint32_t major = 1, minor = 0;
  std::string program;  // "macaw-worker 0.1.0", for the log
};
struct HelloReply {
  uint32_t major = 1, minor = 0;
  std::string program;
  uint64_t max_inline_bytes = 0;  // larger blobs are moved in chunks
  uint64_t max_blob_bytes = 0;
  // What the run asks for, so that a worker can register with the numeric profile of the trainer
  // that it will use.
  std::optional<RunPlan> run;
};

// ---- Register: identity, capability, the clients that the node holds

struct RegisterRequest {
  std::string name;          // stable over restarts: "worker-0"
  uint64_t incarnation = 0;  // random per process start; the same pair resumes a session
  uint32_t slots = 1;
  NumericProfile profile;
  std::vector<int64_t> input_shape;
  int64_t classes = 0;
  // The clients whose rows it has: its holding. Nodes with equal digests have equal rows, and any
  // of them may train a client of theirs; an owner's clients are trained by nobody else.
  Digest data_digest;    // of everything that decides those rows
  uint64_t clients = 0;  // may be 0 where it has the central test set
  Blob table;            // ClientTable::Encode (client_table.h)
  bool owner = false;
  uint64_t central_test_rows = 0;  // 0: it does not have the central test set
  Digest central_test_digest;      // of everything that decides its rows
  std::vector<Attempt>
      died_running;             // what a former process of this name was training when it died
  bool volatile_state = false;  // the client states that it keeps end with its process
};
struct RegisterReply {
  SessionId session;
  uint32_t epoch = 0;
  RunPlan run;
  Duration lease_timeout{};  // a lease not renewed for this long is given to others
  Duration heartbeat_every{};
  Digest run_id;  // names the run for ever, a resumed one too: whose states a store holds
  // After a broken connection ask again this often on average, each time after a random pause, so
  // that a fleet does not come at once. 0: as often as the worker likes.
  Duration reconnect_every{};
};

// ---- Lease: work, on a long poll; a commit may ask for it, too

struct LeaseRequest {
  SessionId session;
  uint32_t wanted = 0;       // slots with nothing to do; 0: all are busy, this asks ahead for them
  uint32_t running = 0;      // clients of this worker leased and not yet committed
  std::vector<Digest> have;  // blobs that need not be sent again
};
enum class Next : uint8_t {
  kWork = 0,      // training or evaluation below
  kCommit = 1,    // nothing more for you in this round: commit what you have when it is done
  kWait = 2,      // the poll ran out: ask again
  kFinished = 3,  // the run is over: exit
  kRegister = 4,  // unknown session (the server restarted, or took you for dead): register again
};
struct Assignment {
  ClientId client;     // its number in the run: of its streams, its state, its record
  uint64_t place = 0;  // among the clients of the node's holding: of its rows
  Fence fence;
  uint32_t multiplicity = 1;
  double weight = 1;    // under the run's weight policy, without multiplicity
  Fence state_version;  // the version to read; counter 0: none yet
};
struct TrainingLease {
  Round round{};
  Phase phase{};
  Blob broadcast;  // EncodeVectors of Schema::down, as far as the phase sends it (vector_codec.h)
  double max_weight = 1, total_weight = 1;  // aggregation::GridOrder
  uint32_t max_multiplicity = 1;
  uint64_t total_multiplicity = 1;
  std::vector<Assignment> assignments;  // in the order to train them
  bool last =
      false;  // the server holds nothing more for this round: commit after these, without asking
};
enum class EvaluationKind : uint8_t {
  kCentralTest = 0,
  kClientTest = 1,
  kClientTrain = 2,
  kStateDigest = 3  // state_digest.h; needs no model
};
struct EvaluationTask {
  Fence fence;
  EvaluationKind kind = EvaluationKind::kCentralTest;
  ClientId client;              // kClientTest, kClientTrain
  uint64_t place = 0;           // of the client, as in an assignment
  uint64_t begin = 0, end = 0;  // rows; kClientTest is always about all of them
  Fence state_version;          // kClientTest: the client's; counter 0: none yet
  std::vector<Attempt> states;  // kStateDigest: the stored versions, by client
};
struct EvaluationLease {
  Round round{};  // the model after this round
  Blob model;     // EncodeVectors of the model alone
  std::vector<EvaluationTask> tasks;
};
struct LeaseReply {
  Next next = Next::kWait;
  std::optional<TrainingLease> training;
  std::optional<EvaluationLease> evaluation;
  // State versions that nothing names any more, each told to one worker, once: a lost message costs
  // room in the store and nothing else. In the lease, because its rate is that of the rounds.
  std::vector<Attempt> deletable;
  // Ask again only with a slot idle: what is left should not wait behind a running client.
  bool when_idle = false;
};

// ---- Heartbeat: progress up, all leases renewed; directives down

struct HeartbeatRequest {
  SessionId session;
  std::vector<Attempt> held;  // leased and not begun: the answer says which are no longer its own
  // Grows with every piece of work that the worker does (a minibatch, rows loaded, a state read or
  // written), whatever its unit: two equal numbers in a row are a worker that stands still.
  uint64_t progress = 0;
  uint64_t memory_bytes = 0;  // PSS
};
struct HeartbeatReply {
  bool known = true;             // false: register again
  std::vector<Attempt> dropped;  // held but no longer yours: stop them, do not commit them
  bool stop = false;             // the run is over or aborted
};

// ---- Commit: the only call that counts anything (idempotent)

struct ClientRecord {
  Attempt attempt;
  uint32_t multiplicity = 1;
  double weight = 1;
  uint32_t examples = 0;  // training rows
  uint64_t steps = 0;
  std::vector<double> sums;                // MetricSchema::sums over its minibatches
  std::vector<double> personal_sums = {};  // likewise, of the model that it keeps; empty: none
  // Timings, never part of a result: reading its state, loading its rows, everything after.
  double state_seconds = 0, load_seconds = 0, train_seconds = 0;
  uint32_t slot = 0;       // of its worker, from 0
  double began_after = 0;  // seconds after its lease arrived
  bool has_state = false;  // a state blob was stored under this attempt
};
enum class LeftOutReason : uint8_t {
  kNotFinite = 0,   // NaN or infinity in its update
  kOutOfBound = 1,  // |value| or weight above the channel's bound
  kNoData = 2,      // no training rows, or they could not be read
  kState = 3,       // its state is missing or corrupt
  kFailed = 4,      // the trainer or the algorithm returned an error
};
struct LeftOut {
  Attempt attempt;
  LeftOutReason reason = LeftOutReason::kFailed;
  std::string message;
};
struct Part {
  Round round{};
  Phase phase{};
  Digest broadcast;                    // what it was trained from
  std::vector<ClientRecord> included;  // exactly the attempts that `sums` holds
  std::vector<LeftOut> left_out;       // clients that this round has to do without
  Blob sums;  // aggregation::ExactSum::Encode; unnamed when nobody is included
};
struct EvaluationResult {
  EvaluationTask task;
  Round round{};
  std::vector<double> sums;
  std::string failure;  // why a client's state could not be read; then there are no sums
  Digest digest;        // kStateDigest
};
struct CommitRequest {
  SessionId session;
  uint64_t commit_id =
      0;  // grows with every new commit of this incarnation; a repeat has the same id
  std::optional<Part> part;
  std::vector<EvaluationResult> evaluations;
  // Asks for the next work in the same call, which saves the round a round trip: answered in the
  // reply, as Lease would be, once the commit is judged.
  std::optional<LeaseRequest> ask;
  Duration ask_wait{};  // that Lease's `wait`
  // What the transport counts as being worked on, until the commit has been judged and this is
  // gone. Never on the wire.
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
  // To `ask`. May be missing, whatever the verdict, and is where that is kRefused or kRegister: who
  // still wants work calls Lease.
  std::optional<LeaseReply> lease;
};

// ---- Release: gives leased work back undone

struct ReleaseRequest {
  SessionId session;
  std::vector<Attempt> attempts;
  std::vector<Fence> tasks = {};  // of evaluation
  bool leaving = false;           // the worker shuts down: it gives everything back
};
struct ReleaseReply {};

// ---- Uploads: the verdict comes before any byte moves

enum class BlobPurpose : uint8_t {
  kPopulation = 0,  // RegisterRequest::examples
  kSums = 1,        // Part::sums
  kRecords = 2,     // a Part whose records do not fit a message
};
struct UploadOffer {
  BlobPurpose purpose = BlobPurpose::kSums;
  SessionId session;  // 0 before registration, which the population alone is offered in
  Digest digest;
  uint64_t size = 0;
  Round round{};           // of the part; 0: not a part
  uint64_t commit_id = 0;  // of the commit that will name it; 0: none
};
enum class UploadVerdict : uint8_t {
  kSend = 0,
  kHave = 1,
  kNotNeeded = 2,
  kStale = 3,
  kTooLarge = 4,
  kBusy = 5
};

}  // namespace macaw::fleet
