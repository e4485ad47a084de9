#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "aggregation/channel.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/parameter_group.h"
#include "algorithms/api/workspace.h"
#include "core/ids.h"
#include "core/random.h"
#include "core/vector.h"
#include "plan/model.h"
#include "plan/run_plan.h"
#include "plan/task.h"
#include "training/api/stage.h"

namespace macaw::algorithms {

// A federated algorithm is three things: what travels (Schema), what a client does before and after
// its local work (ClientAlgorithm), and what the server does with the cohort's sums
// (ServerAlgorithm). All of it is torch-free: local work is described as data
// (training/api/stage.h) and carried out by a trainer that knows no algorithm.
//
// Vectors are looked up by the names that the schema gives them. A name that is not there, or a
// result that lacks a channel, is a programming error: the run ends with an Internal error that
// names the algorithm, the channel and what was expected. (The look-ups throw; guard.h, which
// stands around every half, catches.)

// A vector that every client receives.
struct DownChannel {
  std::string name;
  LayoutPtr layout;
  std::vector<Phase> phases = {};  // in which it is sent; empty: in all
  // A codec made it, of at most so many steps a piece (core/blocks.h). It changes no number.
  bool coded = false;
  uint32_t levels = 0;
};

struct NamedLayout {
  std::string name;
  LayoutPtr layout;
  // Of an item of Schema::state: the server half sums it over all clients. SCAFFOLD's c is the mean
  // of all c_i. A client that loses its state begins at zero, and the sum would still have what it
  // had added (BeginsAnew).
  bool summed = false;
};

// A number of the rule's own: the column rule_NAME of metrics.jsonl.
struct MetricSpec {
  std::string name;  // small letters, digits and _
  // How the clients' values are combined, as on a channel (kCollect excepted): exactly, so that any
  // number of workers gives the same bits. Nothing: the server half reports it in Apply.
  std::optional<aggregation::Reduction> reduction;
  // A client's |value| may be at most this. A client whose value is larger or not finite is left
  // out of the round, as with any channel; no worker can bring in more.
  double bound = 0x1p40;
  std::vector<Phase> phases = {};  // in which clients report it; empty: in all
};

struct Schema {
  std::vector<DownChannel> down;             // down[0] is the model; it is sent in every phase
  std::vector<aggregation::ChannelSpec> up;  // what every client returns
  std::vector<NamedLayout> state;            // what a client keeps between rounds; empty: stateless
  std::vector<MetricSpec> metrics = {};
  // Further models of the server's, of the model's layout, by name: ServerAlgorithm::MoreModels, in
  // its order. Each client is evaluated at the one of all models whose loss on its training rows is
  // the least (the first of equals; without rows the first).
  std::vector<std::string> models = {};
  // Layouts of vectors that the server half saves, beside those of the channels. A resume reads no
  // others, so a half that saves one is refused before the first round.
  std::vector<LayoutPtr> saved = {};
  // Null: the whole model moves. Else the server half has the trained part alone (Configure, Model,
  // Result, ServerContext::base), and a client gets the whole model, as down[0] says: the base,
  // which never changes, is sent once, and put to the trained part where the client is.
  std::shared_ptr<const ModelParts> parts = nullptr;
  std::string whose = {};  // "algorithm mime", for messages; filled in by SchemaOf
};

// Whether a run begins anew once a client has lost its state: after that round no client has a
// state, and the server half forgets its sums (ServerAlgorithm::ForgetStates). True where the half
// sums everything that clients keep. Where they also keep something of their own, such as a
// personal model, they keep it, and the sum still has what was lost.
bool BeginsAnew(const Schema& schema);

// What both halves are constructed from. They copy what they need, so it need not outlive them.
struct Setup {
  AlgorithmConfig config;  // parameters complete and checked against the description
  LayoutPtr layout;        // the model's
  ModelConfig model;       // its layers; no name: only the layout is known
  LocalConfig local;       // the run's (training/api/round_local.h: a round's)
  CohortConfig cohort;
  // Over the clients that can be drawn. 0: not known, which MakeSchema refuses of a rule that uses
  // it (Description::totals).
  uint64_t clients = 0;     // N: how many there are
  double total_weight = 0;  // W = Σ w_i, under the run's weight policy
  double contribution_bound = 65536;
  uint64_t seed = 0;  // the run's
  TaskKind task = TaskKind::kClassification;
  bool asynchronous = false;  // clients may have begun from older models (ClientContext::staleness)

  // A client may be drawn several times in a round.
  bool with_replacement() const { return cohort.sampling == "proportional"; }
  // A parameter with its type; the description guarantees that it exists.
  template <typename T>
  T Get(const std::string& name) const {
    return std::get<T>(config.parameters.at(name));
  }
  // For code that several rules share: returns `fallback` if the description has no such parameter.
  template <typename T>
  T GetOr(const std::string& name, T fallback) const {
    const auto found = config.parameters.find(name);
    return found == config.parameters.end() ? fallback : std::get<T>(found->second);
  }
};

// A vector under its name in the schema.
struct NamedView {
  std::string name;
  ConstVectorView vector;
};

// One client's turn. Views live until Conclude returns.
struct ClientContext {
  Round round{};
  Phase phase{};
  ClientId client{};
  uint32_t examples = 0;  // training rows
  double weight = 1;      // under the run's weight policy
  LocalConfig local;      // lr and steps are the round's, steps and epochs the client's part
  // Parallel to Schema::down, empty where a channel is not sent in this phase. An evaluation has
  // the model alone.
  std::span<const ConstVectorView> broadcast;
  // Parallel to Schema::state: as the client kept it last, in an earlier phase of this round or in
  // an earlier round. Zero on a first turn.
  std::span<const ConstVectorView> state;
  bool first_turn = false;  // the client has kept no state yet
  // τ: by how many rounds `broadcast` is older than what the server moves. 0 unless rounds do not
  // wait for each other.
  uint32_t staleness = 0;
  uint64_t seed = 0;               // the run's
  const Schema* schema = nullptr;  // of the names below
  // The same for all turns of a client half with the same bytes in `broadcast`; 0: not known.
  uint64_t broadcast_id = 0;

  const ConstVectorView& model() const { return broadcast[0]; }
  ConstVectorView Down(absl::string_view name) const;
  ConstVectorView State(absl::string_view name) const;
  // A stream of its own for each (run's seed, round, phase, client, purpose): the same numbers on
  // any worker, in a repeated attempt and in a replay. `purpose` is any text; asked for the same
  // purpose twice, the stream begins again.
  RandomStream Random(absl::string_view purpose) const;
  // The same for all clients of a (run's seed, round, phase, purpose).
  RandomStream CommonRandom(absl::string_view purpose) const;
};

// A vector that a rule describes and does not compute: (end − from)·factor, where the factor is for
// the parameters alone, and buffers are end − from. Rounded after each operation. Whoever adds the
// clients up computes it, and so the end of a stage can stay on the device of its trainer.
struct Displacement {
  // No `from`: nothing is subtracted.
  explicit Displacement(training::EndVector at, ConstVectorView from_point = {}, double times = 1)
      : end(at), from(from_point), factor(times) {}

  training::EndVector end;
  ConstVectorView from;  // a vector of the broadcast
  double factor = 1;
};

// What a client returns on a channel.
struct UpVector {
  std::string name;
  std::variant<ConstVectorView, Displacement> value;
};

// What a client returns: every channel of the phase and every metric of the phase, by name, once.
struct ClientResult {
  std::vector<UpVector> up;
  // The next version of the items of Schema::state that change; the others stay. It counts if this
  // phase's contribution counts, whatever becomes of the client in later phases.
  std::vector<NamedView> state = {};
  std::vector<std::pair<std::string, double>> metrics = {};
  // What a decorator needs in its own Sent, by a name of its own. It goes nowhere.
  std::vector<NamedView> aside = {};
};

// The client half. Stateless and const: one object serves every slot of a worker at once. Vectors
// that must be computed live in the slot's Workspace until the client's turn ends.
class ClientAlgorithm {
 public:
  virtual ~ClientAlgorithm() = default;
  virtual absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                                      Workspace& workspace) const = 0;
  // For rules that branch: once all stages so far have run, the stages to go on with, by what came
  // out. Asked again after those; an empty plan ends the local work. StageEnd counts all stages of
  // the turn.
  virtual absl::StatusOr<training::LocalPlan> Continue(const ClientContext&,
                                                       std::span<const training::StageOutcome>,
                                                       Workspace&) const {
    return training::LocalPlan();
  }
  // `outcomes`: of all stages, in their order.
  virtual absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                                std::span<const training::StageOutcome> outcomes,
                                                Workspace& workspace) const = 0;
  // Called after Conclude, at most once by each decorator, if what stands around the rule has
  // changed the vectors of `result.up` (a clip, a codec): what is there now is what is counted. A
  // rule whose state mirrors what it has sent makes `result.state` mirror that, and says so in
  // Description::state_follows_sent. The last call decides, so a call computes the state from
  // `context` and `result.up`. What was changed is a vector and no Displacement.
  virtual absl::Status Sent(const ClientContext&, ClientResult& /*result*/, Workspace&) const {
    return absl::OkStatus();
  }
  // The point at which the client's own rows are evaluated: the broadcast model, unless the
  // algorithm keeps a personal one.
  virtual absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                          Workspace&) const {
    return training::Point(context.model());
  }
};

enum class AfterApply : uint8_t { kRoundDone, kNextPhase };
// The phases of a round: one whose Apply asks for more is refused, since it may ask for ever.
constexpr uint32_t kMostPhases = 64;

// A server half's vectors and numbers by name, as a checkpoint stores them.
struct ServerState {
  std::map<std::string, FlatVector> vectors;
  std::map<std::string, double> numbers;
};

// What the server half is asked about.
struct ServerContext {
  Round round{};
  Phase phase{};
  uint64_t seed = 0;                                 // the run's
  std::map<std::string, double>* metrics = nullptr;  // where Report writes; null: nowhere
  const Schema* schema = nullptr;
  // Of a round of one client that does not wait for others: the client's staleness, and the model
  // from which it began.
  uint32_t staleness = 0;
  ConstVectorView base = {};

  // A stream of its own for each (run's seed, round, phase, purpose), none of them a client's.
  RandomStream Random(absl::string_view purpose) const;
  // That of ClientContext::CommonRandom: what all clients of the phase drew, too.
  RandomStream CommonRandom(absl::string_view purpose) const;
  // The round's value of a metric that the schema leaves to the server half. In Apply.
  void Report(absl::string_view metric, double value) const;
};

// The cohort's result on the channel of that name.
aggregation::AggregatedChannel& ChannelOf(aggregation::Aggregate& aggregate,
                                          absl::string_view name);

// A vector that goes down.
struct DownVector {
  std::string name;
  ConstVectorView vector;
  // `before`: what was sent in the round before; empty: nothing, or the rule does not say. Then
  // AddChange(change, before) is `vector`, bit for bit.
  ConstVectorView before = {};
  ConstVectorView change = {};
};
using Broadcast = std::vector<DownVector>;

// What some clients of a phase have sent and the server half makes of what the others have sent, as
// under an attack (around/attack.h): on a channel the same for each of them.
struct MadeUp {
  struct OnChannel {
    FlatVector vector;
    double share = 0;  // these clients' part of the channel's weight; 0 where it collects
  };
  std::function<bool(ClientId)> by;           // whether this client sends it; empty: none does
  std::map<std::string, OnChannel> channels;  // by name
};

// The server half: owns the model and everything else that lives between rounds. Called on one
// thread.
class ServerAlgorithm {
 public:
  virtual ~ServerAlgorithm() = default;
  // What every client receives in this phase, by name. Channels that are not sent in it may be
  // there, too, and stay at home. The views are valid until the next Apply or Load.
  virtual absl::StatusOr<Broadcast> Configure(const ServerContext& context) const = 0;
  // The only call that changes the model. If no client contributed, mean channels are empty and
  // fixed-divisor sums are zero.
  virtual absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                           aggregation::Aggregate aggregate) = 0;
  // With Schema::parts: what is trained of it.
  virtual ConstVectorView Model() const = 0;
  // The model that is evaluated and written as the run's result: the model itself, unless the rule
  // reports another one.
  virtual ConstVectorView Result() const { return Model(); }
  // The further models (Schema::models). Evaluations get them behind Result(), and the run writes
  // all as models/0.safetensors, models/1.safetensors, …
  virtual std::vector<ConstVectorView> MoreModels() const { return {}; }
  virtual ServerState Save() const = 0;
  virtual absl::Status Load(const ServerState& state) = 0;  // on an error nothing is changed
  // Sets the sums of what clients keep (NamedLayout::summed) to what they were before the first
  // round, because no client has a state any more. The model and everything else stay. Called
  // between two rounds where BeginsAnew holds, and once before the first round, without an effect.
  // The default is an error: the rule says that it sums, and has no such method.
  virtual absl::Status ForgetStates();
  // What Apply would add to this aggregate in the name of some clients. The cosines of
  // contributions count it. Most halves add nothing.
  virtual MadeUp MakeUp(const aggregation::Aggregate& /*aggregate*/) const { return {}; }
};

}  // namespace macaw::algorithms
